# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The page of ``report.html`` as a Jinja template, its style and its one script.

It is Python because a module carries nothing else to where it runs. Values are escaped by Jinja
(autoescape); positions arrive as percentages, so that the pictures follow the width of the window.
"""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#fcfcfb;--ink:#1d2126;--soft:#5d656e;--line:#e2e4e7;--grid:#e6e9ec;
--good:#2f7d4f;--bad:#c2362b;--warn:#a8690a;--cordoned:#b9c0c8;--protecting:#5aa79b;--draining:#3f74b8;
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
.soft,th,dt,.tick,figcaption{color:var(--soft)}
.over{font-size:13px;color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
dl{margin:0}dd{margin:0}
.facts{display:flex;flex-wrap:wrap;gap:2px 28px;margin-top:14px;font-size:13.5px}
.facts div{display:flex;gap:8px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));margin:28px 0 0;
border-top:1px solid var(--line);border-bottom:1px solid var(--line)}
.tiles>div{padding:14px 16px 13px 0}
.tiles dt{font-size:13px}.tiles dd{font-size:25px;font-weight:600;line-height:1.25;letter-spacing:-.01em}
.tiles .note{font-size:13px;font-weight:400;letter-spacing:0;color:var(--soft)}
.look{margin:28px 0 0;padding:14px 18px 6px;border-left:3px solid var(--bad)}
.look h2{margin:0 0 8px}
.look li{margin:0 0 8px}.look b{margin-right:6px}ul{padding-left:0;list-style:none;margin:0}
p.legend{max-width:none}
.legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:13px;color:var(--soft);margin:0 0 8px}
.legend .refused{width:3px}.legend i{display:inline-block;width:11px;height:11px;margin-right:6px;border-radius:2px;
vertical-align:-1px}
table{border-collapse:collapse;width:100%;font-size:13.5px;line-height:1.4}
th{font-weight:500;text-align:left;font-size:12.5px;vertical-align:bottom}
th,td{padding:5px 16px 5px 0}
td{vertical-align:top}
tbody tr{border-top:1px solid var(--line)}
.num{text-align:right;white-space:nowrap}
.picture tr{border-top:0}
.picture .group{border-top:1px solid var(--line)}
.picture td,.picture th{padding-top:0;padding-bottom:0;vertical-align:middle;height:23px}
.picture .lane{padding-right:0;width:56%}
.fit{white-space:nowrap}.log td:last-child{width:62%}section>.soft,details>.soft{font-size:13.5px}
svg{display:block;width:100%;overflow:visible}
svg .cordoned{fill:var(--cordoned)}svg .protecting,svg .taking_over{fill:var(--protecting)}
svg .draining,svg .ending{fill:var(--draining)}svg .drained{fill:var(--drained)}
svg .out{fill:var(--out)}svg .returning{fill:var(--returning)}svg .parked{fill:var(--parked)}
svg .blocked{fill:var(--blocked)}svg .queued{fill:var(--queued)}svg .dark,svg .mark{fill:var(--bad)}
svg .refused{fill:var(--ink)}svg .both{fill:var(--drained)}
svg .ready{fill:var(--area)}svg .grid{stroke:var(--grid);stroke-width:1}
svg .edge{fill:none;stroke:var(--draining);stroke-width:1.5}svg text{fill:var(--soft);font-size:11.5px}
svg .goal{stroke:var(--out);stroke-width:1;stroke-dasharray:2 3}
.cordoned{background:var(--cordoned)}.protecting,.taking_over{background:var(--protecting)}
.draining,.ending{background:var(--draining)}.drained{background:var(--drained)}
.out{background:var(--out)}.returning{background:var(--returning)}.parked{background:var(--parked)}
.queued{background:var(--queued)}.blocked{background:var(--blocked)}.both{background:var(--drained)}.refused{background:var(--ink)}.dark{background:var(--bad)}
svg *{background:none}
details{border-top:1px solid var(--line)}
details+details{margin:0}details:last-of-type{border-bottom:1px solid var(--line)}
summary{padding:8px 0;cursor:pointer;font-size:14px}
summary b{font-weight:600;margin-right:10px}
summary:focus-visible,input:focus-visible,a:focus-visible{outline:2px solid var(--draining);
outline-offset:2px}
details>:not(summary){margin-bottom:16px}
input{font:inherit;font-size:14px;width:min(360px,100%);padding:6px 10px;margin:4px 0 12px;
color:inherit;background:transparent;border:1px solid var(--line);border-radius:5px}
footer{margin-top:48px;font-size:12.5px;color:var(--soft)}
@media screen and (max-width:760px){body{padding:24px 16px 48px}h1{font-size:27px}
.picture tr{display:flex;flex-wrap:wrap;align-items:baseline;padding:5px 0 3px}
.picture td,.picture th{height:auto}.picture .lane{width:100%}
.picture thead th:not(.lane){display:none}.picture td:first-child{width:100%}
.words thead{display:none}.words tr{display:block;padding:8px 0}.words td{display:block;padding:0}
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

PAGE = """
{%- macro axis(ticks, grid="") %}<svg height="16" aria-hidden="true">{% if grid %}\
<defs><g id="{{ grid }}">{% for x, label in ticks %}<line x1="{{ x }}%" x2="{{ x }}%" \
y2="100%"/>{% endfor %}</g></defs>{% endif %}{% for x, label in ticks %}\
<text x="{{ x }}%" y="11">{{ label }}</text>{% endfor %}</svg>{% endmacro %}
{%- macro bar(row, grid, height, inset) %}<svg height="{{ height }}" role="img" \
aria-label="{{ row.label }}"><use class="grid" href="#{{ grid }}"/>{% for x, w, kind, title in row.bars %}\
<rect class="{{ kind }}" x="{{ x }}%" width="{{ w }}%" y="{{ inset }}" \
height="{{ height - 2 * inset }}"><title>{{ title }}</title></rect>{% endfor %}\
{% for x, kind, title in row.marks %}<svg x="{{ x }}%" overflow="visible">\
<rect class="mark {{ kind }}" x="-1.25" width="2.5" y="{{ inset - 2 }}" \
height="{{ height - 2 * inset + 4 }}"><title>{{ title }}</title></rect></svg>{% endfor %}\
</svg>{% endmacro %}
{%- macro legend(entries) %}<p class="legend">{% for kind, label in entries %}\
<span><i class="{{ kind }}"></i>{{ label }}</span>{% endfor %}</p>{% endmacro %}
{%- macro node_rows(table, rows, grid) %}
<table class="picture"><thead><tr><th scope="col">Node</th><th scope="col">Wave</th>\
<th scope="col">Outcome</th><th scope="col" class="num">Away</th>\
<th scope="col" class="num">Pods</th><th scope="col" class="lane">{{ axis(table.ticks, grid) }}</th></tr></thead><tbody>
{% for row in rows %}
<tr{% if row.first %} class="group"{% endif %}><td class="fit">{{ row.name }}</td>\
<td data-is="wave">{{ row.wave or "" }}</td><td class="fit {{ row.tone }}">{{ row.outcome }}</td>\
<td class="num" data-is="away">{{ row.away }}</td><td class="num" data-is="pods">{{ row.moved }}</td>\
<td class="lane">{{ bar(row, grid, 23, 6) }}</td></tr>
{% endfor %}
</tbody></table>
{%- endmacro %}
{%- macro service_rows(chart, rows) %}
<table class="picture"><thead><tr><th scope="col">Service</th>\
<th scope="col" class="num">Lowest</th><th scope="col" class="num">Short for</th>\
<th scope="col" class="num">Dark</th><th scope="col" class="lane">{{ axis(chart.ticks) }}</th></tr></thead><tbody>
{% for row in rows %}
<tr class="group"><td>{{ row.name }}</td><td class="num" data-is="lowest">{{ row.lowest }}</td>\
<td class="num soft" data-is="short for">{{ row.below }}</td>\
<td class="num {{ row.tone }}" data-is="dark">{{ row.dark }}</td>\
<td class="lane"><svg height="29" role="img" aria-label="{{ row.label }}">\
<svg y="4" height="21">{% for x, w, y, h, kind, title in row.steps %}\
<rect class="{{ kind }}" x="{{ x }}%" width="{{ w }}%" y="{{ y }}%" height="{{ h }}%">\
<title>{{ title }}</title></rect>{% endfor %}{% for x, w, path in row.edges %}\
<svg x="{{ x }}%" width="{{ w }}%" viewBox="0 0 1000 100" preserveAspectRatio="none">\
<line class="goal" x1="0" x2="1000" y1="{{ row.goal }}" y2="{{ row.goal }}" \
vector-effect="non-scaling-stroke"/>\
<path class="edge" d="{{ path }}" vector-effect="non-scaling-stroke"/></svg>{% endfor %}</svg>\
</svg></td></tr>
{% endfor %}
</tbody></table>
{%- endmacro -%}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; script-src '{{ script_hash }}'">
<meta name="generator" content="kubeops.node_maintenance">
<title>{{ title }}</title>
<style>{{ style|safe }}</style>
</head>
<body>
<header>
<div class="over">Node maintenance{% if run %} · <code>{{ run }}</code>{% endif %}</div>
<h1 class="{{ tone }}">{{ headline }}</h1>
<p class="lead">{{ subline }}</p>
<dl class="facts">{% for name, value in facts %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>\
{% endfor %}</dl>
</header>
<main>
<dl class="tiles">{% for tile in tiles %}<div><dt>{{ tile.name }}</dt>\
<dd class="{{ tile.tone }}">{{ tile.value }}<div class="note">{{ tile.note }}</div></dd></div>\
{% endfor %}</dl>
{% if look %}
<section class="look" aria-labelledby="look"><h2 id="look">To look at</h2><ul>
{% for subject, message, remedy in look %}
<li><b>{{ subject }}</b> {{ message }}{% if remedy %} <span class="soft">{{ remedy }}</span>{% endif %}</li>
{% endfor %}
</ul></section>
{% endif %}
{% if table.rows or table.rest %}
<section aria-labelledby="nodes"><h2 id="nodes">Nodes over time</h2>
{{ legend(table.legend) }}
{% if table.rows %}{{ node_rows(table, table.rows, "g0") }}{% endif %}
{% if table.rest %}
<details><summary>{{ table.rest_label }}</summary>{{ node_rows(table, table.rest, "g1") }}</details>
{% endif %}
</section>
{% endif %}
{% if chart.total %}
<section aria-labelledby="services"><h2 id="services">Ready endpoints per Service</h2>
<p class="soft">{{ chart.note }}</p>
{% if chart.rows %}{{ service_rows(chart, chart.rows) }}{% endif %}
{% if chart.rest %}
<details><summary>{{ chart.rest_label }}</summary>{{ service_rows(chart, chart.rest) }}</details>
{% endif %}
{% if chart.steady %}
<details><summary>{{ chart.steady_label }}</summary><p>{{ chart.steady }}</p></details>
{% endif %}
</section>
{% endif %}
{% if refusals.rows %}
<section aria-labelledby="refused"><h2 id="refused">What was refused, and why</h2>
<table class="words"><thead><tr><th scope="col">By</th><th scope="col">Rule</th>\
<th scope="col" class="num">Refusals</th><th scope="col" class="num">Held back</th>\
<th scope="col">Pods</th><th scope="col">What to do</th></tr></thead><tbody>
{% for row in refusals.rows %}
<tr><td><b>{{ row.blocker }}</b></td><td>{{ row.rule }}</td>\
<td class="num" data-is="refused">{{ row.count }}</td>\
<td class="num" data-is="held back">{{ row.wait }}</td>\
<td>{{ row.pods }}</td><td class="{{ row.tone }}">{{ row.remedy }}</td></tr>
{% endfor %}
</tbody></table>
{% if refusals.more %}<p class="soft">{{ refusals.more }}</p>{% endif %}
</section>
{% endif %}
{% if swaps.rows %}
<section aria-labelledby="swaps"><h2 id="swaps">Workloads that were protected</h2>
<table class="words"><thead><tr><th scope="col">Workload</th><th scope="col">How</th>\
<th scope="col" class="num">Newcomers ready after</th><th scope="col">Outcome</th></tr></thead><tbody>
{% for row in swaps.rows %}
<tr><td>{{ row.name }}</td><td>{{ row.how }}</td>\
<td class="num" data-is="newcomers ready after">{{ row.took }}</td>\
<td>{{ row.outcome }}</td></tr>
{% endfor %}
</tbody></table>
{% if swaps.more %}<p class="soft">{{ swaps.more }}</p>{% endif %}
</section>
{% endif %}
{% if findings.rows %}
<section aria-labelledby="findings"><h2 id="findings">Findings of the plan</h2>
<table class="words"><thead><tr><th scope="col">Severity</th><th scope="col">Object</th>\
<th scope="col">Finding</th><th scope="col">What to do</th></tr></thead><tbody>
{% for row in findings.rows %}
<tr><td class="fit {{ row.tone }}">{{ row.severity }}</td><td><b>{{ row.object }}</b><br>\
<code class="soft">{{ row.code }}</code></td><td>{{ row.message }}</td><td>{{ row.remedy }}</td></tr>
{% endfor %}
</tbody></table>
{% if findings.more %}<p class="soft">{{ findings.more }}</p>{% endif %}
</section>
{% endif %}
{% if groups %}
<section aria-labelledby="pods"><h2 id="pods">Pods by node</h2>
{{ legend(lane_legend) }}<div id="filter"></div>
{% for group in groups %}
<details class="node"{% if group.open %} open{% endif %}><summary><b>{{ group.name }}</b>\
<span class="soft">{{ group.label }}</span></summary>
{% if group.rows %}
<table class="picture"><thead><tr><th scope="col">Pod</th><th scope="col">Route</th>\
<th scope="col">Outcome</th><th scope="col" class="num">Gone after</th>\
<th scope="col" class="lane">{{ axis(group.ticks, group.grid) }}</th></tr></thead><tbody>
{% for row in group.rows %}
<tr data-find="{{ row.find }}"><td>{{ row.name }}</td><td class="soft">{{ row.route }}</td>\
<td class="fit {{ row.tone }}" title="{{ row.reason }}">{{ row.outcome }}</td>\
<td class="num" data-is="gone after">{{ row.waited }}</td>\
<td class="lane">{{ bar(row, group.grid, 23, 7) }}</td></tr>
{% endfor %}
</tbody></table>
{% endif %}
{% if group.note %}<p class="soft">{{ group.note }}</p>{% endif %}
</details>
{% endfor %}
</section>
{% endif %}
{% if given.rows %}
<section aria-labelledby="given"><h2 id="given">Given back, and kept</h2>
<p class="soft">{{ given.note }}</p>
<table class="words log"><tbody>
{% for row in given.rows %}
<tr><td class="fit soft">{{ row.at }}</td><td class="fit {{ row.tone }}">{{ row.word }}</td>\
<td><b>{{ row.object }}</b></td><td>{{ row.message }}</td></tr>
{% endfor %}
</tbody></table>
{% if given.more %}<p class="soft">{{ given.more }}</p>{% endif %}
</section>
{% endif %}
{% if actions.rows %}
<section aria-labelledby="actions"><h2 id="actions">{{ actions.title }}</h2>
<details{% if actions.open %} open{% endif %}><summary>{{ actions.label }}</summary><ul>
{% for row in actions.rows %}<li>{{ row }}</li>
{% endfor %}
</ul>{% if actions.more %}<p class="soft">{{ actions.more }}</p>{% endif %}</details>
</section>
{% endif %}
</main>
<footer>All times are UTC. The same as data: <code>report.json</code>, version {{ version }}.</footer>
<script>{{ script|safe }}</script>
</body>
</html>
"""
