# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`python peak.py FILE COMMAND…` runs a command and writes the memory of its largest
process, in KiB, to FILE.

The command and what it starts are the only children of this process, so the peak is theirs alone.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    code = subprocess.run(sys.argv[2:], check=False).returncode
    Path(sys.argv[1]).write_text(
        str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss), encoding="utf-8"
    )
    sys.exit(code)
