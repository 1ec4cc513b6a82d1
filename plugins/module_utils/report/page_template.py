# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The page of ``report.html`` as a Jinja template that draws a ``Report``.

It is Python because a module carries nothing else to where it runs. Jinja escapes all values;
positions are percentages, so that the charts follow the width of the window. Everything is limited,
so that a page of 3,000 pods still opens: it says what is left out, which is never what needs
attention, and ``report.json`` has it all.
"""

from __future__ import annotations

PAGE = """
{%- set phases = {"earlier": "out before", "cordoned": "cordoned", "protecting": "protecting",
  "draining": "draining", "drained": "empty",
  "out": "your tasks", "returning": "returning", "parked": "parked"} %}
{%- set lanes = {"taking_over": "newcomer starts elsewhere", "both": "old and new serve",
  "queued": "waiting for its turn", "released": "let go, newcomer starts elsewhere",
  "blocked": "held back by a rule", "refused": "refused", "ending": "ending"} %}
{%- set tones = {"failed": "bad", "unfinished": "warn", "blocker": "bad", "warning": "warn"} %}
{%- set rows_most = 150 %}
{%- macro section(id, title) %}
<section aria-labelledby="{{ id }}"><h2 id="{{ id }}">{{ title }}</h2>
{{ caller() }}
</section>
{% endmacro %}
{%- macro head(names, numbers=(), lane="") %}<thead><tr>{% for name in names %}\
<th scope="col"{% if name in numbers %} class="num"{% endif %}>{{ name }}</th>{% endfor %}\
{% if lane %}<th scope="col" class="lane">{{ lane }}</th>{% endif %}</tr></thead>{% endmacro %}
{%- macro more(items, most, noun) %}{% if items|length > most %}\
<p class="soft">{{ (items|length - most)|counted("more " ~ noun) }}: see report.json.</p>{% endif %}{% endmacro %}
{%- macro folded(title) %}<details><summary>{{ title }}</summary>{{ caller() }}</details>{% endmacro %}
{%- macro fact(name, value) %}{% if value %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>{% endif %}{% endmacro %}
{%- macro tile(name, value, note="", tone="") %}<div><dt>{{ name }}</dt>\
<dd class="{{ tone }}">{{ value }}<div class="note">{{ note }}</div></dd></div>{% endmacro %}
{%- macro legend(words, shown) %}<p class="legend">{% for kind, label in words.items() if kind in shown %}\
<span><i class="{{ kind }}"></i>{{ label }}</span>{% endfor %}</p>{% endmacro %}
{%- macro scale(ticks, grid="") %}<svg height="16" aria-hidden="true">{% if grid %}\
<defs><g id="{{ grid }}">{% for x, label in ticks %}<line x1="{{ x }}%" x2="{{ x }}%" \
y2="100%"/>{% endfor %}</g></defs>{% endif %}{% for x, label in ticks %}\
<text x="{{ x }}%" y="11">{{ label }}</text>{% endfor %}</svg>{% endmacro %}
{%- macro timeline(label, line, words, kinds, axis, grid, inset) %}<svg height="23" role="img" \
aria-label="{{ label }}"><use class="grid" href="#{{ grid }}"/>{% for span in line.spans %}\
{% set x, width = axis.extent(span.start, span.end) %}\
<rect class="{{ span.phase }}" x="{{ x }}%" width="{{ width }}%" y="{{ inset }}" height="{{ 23 - 2 * inset }}">\
<title>{{ words[span.phase] }}: {{ span.seconds|duration }}{% if span.open %} so far{% endif %}, \
{{ span.start|clock }} to {{ span.end|clock }}</title></rect>{% endfor %}\
{% set marks = line.marks|selectattr("what", "in", kinds)|list %}{% for mark in marks[::marks|length // 40 + 1] %}\
<svg x="{{ axis.at(mark.at) }}%" overflow="visible"><rect class="mark {{ mark.what }}" x="-1.25" width="2.5" \
y="{{ inset - 2 }}" height="{{ 27 - 2 * inset }}"><title>{{ mark.at|clock }} {{ mark.what }}: {{ mark.message }}\
</title></rect></svg>{% endfor %}</svg>{% endmacro %}
{%- macro way(node) %}{{ node.name }}: {% for span in node.spans %}{{ phases[span.phase] }} \
{{ span.seconds|duration }}{{ "" if loop.last else "; " }}{% endfor %}{% endmacro %}
{%- macro node_rows(nodes, axis, grid) %}
<table class="picture">\
{{ head(["Node", "Wave", "Outcome", "Away", "Pods"], ["Away", "Pods"], scale(axis.ticks(), grid)) }}<tbody>
{% for node in nodes %}
<tr{% if loop.changed(node.wave) %} class="group"{% endif %}><td class="fit">{{ node.name }}</td>\
<td data-is="wave" title="{{ node.waits }}">{{ node.wave or "" }}</td>\
<td class="fit {{ tones.get(node.outcome, "") }}">{{ node.outcome }}</td>\
<td class="num" data-is="away">{{ node.seconds|duration }}</td>\
<td class="num" data-is="pods">{{ "" if node.pods_moved is none else node.pods_moved }}</td>\
<td class="lane">{{ timeline(way(node), node, phases, failed_outcomes, axis, grid, 6) }}</td></tr>
{% endfor %}
</tbody></table>
{% endmacro %}
{%- macro service_rows(services, axis) %}
<table class="picture">\
{{ head(["Service", "Lowest", "Short for", "Dark"], ["Lowest", "Short for", "Dark"], scale(axis.clocks())) }}<tbody>
{% for service in services %}
{% set dark = service.dark_seconds|duration if service.dark else "never" %}
{% set goal = (100 - 100 * service.desired / service.top)|round(1) %}
<tr class="group"><td>{{ service|place }}</td>\
<td class="num" data-is="lowest">{{ service.lowest }} of {{ service.desired }}</td>\
<td class="num soft" data-is="short for">{{ service.below_seconds|duration if service.below_seconds else "" }}</td>\
<td class="num {{ "bad" if service.dark else "soft" }}" data-is="dark">{{ dark }}</td>\
<td class="lane"><svg height="29" role="img" aria-label="{{ service|place }}: at least {{ service.lowest }} of \
{{ service.desired }} ready, dark {{ dark }}"><svg y="4" height="21">\
{% for x, width, height, ready, start, end in axis.areas(service) %}\
<rect class="{{ "ready" if ready else "dark" }}" x="{{ x }}%" width="{{ width }}%" \
y="{{ (100 - height)|round(1) }}%" height="{{ height }}%"><title>{{ ready|counted("ready endpoint") }} for \
{{ (end - start)|duration }}, {{ start|clock }} to {{ end|clock }}</title></rect>{% endfor %}\
{% for x, width, path in axis.edges(service) %}\
<svg x="{{ x }}%" width="{{ width }}%" viewBox="0 0 1000 100" preserveAspectRatio="none">\
<line class="goal" x1="0" x2="1000" y1="{{ goal }}" y2="{{ goal }}" vector-effect="non-scaling-stroke"/>\
<path class="edge" d="{{ path }}" vector-effect="non-scaling-stroke"/></svg>{% endfor %}</svg></svg></td></tr>
{% endfor %}
</tbody></table>
{% endmacro %}
{%- macro pod_rows(pods, axis, grid) %}
<table class="picture">{{ head(["Pod", "Route", "Outcome", "Gone after"], ["Gone after"],
  scale(axis.ticks(relative=true) if axis else [], grid)) }}<tbody>
{% for pod in pods %}
{% set outcome = pod.outcome|replace("_", " ") %}
<tr data-find="{{ (pod|place ~ " " ~ pod.route ~ " " ~ outcome ~ " " ~ pod.node)|lower }}"><td>{{ pod|place }}</td>\
<td class="fit soft">{{ pod.route|replace("_", " ") }}</td>\
<td class="fit {{ "bad" if pod.failed else "" }}" title="{{ pod.reason }}\
{% if pod.blocked_by and not pod.moved %}; {{ pod.blocked_by }}: {{ pod.rule }}{% endif %}">{{ outcome }}</td>\
<td class="num" data-is="gone after">{{ "" if pod.waited_seconds is none else pod.waited_seconds|duration }}</td>\
<td class="lane">{{ timeline(pod|place ~ ": " ~ outcome ~ ", refused " ~ pod.refused ~ " times", pod, lanes,
  ["refused"], axis, grid, 7) }}</td></tr>
{% endfor %}
</tbody></table>
{% endmacro %}
{# What is refused is a blocker, and those stand at the top. #}
{%- macro planned_rows(pods) %}
<table class="words planned">{{ head(["Pod", "Route", "To", "Takes", "Why"], ["Takes"]) }}<tbody>
{% for pod in pods %}
<tr data-find="{{ (pod|place ~ " " ~ pod.route ~ " " ~ pod.node)|lower }}"><td>{{ pod|place }}</td>\
<td class="fit {{ "bad" if pod.route == "refuse" else "soft" }}">{{ pod.route }}</td>\
<td class="{{ "bad" if pod.fits is false else "" }}" data-is="to">\
{{ "" if pod.route == "refuse" else pod|goes_to }}</td>\
<td class="num" data-is="takes">\
{{ "" if pod.forecast_seconds is none else pod.forecast_seconds|duration }}</td>\
<td>{% if pod.route == "refuse" %}<code>{{ pod.code }}</code>, see above{% else %}{{ pod.reason }}{% endif %}</td></tr>
{% endfor %}
</tbody></table>
{% endmacro %}
{%- macro pod_group(name, wave, pods, room, grid, open) %}
{% set going = pods|reject("staying")|reject("cleared")|list %}
{% set axis = pods_axis(going) %}
{% set moved, failed = going|selectattr("moved")|list|length, going|selectattr("failed")|list|length %}
{% set refused, left = going|sum("refused"), pods|left %}
{% set blocked = going|selectattr("route", "eq", "refuse")|list|length %}
<details class="node"{% if open %} open{% endif %}><summary><b>{{ name or "no node" }}</b><span class="soft">\
{% if wave %}wave {{ wave }}, {% endif %}\
{% if report.planned %}{{ (going|length - blocked)|counted("pod") }} to move\
{% if blocked %}, {{ blocked }} refused{% endif %}\
{% else %}{{ moved }} of {{ going|length|counted("pod") }} moved{% endif %}\
{% if failed %}, {{ failed }} failed{% endif %}{% if refused %}, {{ refused|counted("refusal") }}{% endif %}\
{% if axis %}, in {{ axis.seconds|duration }}{% endif %}</span></summary>
{% set shown = going|worst(room) %}
{% if going %}{{ planned_rows(shown) if report.planned else pod_rows(shown, axis, grid) }}{% endif %}
{% if going|length > room or left %}<p class="soft">\
{% if going|length > room %}{{ going|length - room }} more pods had no trouble: see report.json. {% endif %}\
{% for code, number in left %}{{ "Left in place: " if loop.first else ", " }}\
{{ number }} {{ code|replace("_", " ") }}{{ "." if loop.last else "" }}{% endfor %}</p>{% endif %}
</details>
{% endmacro %}
{%- macro tiles(totals) %}
{% set waves = "in " ~ totals.waves|counted("wave") if totals.waves else "" %}
{% set foretold = totals.forecast_seconds is not none %}
{% if report.planned %}
{{ tile("Nodes planned", totals.nodes, waves) }}
{{ tile("Pods to move", report|to_move|length|thousands,
  totals.pods_left|thousands ~ " left in place") }}
{{ tile("Cordon to drained", totals|foreseen, "forecast" if foretold else "no forecast") }}
{% else %}
{% set known = "" if totals.services_watched is none else " of " ~ totals.services_watched|thousands %}
{{ tile("Nodes done", totals.nodes_done ~ " of " ~ totals.nodes, waves, "bad" if totals.nodes_failed else "") }}
{{ tile("Pods moved", totals.pods_moved|thousands, (totals.pods_replaced|thousands ~ " replaced first, "
  if totals.pods_replaced else "") ~ (totals.pods_surged|thousands ~ " by surge, "
  if totals.pods_surged else "") ~ totals.pods_left|thousands ~ " left in place") }}
{{ tile("Services dark", totals.services_dark ~ known if report.watched else "-",
  "watched for " ~ totals.watched_seconds|duration ~ (" of " ~ totals.out_seconds|duration if unwatched(report) else "")
  if report.watched else "not watched",
  "bad" if totals.services_dark else "") }}
{% if report.traffic %}
{% set sent, failed = sent_and_failed(report) %}
{{ tile("Requests failed", failed|thousands, "of " ~ sent|thousands, "bad" if failed else "") }}
{% endif %}
{{ tile("Evictions refused", totals.refusals|thousands, held_back(report)) }}
{{ tile("Cordon to drained", totals.moving_seconds|duration,
  "forecast " ~ totals|foreseen if foretold else "") }}
{{ tile("Whole run", totals.seconds|duration,
  "" if totals.requests is none else totals.requests|counted("API request")) }}
{% endif %}
{% endmacro %}
{%- macro to_look_at(groups) %}
<section class="look" aria-labelledby="look"><h2 id="look">To look at</h2><ul>
{% for noun, entries in groups %}
{% for subject, message in entries[:rows_most] %}<li><b>{{ subject }}</b> {{ message }}</li>{% endfor %}
{% endfor %}
</ul>{% for noun, entries in groups %}{{ more(entries, rows_most, noun) }}{% endfor %}</section>
{% endmacro %}
{%- macro to_unblock() %}
<section class="look advice" aria-labelledby="advice"><h2 id="advice">What would unblock it</h2><ul>
{% for one in report.advice %}<li><b>{{ one|against }}</b><ul>{% for step in one.changes %}<li>{{ step.text }}\
{% if step.command %}<code>{{ step.command }}</code>{% endif %}\
{% if step.back %}, and afterwards <code>{{ step.back }}</code>{% endif %}</li>{% endfor %}</ul></li>
{% endfor %}
</ul>{% if without(report) %}<p>{{ without(report) }}</p>{% endif %}\
<p class="soft">An option is for all of them, any other change for the one that it names.</p></section>
{% endmacro %}
{%- macro nodes_over_time(nodes) %}
{% set axis = Axis([report.started], [report.ended]) %}
{% set first = nodes if nodes|length <= 30 else (nodes|selectattr("troubled")|list)[:30] %}
{% set others = nodes|reject("in", first)|list %}
{% set rest = others[:400] %}
{{ legend(phases, nodes|map(attribute="spans")|sum(start=())|map(attribute="phase")|list) }}
{% if first %}{{ node_rows(first, axis, "g0") }}{% endif %}
{% if rest %}
{% call folded(rest|length|counted("node") ~ " without trouble" ~ (" (%d more are in report.json)"|format(
  others|length - rest|length) if others|length > rest|length else "")) %}{{ node_rows(rest, axis, "g1") }}{% endcall %}
{% endif %}
{% endmacro %}
{%- macro services_over_time(services) %}
{% set axis = Axis(report.watched|map(attribute="start")|list, report.watched|map(attribute="end")|list) %}
{# Dark ones have a share of 0: they come first, the longest darkness before others. #}
{% set changed = services|selectattr("changed")|sort(attribute="dark_seconds", reverse=true)|sort(attribute="share") %}
{% set steady = services|rejectattr("changed")|sort(attribute="served", reverse=true) %}
{% set rest = changed[24:150] %}
<p class="soft">Watched for {{ report.totals.watched_seconds|duration }}\
{% if unwatched(report) %}, not watched for {{ unwatched(report) }}{% endif %}\
{% if report.watched|length > 1 %}, in {{ report.watched|length }} stretches that stand side by side; \
one is empty where nothing changed{% endif %}. The dashed line is the number that should be ready.</p>
{% if changed %}{{ service_rows(changed[:24], axis) }}{% endif %}
{% if rest %}
{% call folded(rest|length|counted("more Service") ~ " that never went dark" ~ (" (%d more are in report.json)"|format(
  changed|length - 150) if changed|length > 150 else "")) %}{{ service_rows(rest, axis) }}{% endcall %}
{% endif %}
{% if steady %}
{% call folded(steady|length|counted("more Service") ~ " that kept what it had") %}<p>{% for service in steady[:500] %}\
{{ service|place }}{{ "" if service.served else " (never had one)" }}{{ "" if loop.last else ", " }}{% endfor %}</p>\
{{ more(steady, 500, "Service") }}{% endcall %}
{% endif %}
{% endmacro %}
{%- set nodes = report.nodes|selectattr("touched")|list %}
{%- set good = report.verdict in ("never_dark", "planned") and not report.lost -%}
{%- set verdict_tone = "bad" if report.verdict in ("dark", "stopped") else "good" if good else "" -%}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; script-src '{{ script_hash }}'">
<meta name="generator" content="kubeops.node_maintenance">
<title>{{ (headline(report) ~ " - node maintenance " ~ report.run)|trim }}\
{% if report.cluster.name %}, {{ report.cluster.name }}{% endif %}</title>
<style>{{ style|safe }}</style>
</head>
<body>
<header>
<div class="over">Node maintenance{% if report.run %} · <code>{{ report.run }}</code>{% endif %}</div>
<h1 class="{{ "bad" if report.failed else verdict_tone }}">{{ headline(report) }}</h1>
<p class="lead">{{ subline(report) }}</p>
<dl class="facts">{{ fact("Cluster", report.cluster.words) }}\
{{ fact("Reason", report.reason) }}{{ fact("By", report.by) }}{{ fact("When", when(report)) }}</dl>
</header>
<main>
<dl class="tiles">{{ tiles(report.totals) }}</dl>
{% set looks = to_look(report) %}
{% if looks.values()|select|list %}{{ to_look_at(looks.items()) }}{% endif %}
{% if (report.advice or report.skippable) and report.planned %}{{ to_unblock() }}{% endif %}
{% set waves = report|waves if report.planned else [] %}
{% if waves|length > 1 %}
{% call section("waves", "Waves") %}
<table class="words">{{ head(["Wave", "Nodes", "Why not earlier"]) }}<tbody>
{% for number, names, why in waves[:rows_most] %}
<tr><td class="fit">{{ number }}</td><td>{{ names|join(", ") }}</td><td>{{ why }}</td></tr>
{% endfor %}
</tbody></table>{{ more(waves, rows_most, "wave") }}
{% endcall %}
{% endif %}
{% if report.started is not none and nodes %}
{% call section("nodes", "Nodes over time") %}{{ nodes_over_time(nodes) }}{% endcall %}
{% endif %}
{% if report.services and report.watched %}
{% call section("services", "Ready endpoints per Service") %}{{ services_over_time(report.services) }}{% endcall %}
{% endif %}
{% if report.traffic %}
{% call section("traffic", "Requests per Service") %}
<table class="words">{{ head(["Service", "How", "Sent", "Failed", "No answer for", "Slowest", "Failures"],
  ["Sent", "Failed", "No answer for", "Slowest"]) }}<tbody>
{% for line in report.traffic[:rows_most] %}
<tr><td>{{ line.service }}</td><td class="soft">{{ line|how }}</td>\
<td class="num" data-is="sent">{{ line.sent|thousands }}</td>\
<td class="num {{ "bad" if line.failed else "" }}" data-is="failed">{{ line.failed|thousands }}</td>\
<td class="num soft" data-is="no answer for">{{ line.unanswered_seconds|duration }}</td>\
<td class="num soft" data-is="slowest">{{ line.slowest_seconds|duration }}</td><td>{{ line|ways }}</td></tr>
{% endfor %}
</tbody></table>{{ more(report.traffic, rows_most, "row") }}
{% endcall %}
{% endif %}
{% if report.refusals and not report.planned %}
{% call section("refused", "What was refused, and why") %}
<table class="words">\
{{ head(["By", "Rule", "Refusals", "Held back", "Pods", "What to do"], ["Refusals", "Held back"]) }}<tbody>
{% for refusal in report.refusals[:rows_most] %}
{% set pods = refusal.stuck or refusal.pods %}
<tr><td><b>{{ refusal.blocker or ("the API server" if refusal.count else "the plan") }}</b></td>\
<td>{{ refusal.rule }}</td>\
<td class="num" data-is="refused">{{ refusal.count|thousands if refusal.count else "" }}</td>\
<td class="num" data-is="held back">{{ refusal.longest_wait|duration }}</td>\
<td>{{ pods[:3]|join(", ") }}{% if pods|length > 3 %} and {{ pods|length - 3 }} more{% endif %}</td>\
<td class="{{ "" if refusal.stuck else "soft" }}">{{ "Nothing, it went through later." if not refusal.stuck
  else refusal.remedy or "The pod is still there: see its node below." }}</td></tr>
{% endfor %}
</tbody></table>{{ more(report.refusals, rows_most, "row") }}
{% endcall %}
{% endif %}
{% if report.surges %}
{% call section("surges", "Workloads that were protected") %}
<table class="words">\
{{ head(["Workload", "How", "Newcomers ready after", "Outcome"], ["Newcomers ready after"]) }}<tbody>
{% for surge in report.surges[:rows_most] %}
{% set before, during = surge.replicas_before, surge.replicas_during %}
{% set surged = before is not none and during is not none and before != during %}
<tr><td>{{ surge.kind }} {{ surge|place }}</td>\
<td>{% if surged %}{{ before }} to {{ during }} replicas{% endif %}{{ ", " if surged and surge.budget else "" }}\
{% if surge.budget %}budget {{ surge.budget }}{% endif %}</td><td class="num" data-is="newcomers ready after">\
{{ (surge.ready - surge.raised)|duration if surge.ready and surge.raised else "" }}</td>\
<td>{{ [surge.outcome|replace("_", " "), surge.message]|select|join(": ") }}</td></tr>
{% endfor %}
</tbody></table>{{ more(report.surges, rows_most, "workload") }}
{% endcall %}
{% endif %}
{# Blockers stand at the top. #}
{% set findings = report.findings|rejectattr("severity", "equalto", "blocker")|list %}
{% if findings %}
{% call section("findings", "Findings of the plan") %}
<table class="words">{{ head(["Severity", "Object", "Finding", "What to do"]) }}<tbody>
{% for finding in findings[:rows_most] %}
<tr><td class="fit {{ tones.get(finding.severity, "soft") }}">{{ finding.severity }}</td>\
<td><b>{{ finding.object }}</b><br><code class="soft">{{ finding.code }}</code></td>\
<td>{{ finding.message }}</td><td>{{ finding.remedy }}</td></tr>
{% endfor %}
</tbody></table>{{ more(findings, rows_most, "finding") }}
{% endcall %}
{% endif %}
{% if report.pods %}
{% call section("pods", "Pods by node") %}
{% set groups = report|by_node %}
{% set room = [120, [1200 // groups|length, 5]|max]|min %}
{% if not report.planned %}{{ legend(lanes, lanes) }}{% endif %}<div id="filter"></div>
{% for name, wave, pods in groups %}
{{ pod_group(name, wave, pods, room, "pods-" ~ loop.index0, groups|length <= 2) }}
{% endfor %}
{% endcall %}
{% endif %}
{% if report.given_back %}
{% call section("given", "Given back, and kept") %}
{% set kept = report.given_back|selectattr("kept")|list|length %}
<p class="soft">{{ (report.given_back|length - kept)|counted("object") }} given back\
{% if kept %}, {{ kept }} kept as somebody else had changed them{% endif %}.</p>
<table class="words log"><tbody>
{% for change in (report.given_back|sort(attribute="kept", reverse=true))[:rows_most] %}
<tr><td class="fit soft">{{ "" if change.at is none else change.at|clock }}</td>\
<td class="fit {{ "warn" if change.kept else "soft" }}">{{ "kept" if change.kept else "given back" }}</td>\
<td><b>{{ change.object }}</b></td><td>{{ change.message }}</td></tr>
{% endfor %}
</tbody></table>{{ more(report.given_back, rows_most, "change") }}
{% endcall %}
{% endif %}
{% if report.actions %}
{% call section("actions", "What would be changed" if report.check else "Every change") %}
{% set most = 1000 if report.check else rows_most %}
<details{% if report.check %} open{% endif %}><summary>{{ report.actions|length|counted("change") }}</summary><ul>
{% for action in report.actions[:most] %}<li>{{ action }}</li>
{% endfor %}
</ul>{{ more(report.actions, most, "change") }}</details>
{% endcall %}
{% endif %}
</main>
<footer>All times are UTC. The same as data: <code>report.json</code>, version {{ version }}.</footer>
<script>{{ script|safe }}</script>
</body>
</html>
"""


# The style of ``report.html`` and its one script.


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

# Only a convenience: without it the page holds the same, and the browser's own
# search opens details.
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
