# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configurations written by hand: what only goes wrong between two values, in the text itself, or in a name."""

from __future__ import annotations

from collections.abc import Iterator

from . import koord_traps, sigs_traps

TEXTS = {
    "a key twice": "dryRun: true\ndryRun: true\n",
    "a text in the place of the document": "hello\n",
    "a second document": "---\nx: 1\n",
    "an end of the document": "...\n",
    "a comment": "# nothing\n",
    "a null key": "~: 1\n",
    "a number as a key": "1: x\n",
    "a custom tag": "maxNoOfPodsToEvictTotal: !mine 5\n",
    "a tag for a number": 'maxNoOfPodsToEvictTotal: !!int "5"\n',
    "a tag for a text": "maxNoOfPodsToEvictTotal: !!str 5\n",
    "an alias": "maxNoOfPodsToEvictTotal: &n 5\nmaxNoOfPodsToEvictPerNode: *n\n",
    "an alias of nothing": "maxNoOfPodsToEvictTotal: *n\n",
    "a tab": "\tmaxNoOfPodsToEvictTotal: 5\n",
    "windows line ends": "maxNoOfPodsToEvictTotal: 5\r\n",
    "a merge": "<<: {maxNoOfPodsToEvictTotal: 5}\n",
    "a merge of a list": "<<: [{maxNoOfPodsToEvictTotal: 5}, {maxNoOfPodsToEvictPerNode: 5}]\n",
    "a merge of what is there": "maxNoOfPodsToEvictTotal: 5\n<<: {maxNoOfPodsToEvictTotal: 6}\n",
}
"""Appended to a short document."""

NUMBERS = (
    *("010", "0x10", "0o17", "0b11", "1_000", "+5", "1e1", "5.0", ".5", ".inf", "-.inf", ".nan", "08", "1:30"),
    *("2026-01-01", "~", "null", "Null", "0x1_0", "9223372036854775808", "18446744073709551615", "-0", "5 ", "'5'"),
)
"""As the value of a number that is not negative."""

WORDS = ("y", "Y", "n", "yes", "Yes", "on", "OFF", "true", "True", "TRUE", "tRUE", "'true'", "1", "~", "t", "=")
"""As the value of something that is true or false."""

STRAY = ("LowNodeLoad", "MigrationController", "DefaultEvictor", "RemoveDuplicates", "PodLifeTime", "RemoveFailedPods")
LOOK_ALIKES = (
    *("RemoveFailedPod", "MirgrationController", "removefailedpods", "RemovePodsViolatingNodeTaint", "CustomPriority"),
    *("RemovePodsViolatingTopologySpreadConstraints", "PodLifetime", "LowNodeLoadArgs", "SoftEviction"),
)


def traps(flavor: str) -> Iterator[tuple[str, str]]:
    """Their names and texts."""
    sigs = flavor == "sigs"
    ours = sigs_traps if sigs else koord_traps
    head = ours.HEAD
    for name, text in {**TEXTS, **ours.TEXTS}.items():
        first = {line.partition(":")[0] for line in text.splitlines() if line[:1].isalpha()}
        kept = [line for line in head.splitlines(keepends=True) if line.partition(":")[0] not in first]
        yield f"trap: {name}", "".join(kept) + text
    for word in NUMBERS:
        yield f"trap: a number as {word!r}", f"{head}maxNoOfPodsToEvictTotal: {word}\n"
    switch = "evictionFailureEventNotification" if sigs else "dryRun"
    for word in WORDS:
        yield f"trap: true or false as {word!r}", f"{head}{switch}: {word}\n"
    yield from _documents(head)
    yield from _names(head, sigs=sigs)
    for plugin, lists in ours.ARGS.items():
        for args in lists:
            yield f"trap: {plugin} with {args!r}", head + _profile(plugin, args, sigs=sigs)


def _documents(head: str) -> Iterator[tuple[str, str]]:
    yield "trap: no text", ""
    yield "trap: a comment alone", "# nothing\n"
    yield "trap: a list", "- a\n"
    yield "trap: a mark before it", f"---\n{head}"
    yield "trap: no version", head.replace("apiVersion: descheduler/v1alpha2\n", "")
    yield "trap: no kind", "\n".join(line for line in head.splitlines() if not line.startswith("kind")) + "\n"
    for version in ("descheduler/v1alpha1", "Descheduler/v1alpha2", "v1", "descheduler/v1alpha2/x", "''", "2"):
        yield f"trap: version {version}", head.replace("descheduler/v1alpha2", version)
    kinds = ("deschedulerPolicy", "DeschedulerPolicy", "DeschedulerConfiguration", "MigrationControllerArgs", "''", "5")
    for kind in kinds:
        lines = (f"kind: {kind}" if line.startswith("kind") else line for line in head.splitlines())
        yield f"trap: kind {kind}", "\n".join(lines) + "\n"


def _names(head: str, *, sigs: bool) -> Iterator[tuple[str, str]]:
    """Names at places: right ones, wrong ones, two evictors, none."""
    points = ("deschedule", "balance", "filter", "preevictionfilter" if sigs else "evict")
    for point in points:
        for name in (*STRAY, *LOOK_ALIKES):
            yield f"trap: {name} at {point}", head + _enabled({point: ([name], False)}, sigs=sigs)
    if sigs:
        return
    ways: tuple[tuple[list[str], bool], ...] = (
        ([], False),
        ([], True),
        (["MigrationController"], True),
        (["DefaultEvictor"], True),
        (["DefaultEvictor"], False),
        (["DefaultEvictor", "MigrationController"], True),
        (["MigrationController", "MigrationController"], False),
    )
    for number, evict in enumerate(ways):
        for other, keep in enumerate(ways):
            yield f"trap: evictors {number} {other}", head + _enabled({"evict": evict, "filter": keep}, sigs=False)


def _enabled(places: dict[str, tuple[list[str], bool]], *, sigs: bool) -> str:
    lines = ["profiles:", "- name: a", "  plugins:"]
    for point, (names, cleared) in places.items():
        shown = ", ".join(name if sigs else f"{{name: {name}}}" for name in names)
        lines += [f"    {point}:", f"      enabled: [{shown}]"]
        lines += ['      disabled: [{name: "*"}]'] if cleared else []
    lines += ["  pluginConfig:", *(f"  - name: {name}" for name in _known(places, sigs=sigs))]
    lines += [] if _known(places, sigs=sigs) else ["  - name: DefaultEvictor"]
    return "\n".join(lines) + "\n"


def _known(places: dict[str, tuple[list[str], bool]], *, sigs: bool) -> list[str]:
    return [name for names, _cleared in places.values() for name in names] if sigs else []


_AT = {
    "balance": ("Utilization", "LowNodeLoad", "Duplicates", "TopologySpreadConstraint"),
    "filter": ("DefaultEvictor", "MigrationController"),
}


def _profile(plugin: str, args: str, *, sigs: bool) -> str:
    point = next((point for point, ends in _AT.items() if plugin.endswith(ends)), "deschedule")
    entry = plugin if sigs else f"{{name: {plugin}}}"
    lines = ["profiles:", "- name: a", "  plugins:"]
    for place in ("filter", "evict") if point == "filter" and not sigs else (point,):
        lines += [f"    {place}:", f"      enabled: [{entry}]"]
        lines += ['      disabled: [{name: "*"}]'] if point == "filter" and not sigs else []
    lines += ["  pluginConfig:", f"  - name: {plugin}", "    args:"]
    return "\n".join([*lines, *(f"      {line}" for line in args.splitlines())]) + "\n"
