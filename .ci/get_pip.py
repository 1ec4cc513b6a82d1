# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for get-pip.py where ansible-test sets up its environments (noxfile.py, `stand_in`)."""

from __future__ import annotations

import subprocess
import sys

if __name__ == "__main__":
    subprocess.run([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL, check=True)
    wanted = [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
    sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", *wanted]))
