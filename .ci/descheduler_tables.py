# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the tables of descheduler settings in docs/ from the schema data;
a unit test fails if they are outdated.

In the pages of settings, everything before the mark is written by hand and kept.

PYTHONPATH=.build/collections python .ci/descheduler_tables.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import (
    schema_of,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import (
    LABEL_SELECTOR,
    Field,
    Plugin,
    Schema,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler import differences
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.rules import RULES

RST = Path(__file__).parents[1] / "docs" / "docsite" / "rst"
LABEL = "ansible_collections.kubeops.node_maintenance.docsite."
HEAD = """..
  Copyright: Contributors to the kubeops.node_maintenance collection
  GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
  SPDX-License-Identifier: GPL-3.0-or-later

.. Written by .ci/descheduler_tables.py from the schema data; edit those.
"""
MARK = ".. From here on written by .ci/descheduler_tables.py from the schema data; edit those.\n"
REAL = {
    "drops": "starts without it",
    "starts": "starts, without the intended effect",
}
DOES = {
    "MigrationController": (
        "Moves pods by PodMigrationJobs, with limits per node, namespace and workload."
    ),
    "LowNodeLoad": (
        "Moves pods from nodes of high to nodes of low actual usage; "
        "needs NodeMetrics from koordlet."
    ),
    "CustomPriority": "Moves pods from nodes of lower priority to nodes of higher priority.",
    "HighNodeUtilization": "Drains nodes of low utilization so that they can be scaled down.",
    "LowNodeUtilization": (
        "Moves pods from nodes above targetThresholds to nodes below thresholds, by requests."
    ),
    "PodLifeTime": "Evicts pods older than a limit.",
    "RemoveDuplicates": "Spreads the pods of each owner over the nodes.",
    "RemoveFailedPods": "Removes pods in phase Failed.",
    "RemovePodsHavingTooManyRestarts": "Evicts pods whose containers have restarted too often.",
    "RemovePodsViolatingInterPodAntiAffinity": (
        "Evicts pods that violate another pod's anti-affinity."
    ),
    "RemovePodsViolatingNodeAffinity": "Evicts pods whose node no longer satisfies their affinity.",
    "RemovePodsViolatingNodeTaints": (
        "Evicts pods that do not tolerate a NoSchedule taint of their node."
    ),
    "RemovePodsViolatingTopologySpreadConstraint": (
        "Evicts pods until topology spread constraints are satisfied."
    ),
}
EVICTOR = {
    "koordinator": "Evicts through the Eviction API, without limits per workload.",
    "sigs": "Decides which pods may be evicted; always enabled.",
}
INTRO = {
    "koordinator": """What ``DeschedulerConfiguration`` may contain, from the source of v1.7.0. Additions of v1.8.0 are
marked; with v1.8.0 DefaultEvictor and the other plugins of sigs.k8s.io take what the page on the sigs descheduler
says. The document itself, MigrationController, LowNodeLoad and CustomPriority are read strictly: the descheduler exits
on an unknown key. In all other plugins an unknown key is silently dropped. The flavors ``koordinator`` and ``ack``
share this page.""",
    "sigs": """What ``DeschedulerPolicy`` may contain, from the source of v0.36.0. An unknown key of the policy is
silently dropped; on an unknown argument of a plugin the descheduler exits. Every enabled plugin except
DefaultEvictor needs an entry in ``pluginConfig``.""",
}


def table(widths: str, head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """A list-table."""
    yield from (".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", "")
    for row in (head, *rows):
        for index, cell in enumerate(row):
            yield f"   {'*' if index == 0 else ' '} - {cell}".rstrip()
    yield ""


def kind(field: Field) -> str:
    """The type in words."""
    if field.fields is LABEL_SELECTOR.fields:
        return "label selector"
    inner = field.item.type if field.item else ""
    words = {
        "selector_text": "selector text",
        "int_or_percent": "int or percent",
        "float_or_string": "number",
    }
    if field.type in ("list", "map") and inner:
        return f"{field.type} of {words.get(inner, inner)}"
    return words.get(field.type, field.type)


def limits(field: Field) -> str:
    """The limits of the value."""
    inner = field.item or field
    parts = ["required"] if field.required else []
    if words := field.enum or inner.enum or field.keys:
        parts.append("one of " + ", ".join(f"``{word}``" for word in words if word))
    source = field if field.type not in ("list", "map") else inner
    if source.minimum is not None and source.minimum > -(2**31):
        parts.append(f"{source.minimum:g} or more")
    if source.above is not None:
        parts.append(f"above {source.above:g}")
    if source.maximum is not None and source.maximum < 2**31 - 1:
        parts.append(f"at most {source.maximum:.0f}")
    parts += [f"not {' and '.join(group)} together" for group in field.exclusive]
    if field.forbidden:
        parts.append("not allowed")
    return "; ".join(parts)


def walk(fields: Mapping[str, Field], stem: str = "") -> Iterator[tuple[str, Field]]:
    """Every key with its path; label selectors and what every profile repeats are not opened."""
    for name, field in fields.items():
        path = f"{stem}{name}"
        yield path, field
        if field.fields is not LABEL_SELECTOR.fields:
            yield from walk(field.fields, f"{path}.")
            if field.item and field.item.fields is not LABEL_SELECTOR.fields:
                yield from walk(
                    field.item.fields, f"{path}{'[]' if field.type == 'list' else '.*'}."
                )


def rows(fields: Mapping[str, Field]) -> Iterator[tuple[str, ...]]:
    """One row for each key."""
    for path, field in walk(fields):
        about = [limits(field), "" if field.note == LABEL_SELECTOR.note else field.note]
        about += [f"since {field.since}"] if field.since else []
        about += [f"deprecated, use {field.deprecated}"] if field.deprecated else []
        default = f"``{field.default}``" if field.default else ""
        yield f"``{path}``", kind(field), default, "; ".join(part for part in about if part)


def lenient(schema: Schema) -> Iterator[tuple[str, ...]]:
    """What we reject although the descheduler starts with it, and why."""
    for one in differences.of(schema):
        yield one.said, " ".join(f"``{rule}``" for rule in one.rules), REAL[one.real], one.reason


def points(name: str, plugin: Plugin, schema: Schema) -> str:
    """What the plugin does, its extension points, since when it exists,
    and how its arguments are read.
    """
    since = f" Since {plugin.since}." if plugin.since else ""
    strict = "strictly" if plugin.strict else "leniently"
    does = EVICTOR[schema.name] if name == "DefaultEvictor" else DOES[name]
    return f"{does} At {' and '.join(plugin.points)}; read {strict}.{since}"


def page(schema: Schema) -> str:
    """The whole page of a flavor: the present guide, and the tables."""
    guide, _mark, _old = (RST / f"descheduler_{schema.name}.rst").read_text().partition(MARK)
    head = ("key", "type", "default", "about")
    lines = [
        guide + MARK,
        "All settings",
        "------------",
        "",
        INTRO[schema.name],
        "",
        "The document",
        "~~~~~~~~~~~~",
        "",
    ]
    lines += table("34 14 14 38", head, rows(schema.root.fields))
    for name, plugin in schema.plugins.items():
        lines += [name, "~" * len(name), "", points(name, plugin, schema), ""]
        lines += table("34 14 14 38", head, rows(plugin.args.fields))
    strictness = "Where we are stricter than the descheduler"
    lines += [strictness, "-" * len(strictness), ""]
    lines += [STRICTER, ""]
    lines += table(
        "32 18 18 32",
        ("configuration", "rule", "the descheduler", "why it is an error here"),
        lenient(schema),
    )
    unseen = "What only the cluster knows"
    lines += [
        unseen,
        "-" * len(unseen),
        "",
        (
            "These cannot be checked from a configuration alone; the descheduler may accept or "
            "reject a wrong value."
        ),
        "",
    ]
    lines += table("40 60", ("setting", "what it takes"), iter(differences.UNSEEN))
    return "\n".join(lines).rstrip() + "\n"


STRICTER = """The descheduler starts with each of these, or seems to. They are errors here because the setting has no
effect. The tests give thousands of configurations to the real binaries and to this collection: apart from this table,
both accept and reject the same ones."""

RULES_INTRO = """A finding has a ``path``, one of these rules, a message and a remedy. ``real`` says what the
descheduler itself would do: it ``refuses`` or ``crashes`` (it exits in both cases), it ``drops`` the setting and
starts without it, or it ``starts`` without the intended effect. Errors stop the call, warnings are only reported."""


def rules() -> str:
    """The page of the rules."""
    title = "What can be wrong with a descheduler's configuration"
    lines = [
        HEAD,
        f".. _{LABEL}descheduler_rules:",
        "",
        title,
        "=" * len(title),
        "",
        RULES_INTRO,
        "",
    ]
    lines += table(
        "24 76", ("rule", "meaning"), ((f"``{rule}``", about) for rule, about in RULES.items())
    )
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    schemas = (schema_of("koordinator"), schema_of("sigs"))
    return {
        **{f"descheduler_{schema.name}.rst": page(schema) for schema in schemas},
        "descheduler_rules.rst": rules(),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (RST / name).write_text(text)
