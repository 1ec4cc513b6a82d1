# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Upstream's tests, run from the modules that the lab is built of, with a tap in the functions that they test.

A package is copied beside its module, the function renamed, and one with its name and a note of question and answer put
in its place. So the tables need not be parsed, and the answers are those of the code, not of the tables.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lab_binaries

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMPONENTS = ROOT / "roles" / "lab" / "files" / "components"
Record = dict[str, t.Any]
"""One question and its answer; `kind` says whose, `test` which function asked."""


@dataclass(frozen=True, slots=True)
class Tap:
    """In a package, each function that matches `head` gets the prefix `untapped`, and `wrapper` stands in its place.

    Words of that file in capitals are what `head` captured as groups of that name; NAME is the function's. Without a
    head the package is only copied, because its tests call a tapped one, or one in its folders is. `uses` are packages,
    with those in their folders, of which it imports the copies.
    """

    package: str
    head: str = ""
    wrapper: str = ""
    uses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The taps in the modules of one component of the lab, and what of the `go` folder they call.

    `least` is how many records there are of each kind at the least, `version` stands in each, `run` chooses tests.
    """

    component: str
    taps: Sequence[Tap]
    least: Mapping[str, int]
    calls: Sequence[str] = ("tap.go",)
    run: str = "."
    version: str = ""


def records(source: Source, folder: Path) -> list[Record]:
    """What upstream's tests ask and are answered, each once."""
    module = folder / source.component
    tap = module / "tap.jsonl"
    go, why = lab_binaries.toolchain([source.component], COMPONENTS, lab_cache(), "")
    assert go, why
    _prepare(source, module, go)
    command = [go, "test", "-mod=mod", "-trimpath", "-vet=off", "-count=1", "-run", source.run, "./..."]
    told = {**lab_binaries.go_environment(), "GOFLAGS": "", "TAP": str(tap)}
    done = subprocess.run(command, cwd=module, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    lines = dict.fromkeys(tap.read_text(encoding="utf-8").splitlines())
    return [{**json.loads(line, object_pairs_hook=_given), "version": source.version} for line in lines]


def _given(pairs: list[tuple[str, t.Any]]) -> Record:
    """Without what is null, as an API server stores it."""
    return {key: value for key, value in pairs if value is not None}


def lab_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubeops-lab"


def _prepare(source: Source, module: Path, go: str) -> None:
    shutil.rmtree(module, ignore_errors=True)
    (module / "tap").mkdir(parents=True)
    given = (COMPONENTS / source.component / "go.mod").read_text(encoding="utf-8")
    untooled = re.sub(r"^tool (\(.*?^\)|.*?$)", "", given, flags=re.MULTILINE | re.DOTALL)
    (module / "go.mod").write_text(re.sub(r"^module .*", "module upstream", untooled), encoding="utf-8")
    shutil.copyfile(COMPONENTS / source.component / "go.sum", module / "go.sum")
    for name in source.calls:
        shutil.copyfile(HERE / "go" / name, module / "tap" / name)
    for tap in source.taps:
        copy = module / tap.package
        if not copy.exists():
            _copy(_found(source, tap.package, go), copy, tap.uses)
        if tap.head:
            _tap(tap, copy)


def _copy(package: Path, copy: Path, uses: Sequence[str]) -> None:
    """The package with those in its folders."""
    shutil.copytree(package, copy, copy_function=shutil.copyfile)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for used in uses:
        imported = re.compile(rf'"({re.escape(used)})(?=["/])')
        for path in copy.rglob("*.go"):
            path.write_text(imported.sub(r'"upstream/\1', path.read_text(encoding="utf-8")), encoding="utf-8")


def _found(source: Source, package: str, go: str) -> Path:
    """The folder of a package in the module cache."""
    return Path(lab_binaries.ask_go(go, COMPONENTS / source.component, ["list", "-f", "{{.Dir}}", package]))


def _tap(tap: Tap, copy: Path) -> None:
    imports, _, wrapper = (HERE / "go" / tap.wrapper).read_text(encoding="utf-8").partition("// For each function:\n")
    made = [imports]
    files = {p: p.read_text(encoding="utf-8") for p in sorted(copy.glob("*.go")) if not p.name.endswith("_test.go")}
    lister = "pl.sharedLister" if any("\tsharedLister " in text for text in files.values()) else "nil"
    for path, text in files.items():
        for found in re.finditer(tap.head, text, re.MULTILINE):
            words = {"PACKAGE": copy.name, "LISTER": lister}
            words |= found.groupdict()
            made[0], *more = (_filled(one, words) for one in (made[0], wrapper))
            made += more
            renamed = found[0].replace(f"{words['NAME']}(", f"untapped{words['NAME']}(")
            path.write_text(path.read_text(encoding="utf-8").replace(found[0], renamed), encoding="utf-8")
    assert made[1:], f"{tap.package} has nothing that matches {tap.head}"
    (copy / f"tapped_{tap.wrapper}").write_text("\n".join(made), encoding="utf-8")


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
