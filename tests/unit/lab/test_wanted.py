# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which components of the lab are built for which options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

try:
    from ansible.template import trust_as_template
except ImportError:
    trust_as_template = None

ROLE = Path(__file__).resolve().parents[3] / "roles" / "lab"
ALWAYS = {"kubernetes", "etcd", "kwok", "metrics-server"}
REAL = {"lab-web", "kubelet", "containerd", "cni-plugins"}
OTHERS = {"koordinator", "koordinator-next", "descheduler"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, ALWAYS),
        ({"lab_metrics": False}, ALWAYS - {"metrics-server"}),
        ({"lab_koordinator": "v1.7.0"}, ALWAYS | {"koordinator", "descheduler"}),
        ({"lab_descheduler": ["sigs"]}, ALWAYS | {"descheduler"}),
        ({"lab_kind": "real"}, ALWAYS - {"kwok"} | REAL),
        ({"lab_kind": "real", "_lab_obstacle": "they need root"}, ALWAYS),
        ({"lab_state": "built"}, ALWAYS | OTHERS | REAL),
        ({"lab_state": "built", "_lab_obstacle": "they need root"}, ALWAYS | OTHERS),
        ({"lab_state": "built", "lab_cloudnative_pg": True}, ALWAYS | OTHERS | REAL | {"cloudnative-pg"}),
        ({"lab_state": "built", "lab_all_options": "false"}, ALWAYS),
        (
            {"lab_state": "built", "lab_all_options": False, "lab_koordinator": "v1.8.0"},
            ALWAYS | {"koordinator-next", "descheduler"},
        ),
    ],
)
def test_what_the_options_need_is_built(options: dict[str, Any], wanted: set[str]) -> None:
    loader = DataLoader()
    # Before ansible-core 2.19 all text is a template.
    trusted = {} if trust_as_template is None else {"trusted_as_template": True}
    defaults, variables = (
        loader.load_from_file(str(ROLE / folder / "main.yml"), **trusted) for folder in ("defaults", "vars")
    )
    templar = Templar(loader=loader, variables={**defaults, **variables, **options})
    assert set(templar.template(variables["_lab_wanted"])) == wanted
