# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All configurations to be judged: whole ones, mutants of them, random ones and handmade traps.

The same call gives the same configurations on every machine. Texts hold ``KUBECONFIG`` and ``PORT`` where a
real descheduler gets the path of its credentials and a port that is free.
"""

from __future__ import annotations

import random
import typing as t
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.arguments_yaml import read
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, schema_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Fault, Plugin, Schema

from . import koord_traps, sigs_traps
from .mutants import Path, changed, changes, shown
from .samples import ADDRESS, Maker, Raw
from .traps import traps

Flavor = t.Literal["koordinator", "sigs"]

_DUMPER: t.Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

SEED = 20260000
ENDS = ("refuses", "crashes")

UNSEEN: tuple[Path, ...] = (("clientConnection",), ("clientConnection", "kubeconfig"))
"""Without it the descheduler wants its pod's own account, which no test has."""

ADDRESSES: tuple[Path, ...] = (("healthzBindAddress",), ("metricsBindAddress",))
"""Without one it takes its usual port, which some other descheduler of this machine may have."""


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration: a name that says what was done to which place, and its text."""

    name: str
    text: str

    @property
    def kind(self) -> str:
        """What was done, without the place."""
        return self.name.partition(": ")[2]


def judged(text: str, schema: Schema) -> tuple[Fault, ...]:
    """What the collection says of the text."""
    config, said = read(text.replace("PORT", "10251"), schema)
    return said if config is None and said else (*said, *check(config, schema))


def ends(faults: tuple[Fault, ...]) -> bool:
    """Whether the collection says that the descheduler ends with it."""
    return any(fault.real in ENDS for fault in faults)


def cases(flavor: Flavor, version: str = "") -> tuple[Case, ...]:
    """Every configuration for a version, each text once."""
    schema = schema_of(flavor, version)
    found: dict[str, Case] = {}
    for case in (*handmade(flavor), *whole(schema), *_mutants(schema), *_random(schema)):
        found.setdefault(case.text, case)
    return tuple(found.values())


def handmade(flavor: Flavor) -> tuple[Case, ...]:
    """The traps."""
    return tuple(Case(*named) for named in traps(flavor))


def chosen(everything: tuple[Case, ...], count: int) -> tuple[Case, ...]:
    """So many of them, the same ones every time: all handmade ones, and of each kind of change its share."""
    dice = random.Random(SEED)
    kept = [case for case in everything if case.name.startswith("trap")]
    rest: dict[str, list[Case]] = {}
    for case in everything:
        if case not in kept:
            rest.setdefault(case.kind, []).append(case)
    for group in rest.values():
        dice.shuffle(group)
    while len(kept) < count and rest:
        for kind in [*rest]:
            kept.append(rest[kind].pop())
            if not rest[kind]:
                del rest[kind]
    return tuple(kept[:count])


def text_of(document: Raw) -> str:
    """The document as YAML."""
    made: str = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=200)
    return made


def root_of(schema: Schema) -> Raw:
    """A document with every key of its own, and few plugins."""
    made: Raw = yaml.safe_load(sigs_traps.ROOT if schema.name == "sigs" else koord_traps.ROOT)
    return made


def short(schema: Schema) -> Raw:
    """The shortest document with which the real one can be asked."""
    made: Raw = {"apiVersion": schema.api_version, "kind": schema.kind}
    if schema.name != "sigs":
        made["clientConnection"] = {"kubeconfig": "KUBECONFIG"}
        made |= dict.fromkeys(("healthzBindAddress", "metricsBindAddress"), ADDRESS)
        made["deschedulingInterval"] = "120s"
    return made


def with_plugin(schema: Schema, name: str, args: t.Any, *, enabled: bool = True) -> Raw:
    """A document in which one plugin has arguments, and stands where it works."""
    plugin = schema.plugins[name]
    profile: Raw = {"name": "koord-descheduler", "pluginConfig": [{"name": name, "args": args}]}
    if enabled:
        profile["plugins"] = _places(schema, name, plugin)
    return {**short(schema), "profiles": [profile]}


def _places(schema: Schema, name: str, plugin: Plugin) -> Raw:
    places: Raw = {}
    for point in plugin.points:
        places[point] = {"enabled": [name if schema.plugin_type == "string" else {"name": name}]}
        if schema.points[point] and schema.plugin_type == "object":
            places[point]["disabled"] = [{"name": "*"}]
    return places


def _plugins(schema: Schema) -> Iterator[tuple[str, Plugin]]:
    return ((name, plugin) for name, plugin in schema.plugins.items() if schema.knows(plugin.since))


def right_args(schema: Schema, name: str, turn: int, share: float = 1.0) -> Raw:
    """Right arguments; where right values exclude each other for a reason the schema cannot say, one is gone."""
    maker = Maker(schema, turn, random.Random(f"{SEED} {name} {turn} {share}"), share)
    made: Raw = maker.value(schema.plugins[name].args)
    if isinstance(use := made.get("metricsUtilization"), dict):
        use.clear()
    if name == "DefaultEvictor" and "podProtections" in made:
        for key in [key for key in made if key.startswith(("evict", "ignore"))]:
            made[key] = False
    return made


def whole(schema: Schema) -> Iterator[Case]:
    """Each plugin with all its arguments, with none, and not enabled."""
    yield Case("document: shortest", text_of(short(schema)))
    yield Case("document: whole", text_of(root_of(schema)))
    for name, _plugin in _plugins(schema):
        for turn in (0, 1):
            document = with_plugin(schema, name, right_args(schema, name, turn))
            yield Case(f"{name}: whole {turn}", text_of(document))
        yield Case(f"{name}: without arguments", text_of(with_plugin(schema, name, {})))
        yield Case(
            f"{name}: not enabled", text_of(with_plugin(schema, name, right_args(schema, name, 0), enabled=False))
        )


def askable(path: Path, value: t.Any) -> bool:
    """Whether a document with the value at this path can be given to a descheduler here."""
    return bool(path) and path not in UNSEEN and (path not in ADDRESSES or isinstance(value, (str, int, list)))


def _mutants(schema: Schema) -> Iterator[Case]:
    root = root_of(schema)
    for what, path, value in changes(schema.root, root):
        if askable(path, value):
            yield Case(f"document {shown(path)}: {what}", text_of(changed(root, path, value)))
    for name, plugin in _plugins(schema):
        for turn in (0, 1):
            document = with_plugin(schema, name, right_args(schema, name, turn))
            place: Path = ("profiles", 0, "pluginConfig", 0, "args")
            for what, path, value in changes(plugin.args, right_args(schema, name, turn)):
                made = changed(document, (*place, *path), value)
                yield Case(f"{name} {turn} {shown(path)}: {what}", text_of(made))
                if turn == 0:
                    idle = with_plugin(schema, name, made["profiles"][0]["pluginConfig"][0]["args"], enabled=False)
                    yield Case(f"{name} {shown(path)}: not enabled, {what}", text_of(idle))


def _random(schema: Schema) -> Iterator[Case]:
    """Several plugins with some of their arguments, in one profile or two."""
    names = [name for name, _plugin in _plugins(schema)]
    for number in range(60):
        dice = random.Random(f"{SEED} {schema.name} {number}")
        document = short(schema)
        document["profiles"] = []
        for index in range(dice.choice((1, 1, 1, 2))):
            profile: Raw = {"name": f"profile-{index}", "plugins": {}, "pluginConfig": []}
            for name in dice.sample(names, dice.randint(1, 4)):
                args = Maker(schema, dice.randrange(4), dice, 0.4).value(schema.plugins[name].args)
                profile["pluginConfig"].append({"name": name, "args": args})
                for point, place in _places(schema, name, schema.plugins[name]).items():
                    there = profile["plugins"].setdefault(point, {})
                    for key, more in place.items():
                        there.setdefault(key, []).extend(more)
            document["profiles"].append(profile)
        yield Case(f"random {number}: random", text_of(document))
