# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many random mutants of rules and loops the unit tests notice: `make mutants SAMPLE=20 SEED=7 PACKAGE=drain`.

cosmic-ray finds the places, applies one mutant at a time and runs pytest on it. From here come the sample, a function
of the seed, and the choice of the tests: those that run the mutated line, known from one run of all under coverage.
Mutants are only ever made in the copies of the checkout named on the command line; one is worked on in each of them.
The exit code is 1 where fewer than nine of ten mutants of a kind are noticed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import hashlib
import os
import random
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import Queue, get_context
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult
from coverage import CoverageData

UTILS = Path("plugins/module_utils")
KINDS = ("rules", "run")
"""Rules and loops; what Ansible passes (`arguments`) and `kube` are not mutated."""
PART_OF = runpy.run_path("docs/packages.py")["part_of"]
"""The package and the kind of a file below `UTILS`."""
ENOUGH = 0.9

TURNED = ("Eq_NotEq", "NotEq_Eq", "Lt_GtE", "GtE_Lt", "Gt_LtE", "LtE_Gt", "Is_IsNot", "IsNot_Is")
WORDS = ("AndWithOr", "OrWithAnd", "TrueWithFalse", "FalseWithTrue", "BreakWithContinue", "ContinueWithBreak")
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{turn}" for turn in TURNED),
    *(f"core/Replace{change}" for change in WORDS),
    *("core/NumberReplacer", "core/AddNot", "core/ReplaceUnaryOperator_Delete_Not", "core/ZeroIterationForLoop"),
)
"""Those that change what the code decides; others of the tool change annotations (`|`) or break every call.

A bound is moved by the number beside it; `<` for `<=` between two times is a change that nobody can see.
"""

HANGS = 60
"""Seconds after which one test is taken to hang: it lasts some 0.1 s, on a busy machine some 1 s."""

LIMIT = 600
"""Seconds after which a mutant is given up; it does not count as noticed, as the machine may have been the reason."""

MOST = 1000
"""So many tests are run on one mutant: those of its package first, and of each part those that run the least code."""

UNCONCERNED = ("ansible", "playbooks", "kube", "chaos", "lab", "witness")
"""Folders of tests/unit that test other code; those of Ansible start playbooks, into which coverage does not see."""

SETTING = re.compile(r"_?[A-Z][A-Z0-9_]* = ")
"""A constant of a module: a time, a bound, a row of steps."""

Reach = Mapping[str, Mapping[int, frozenset[str]]]
"""By file and line: the tests that run it, and "" where it runs before them. Line 0 stands for all lines."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A place, what is done there, and the tests that must notice."""

    spec: MutationSpec
    tests: tuple[str, ...]

    @property
    def where(self) -> str:
        """As state/run_locks.py:17."""
        return f"{self.spec.module_path.relative_to(UTILS)}:{self.spec.start_pos[0]}"


