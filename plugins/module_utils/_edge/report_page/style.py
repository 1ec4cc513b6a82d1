# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The style of ``report.html`` and its one script."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#fcfcfb;--ink:#1d2126;--soft:#5d656e;--line:#e2e4e7;--grid:#e6e9ec;
--good:#2f7d4f;--bad:#c2362b;--warn:#966008;--cordoned:#b9c0c8;--protecting:#5aa79b;--draining:#3f74b8;
--drained:#a9c1de;--out:#7d8793;--returning:#7fb389;--parked:#c99b4e;--blocked:#e3b04b;--area:#d9e5f3;--queued:#d3d7dc}
@media screen and (prefers-color-scheme:dark){:root{--bg:#14171a;--ink:#e4e7ea;--soft:#98a1ab;
--line:#2c3137;--grid:#262c32;--good:#6cc08b;--bad:#f0736a;--warn:#e0a84e;--cordoned:#59626c;
--protecting:#4c9c90;--draining:#5b93d6;--drained:#38506d;--out:#717b87;--returning:#5f9d6c;
--parked:#ad8036;--blocked:#c8963a;--area:#22354b;--queued:#3d444c}}
*{box-sizing:border-box}
body{margin:0 auto;padding:40px 28px 64px;max-width:1180px;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{margin:4px 0 6px;font-size:34px;line-height:1.15;font-weight:650;letter-spacing:-.015em;
text-wrap:balance}
h2{margin:44px 0 4px;font-size:18px;font-weight:650;letter-spacing:-.005em}
p{margin:0 0 10px;max-width:76ch}
.lead{font-size:17px}
.soft,th,dt{color:var(--soft)}
.over{font-size:13px;color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
dl{margin:0}dd{margin:0}
.facts{display:flex;flex-wrap:wrap;gap:2px 28px;margin-top:14px;font-size:13.5px}
.facts div{display:flex;gap:8px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));margin:28px 0 0;
border-top:1px solid var(--line);border-bottom:1px solid var(--line)}
.tiles>div{padding:14px 16px 13px 0}
.tiles dt{font-size:13px}
.tiles dd{font-size:22px;font-weight:600;line-height:1.35;letter-spacing:-.01em;white-space:nowrap}
.tiles .note{font-size:13px;font-weight:400;letter-spacing:0;color:var(--soft);white-space:normal}
.look{margin:28px 0 0;padding:14px 18px 6px;border-left:3px solid var(--bad)}
.look h2{margin:0 0 8px}
.look li{margin:0 0 8px}.look b{margin-right:6px}ul{padding-left:0;list-style:none;margin:0}
.advice{border-color:var(--draining)}.advice ul ul{padding-left:1.3em}
.advice code{display:block;color:var(--soft)}
p.legend{max-width:none}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;color:var(--soft);margin:0 0 8px}
.legend .refused{width:3px}.legend i{display:inline-block;width:11px;height:11px;margin-right:6px;border-radius:2px;
vertical-align:-1px}
table{border-collapse:collapse;width:100%;font-size:13.5px;line-height:1.4}
th{font-weight:500;text-align:left;font-size:12.5px;vertical-align:bottom;overflow-wrap:normal}
th,td{padding:5px 16px 5px 0}
td{vertical-align:top}
.words td:not(.num):not(.fit){min-width:19ch}
tbody tr{border-top:1px solid var(--line)}
.num{text-align:right;white-space:nowrap}
.picture tr{border-top:0}
.picture .group{border-top:1px solid var(--line)}
.picture td,.picture th{padding-top:0;padding-bottom:0;vertical-align:middle;height:23px}
.picture th{white-space:nowrap}.picture td:first-child{min-width:22ch}
.picture .lane{padding-right:0;width:50%}
.fit{white-space:nowrap}.log td:last-child{width:45%}.planned td:first-child{width:38%}
section>.soft,details>.soft{font-size:13.5px}
svg{display:block;width:100%;overflow:visible}
svg .earlier{fill:var(--queued)}svg .cordoned{fill:var(--cordoned)}
svg .protecting,svg .taking_over,svg .released{fill:var(--protecting)}
svg .draining,svg .ending{fill:var(--draining)}svg .drained{fill:var(--drained)}
svg .out{fill:var(--out)}svg .returning{fill:var(--returning)}svg .parked{fill:var(--parked)}
svg .blocked{fill:var(--blocked)}svg .queued{fill:var(--queued)}svg .dark,svg .mark{fill:var(--bad)}
svg .refused{fill:var(--ink)}svg .both{fill:var(--drained)}
svg .ready{fill:var(--area)}svg .grid{stroke:var(--grid);stroke-width:1}
svg .edge{fill:none;stroke:var(--draining);stroke-width:1.5}svg text{fill:var(--soft);font-size:11.5px}
svg .goal{stroke:var(--out);stroke-width:1;stroke-dasharray:2 3}
.earlier{background:var(--queued)}.cordoned{background:var(--cordoned)}.protecting,.taking_over,.released{background:var(--protecting)}
.draining,.ending{background:var(--draining)}.drained{background:var(--drained)}
.out{background:var(--out)}.returning{background:var(--returning)}.parked{background:var(--parked)}
.queued{background:var(--queued)}.blocked{background:var(--blocked)}.both{background:var(--drained)}.refused{background:var(--ink)}.dark{background:var(--bad)}
svg *{background:none}
details{border-top:1px solid var(--line)}
details+details{margin:0}details:last-of-type{border-bottom:1px solid var(--line)}
summary{padding:8px 0;cursor:pointer;font-size:14px}
summary b{font-weight:600;margin-right:10px}
summary:focus-visible,input:focus-visible{outline:2px solid var(--draining);outline-offset:2px}
details>:not(summary){margin-bottom:16px}
input{font:inherit;font-size:14px;width:min(360px,100%);padding:6px 10px;margin:4px 0 12px;
color:inherit;background:transparent;border:1px solid var(--line);border-radius:5px}
input::placeholder{color:var(--soft);opacity:1}
footer{margin-top:48px;font-size:12.5px;color:var(--soft)}
@media screen and (max-width:760px){body{padding:24px 16px 48px}h1{font-size:27px}
.picture tr{display:flex;flex-wrap:wrap;align-items:baseline;padding:5px 0 3px}
.picture td,.picture th{height:auto}.picture .lane{width:100%}
.picture thead th:not(.lane),td:empty{display:none}.picture td:first-child{width:100%}
.words thead{display:none}.words tr{display:block;padding:8px 0}.words td{display:block;padding:0;width:auto!important}
.words .num{text-align:left}td[data-is]:not(:empty)::before{content:attr(data-is) " ";color:var(--soft)}}
@media print{body{padding:0;max-width:none;font-size:10.5pt}input{display:none}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}tr,.look{break-inside:avoid}
h2{break-after:avoid}details::details-content{content-visibility:visible;block-size:auto}}
"""

# Only a convenience: without it the page holds the same, and the browser's own search opens details.
SCRIPT = """
(function(){var rows=document.querySelectorAll('tr[data-find]');if(rows.length<12)return;
var box=document.createElement('input');box.type='search';
box.placeholder='Filter pods by name, route or outcome';box.setAttribute('aria-label',box.placeholder);
document.getElementById('filter').appendChild(box);
box.addEventListener('input',function(){var word=box.value.trim().toLowerCase(),open=new Set();
rows.forEach(function(row){var hit=row.dataset.find.indexOf(word)>=0;row.hidden=!hit;
if(hit)open.add(row.closest('details'))});
document.querySelectorAll('details.node').forEach(function(d){d.hidden=word&&!open.has(d);
if(word)d.open=open.has(d)})})})();
"""
