# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first sentences of a report, as a screen shows them."""

from __future__ import annotations

import re

_WATCHED = r"(?: while watched \(\d[\d a-z]* of \d[\d a-z]*\))?"


def never_dark(text: str, came: str) -> bool:
    """Whether the text says that nothing went dark, with how much was watched at most, and then what came of the nodes.

    `came` is what follows it, such as `1 node: 1 back in service`.
    """
    return re.search(rf"Never dark{_WATCHED}\. {re.escape(came)}\b", text) is not None