def arguments() -> argparse.Namespace:
    """What the Makefile passes on; what is empty there has its default here."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=100, help="so many mutants of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--package", default="", help="a folder or a file below plugins/module_utils: drain")
    parser.add_argument("copies", type=Path, nargs="+", help="copies of the checkout, one for each process")
    return parser.parse_args([word for word in sys.argv[1:] if not (word.startswith("--") and word.endswith("="))])


def main() -> int:
    """Draws, tries and tells; returns the exit code."""
    told = arguments()
    copies = [path.resolve() for path in told.copies]
    enter(copies[0])
    reach = reached(copies)
    drawn = {kind: draw(kind, told.package.strip("/"), told.sample, told.seed, reach) for kind in KINDS}
    mutants = [mutant for some in drawn.values() for mutant in some]
    if not mutants:
        print(f"mutants: nothing to mutate in {told.package}")
        return 1
    homes = get_context("spawn").Queue()
    for copy in copies:
        homes.put(copy)
    results: dict[str, list[tuple[Mutant, WorkResult]]] = collections.defaultdict(list)
    with ProcessPoolExecutor(len(copies), get_context("spawn"), enter_next, (homes,)) as pool:
        for number, (mutant, result) in enumerate(zip(mutants, pool.map(tried, mutants), strict=True), 1):
            word = "noticed" if noticed(result) else "NOT NOTICED"
            print(f"{number:4}/{len(mutants)} {mutant.where} {operator(mutant)}: {word}", flush=True)
            results[kind_of(mutant.spec.module_path)].append((mutant, result))
    enough = [verdict(kind, some, told.seed) for kind, some in results.items()]
    return 0 if all(enough) else 1


def enter(copy: Path) -> None:
    """Makes that copy of the checkout the one that this process works on and its tests import."""
    os.chdir(copy)
    os.environ["PYTHONPATH"] = os.environ["ANSIBLE_COLLECTIONS_PATH"] = str(copy.parents[2])


def enter_next(homes: Queue[Path]) -> None:
    """Takes a copy that no other process has."""
    enter(homes.get())


def reached(copies: list[Path]) -> Reach:
    """The tests that run each line, from a run of all of them; kept until a file of the collection changes."""
    digest = hashlib.sha256()
    for path in sorted(path for top in ("plugins", "tests/unit") for path in Path(top).rglob("*.py")):
        digest.update(str(path).encode() + path.read_bytes())
    file = copies[0].parents[2].parent / f"coverage-{digest.hexdigest()[:16]}"
    if not file.exists():
        for old in file.parent.glob("coverage-*"):
            old.unlink()
        print("mutants: one run of the unit tests, to know which tests run which line ...", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", f"--numprocesses={len(copies)}"]
        command += ["--cov-config=pyproject.toml", "--cov-context=test", "--cov-report="]
        command += [f"--cov={UTILS}"]
        command += ["tests/unit", *(f"--ignore=tests/unit/{name}" for name in UNCONCERNED)]
        unfinished = file.with_suffix(".unfinished")
        environment = {**os.environ, "COVERAGE_FILE": str(unfinished), "COVERAGE_CORE": "ctrace"}
        if subprocess.run(command, env=environment, check=False).returncode:
            sys.exit("mutants: the unit tests fail without any mutant")
        unfinished.rename(file)
    data = CoverageData(str(file))
    data.read()
    reach: dict[str, dict[int, frozenset[str]]] = {}
    for name in data.measured_files():
        lines = {
            line: frozenset(context.rpartition("|")[0] for context in contexts)
            for line, contexts in data.contexts_by_lineno(name).items()
        }
        reach[str(Path(name).relative_to(Path.cwd()))] = {0: frozenset().union(*lines.values()), **lines}
    return reach


def kind_of(path: Path) -> str:
    """`rules`, `run` or `arguments`."""
    return str(PART_OF(str(path.relative_to(UTILS)))[1])


def draw(kind: str, package: str, sample: int, seed: int, reach: Reach) -> list[Mutant]:
    """That many mutants of a kind, of one package where it is named."""
    files = [path for path in sorted((UTILS / package).rglob("*.py")) if kind_of(path) == kind]
    files = [path for path in files if not path.is_relative_to(UTILS / "kube")]
    places = [spec for path in files for spec in found(path)]
    breadth = collections.Counter(test for lines in reach.values() for tests in lines.values() for test in tests)
    chosen = random.Random(seed).sample(places, min(sample, len(places)))
    return [Mutant(spec, choice(reach, spec, breadth)) for spec in chosen]


def found(path: Path) -> Iterable[MutationSpec]:
    """The mutants of a file, but for those that no test can notice, or none that says more than the code.

    These are in decorators and fields of dataclasses (what `slots=True` or `compare=False` does no caller can see), in
    `strict=True` of `zip` (an assertion about what comes before), numbers that stay the same (1e38 and one), and
    numbers with a name of their own: one second or one character more is another setting, not another behavior, and a
    test of it would repeat the constant.
    """
    tree = get_ast_from_path(path)
    source = path.read_text(encoding="utf-8").splitlines()
    for name in OPERATORS:
        change = plugins.get_operator(name)()
        spots = (spot for node in ast_nodes(tree) for spot in change.mutation_positions(node))
        for occurrence, (start, end) in enumerate(spots):
            line, spot = source[start[0] - 1], source[start[0] - 1][start[1] : end[1]]
            number = name.endswith("NumberReplacer")
            same = number and float(ast.literal_eval(spot)) + 1 == float(ast.literal_eval(spot))
            setting = number and SETTING.match(line)
            declared = line.lstrip().startswith("@") or " = field(" in line
            if not (declared or same or setting or line[: start[1]].endswith("strict=")):
                yield MutationSpec(path, name, occurrence, start, end)


def choice(reach: Reach, spec: MutationSpec, breadth: Mapping[str, int]) -> tuple[str, ...]:
    """The tests that run the mutated lines; those of the whole file where these run at its import, or never.

    A file that only holds tables runs at its import: the tests of its folder read them.
    """
    path = spec.module_path
    lines = reach.get(str(path), {})
    spots = range(spec.start_pos[0], spec.end_pos[0] + 1)
    tests: frozenset[str] = frozenset().union(*(lines.get(spot, ()) for spot in spots))
    if not tests or "" in tests:
        tests = lines.get(0, frozenset())
    if not tests - {""}:
        tests = frozenset().union(*(more[0] for name, more in reach.items() if Path(name).parent == path.parent))
    own = f"tests/unit/{path.relative_to(UTILS).parent}/"
    return tuple(sorted(tests - {""}, key=lambda test: (not test.startswith(own), breadth[test], test))[:MOST])


def tried(mutant: Mutant) -> WorkResult:
    """What the tests said about it, in the copy of this process."""
    if not mutant.tests:
        return WorkResult(WorkerOutcome.NO_TEST, diff=f"No test runs anything of {mutant.spec.module_path}.")
    with tempfile.NamedTemporaryFile("w", suffix=".tests", encoding="utf-8") as file:
        file.write("\n".join(mutant.tests))
        file.flush()
        limit = f"-o faulthandler_timeout={HANGS} -o faulthandler_exit_on_timeout=true"
        quiet = "-x -q --no-header --tb=no -p no:xdist"
        command = f"'{sys.executable}' -m pytest {quiet} {limit} '@{file.name}'"
        return mutate_and_test([mutant.spec], command, LIMIT)


def noticed(result: WorkResult) -> bool:
    """Whether a test failed; the tool itself counts as noticed also what was given up."""
    tested = result.worker_outcome == WorkerOutcome.NORMAL and result.output != "timeout"
    return bool(tested and result.test_outcome == TestOutcome.KILLED)


def operator(mutant: Mutant) -> str:
    """The mutant's operator without the tool's prefix."""
    return str(mutant.spec.operator_name).removeprefix("core/")


def verdict(kind: str, results: list[tuple[Mutant, WorkResult]], seed: int) -> bool:
    """Prints those of a kind that went unnoticed and how many did not; whether these are enough."""
    survivors = [(mutant, result) for mutant, result in results if not noticed(result)]
    for mutant, result in survivors:
        why = f", given up after {LIMIT} s" if result.output == "timeout" else ""
        print(f"\n{UTILS / mutant.where}: {operator(mutant)} not noticed by {len(mutant.tests)} tests{why}")
        print(result.diff or result.output or result.worker_outcome)
    seen = len(results) - len(survivors)
    print(f"\nmutants: {kind}: {seen} of {len(results)} noticed (seed {seed})")
    return seen >= ENOUGH * len(results)


if __name__ == "__main__":
    sys.exit(main())
