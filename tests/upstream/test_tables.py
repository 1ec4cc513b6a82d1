# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""In each case of upstream's own tests the collection decides as upstream, but for what is known, with a reason."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from ansible_collections.kubeops.node_maintenance.tests.upstream import compared, sources, tapped

FOLDER = tapped.ROOT / ".build" / "upstream"


@pytest.mark.parametrize("source", sources.ALL, ids=lambda source: source.component)
def test_the_collection_decides_as_upstream(source: tapped.Source) -> None:
    asked, unlike = Counter[str](), list[str]()
    here = [known for known in compared.KNOWN if known.version in ("", source.version)]
    unused = [known for known in here if known.kind in source.least]
    for record in tapped.records(source, FOLDER):
        kind = record["kind"]
        asked[kind] += 1
        text = json.dumps(record)
        theirs, ours = compared.ANSWERS.get(kind, compared.fits)(record)
        if theirs == ours:
            continue
        reasons = [known for known in here if known.kind == kind and known.applies(record)]
        unused = [known for known in unused if known not in reasons]
        if not reasons:
            unlike.append(f"{kind}, {record['test']}: {theirs} there, {ours} here: {text}")
    print(dict(asked))
    assert not unlike, "\n".join(unlike)
    assert not [known.reason for known in unused]
    assert {kind: count for kind, count in source.least.items() if asked[kind] < count} == {}
