# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why something is not done, failed or waits, and what the reader can do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """``code`` is a word of a closed list in the documentation, ``message`` says what is the matter in whole sentences.

    ``remedy`` says in whole sentences what to do; it is empty where there is nothing to do.
    """

    code: str
    message: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """What is the matter, then what to do."""
        return f"{self.message} {self.remedy}".strip()

    def shown(self) -> dict[str, str]:
        """As modules return it."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}
