# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random faults for as long as wanted, on labs of its own: `make chaos SECONDS=600 SEED=1`.

Most of a point's time passes in waiting for the lease of a run that was killed, so several go on side by side.
The points are a function of the seed. A line is printed for each, at the end the numbers, and how to run those that
failed again; the exit code is 1 where one did, or where there is no verdict on any.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from support.koordinator import configured, quickened
from support.lab import Lab, lab_playbook, started

from chaos.faults import FAULTS, parse, schedule
from chaos.scenes import BACKENDS, SCENES
from chaos.tracks import side_by_side
from chaos.trial import Outcome

KOORDINATOR = "v1.7.0"


def arguments() -> argparse.Namespace:
    """What the Makefile passes on; what is empty there has its default here."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="no new point is begun after this time")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="these points alone, comma separated: SCENE/BACKEND/FAULT/AT")
    parser.add_argument("--labs", type=int, default=1, help="so many labs side by side")
    parser.add_argument("--tracks", type=int, default=3, help="so many points at the same time on each lab")
    parser.add_argument("--lab-name", default="chaos")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--outage", type=float, default=8.0, help="seconds for which 503 is answered")
    return parser.parse_args([word for word in sys.argv[1:] if not word.endswith("=")])


@contextlib.contextmanager
def labs(name: str, count: int, folder: Path, koordinator: bool) -> Iterator[list[Lab]]:
    """So many labs, with Koordinator where it takes part. They go at the end, unless LAB_KEEP is set."""
    options: dict[str, object] = {"lab_koordinator": KOORDINATOR, "lab_start_timeout": 300} if koordinator else {}
    names = [name if n == 0 else f"{name}-{n + 1}" for n in range(count)]
    with contextlib.ExitStack() as stack:
        made = []
        for each in names:
            (folder / each).mkdir()
            if not os.environ.get("LAB_KEEP"):
                stack.callback(lab_playbook, folder / each, each, "absent")
            lab = started(folder / each, each, **options)
            if koordinator:
                stack.enter_context(configured(lab, quickened(KOORDINATOR, per_node=6, window=6.0)))
            made.append(lab)
        yield made


def tell(outcomes: list[Outcome], seconds: float) -> None:
    """The numbers: for each fault how many points, how many runs lived through it, how long a point took."""
    print(f"\n{'fault':22}{'points':>9}{'failed':>9}{'missed':>9}{'blind':>9}{'survived':>9}{'seconds':>9}")
    for fault in (*FAULTS, ""):
        mine = [each for each in outcomes if fault in ("", each.point.fault)]
        hit = [each for each in mine if each.hit]
        counts = (
            len(mine),
            sum(each.failed for each in mine),
            len(mine) - len(hit),
            sum(bool(each.blind) for each in mine),
            sum(each.survived for each in hit),
            round(sum(each.seconds for each in mine) / max(1, len(mine))),
        )
        if mine:
            print(f"{fault or 'all':22}{''.join(f'{count:9}' for count in counts)}")
    print(f"{len(outcomes)} points in {seconds:.0f} s", flush=True)


def main() -> int:
    wanted = arguments()
    seed = secrets.randbelow(2**31) if wanted.seed is None else wanted.seed
    backends, scenes = wanted.backends.split(","), wanted.scenes.split(",")
    if wanted.only:
        given = [parse(text) for text in wanted.only.split(",")]
        source, backends = iter(given), sorted({point.backend for point in given})
    else:
        among = [(SCENES[s].name, b, SCENES[s].requests, SCENES[s].writes) for s in scenes for b in backends]
        source = schedule(seed, among, wanted.faults.split(","))
    folder = Path(tempfile.mkdtemp(prefix="kubeops-chaos-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    with labs(wanted.lab_name, wanted.labs, folder, "koordinator" in backends) as made:
        start = time.monotonic()
        outcomes = side_by_side(
            made,
            source,
            folder,
            tracks=wanted.tracks,
            outage=wanted.outage,
            told=lambda outcome: print(outcome, flush=True),
            seconds=math.inf if wanted.only else wanted.seconds,
        )
        tell(outcomes, time.monotonic() - start)
    failed = [str(outcome.point) for outcome in outcomes if outcome.failed]
    if failed:
        print(f"again: make chaos SEED={seed} ONLY={','.join(failed)}")
    return 1 if failed or all(outcome.blind for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
