# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.option_values import BadOption


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("0", 0.0),
        ("90s", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
        (" 10m ", 600.0),
        (None, None),
        ("", None),
        ("  ", None),
    ],
)
def test_a_duration_is_read(given: object, seconds: float | None) -> None:
    assert option_values.seconds("timeout", given) == seconds


@pytest.mark.parametrize("given", [True, False, "5x", "m", "1.5h", 1.5, "-1", "30m1h", "10 m", "٣", [], {"s": 1}])
def test_anything_else_is_named_with_what_would_be_right(given: object) -> None:
    with pytest.raises(BadOption) as caught:
        option_values.seconds("timeout", given)
    for part in ("timeout", repr(given), '"90s"'):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["a", "b"], ("a", "b")),
        ("a,b", ("a", "b")),
        ("a b\nc,\td", ("a", "b", "c", "d")),
        (["a b", "c,d"], ("a", "b", "c", "d")),
        (["a", "b", "a"], ("a", "b")),
        ("", ()),
        ([""], ()),
        (None, ()),
        ([7], ("7",)),
    ],
)
def test_names_are_read_from_lists_and_texts(given: object, names: tuple[str, ...]) -> None:
    assert option_values.names(given) == names
