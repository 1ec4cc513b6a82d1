# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators of other projects, emulated for the tests: nine that hold their pods in nine ways."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

from support.arena import Arena
from support.operators import base, webhook
from support.operators.base import Operator
from support.operators.machines import KubeVirt, Longhorn
from support.operators.majorities import Elastic, RabbitMQ, Strimzi
from support.operators.primaries import CloudNativePG, Distributed, Zalando
from support.operators.storage import Rook

ALL: tuple[type[Operator], ...] = (
    CloudNativePG,
    Zalando,
    Elastic,
    Strimzi,
    Distributed,
    Longhorn,
    Rook,
    KubeVirt,
    RabbitMQ,
)


Some = TypeVar("Some", bound=Operator)


@contextlib.contextmanager
def running(
    kind: type[Some], arena: Arena, name: str, home: str, without: Sequence[str], acts: bool = True
) -> Iterator[Some]:
    """One of them with a cluster of its own, until the block ends; its controller is down unless it `acts`."""
    operator = kind(arena, name, home)
    operator.install()
    with base.placed(arena, home, without):
        operator.start()
    arena.settle()
    with contextlib.ExitStack() as stack:
        if kind.deny is not Operator.deny:
            stack.enter_context(webhook.serving(operator))
        if acts:
            stack.enter_context(base.controlling(operator))
        yield operator
    operator.clear()
