# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Becomes a container's process: `lab_run.py PARENT HOSTNAME EXECUTABLE ARGV...`.

It is killed with the process PARENT. If the kernel allows it for this user, it has its own host
name, by which leaders of elections are identified.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Prepares this process, then executes the program."""
    parent, hostname, executable, *argv = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUTS) == 0 or libc.unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0:
        name = hostname.encode()[:63]
        libc.sethostname(name, len(name))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(parent):
        os.execv(executable, argv)


if __name__ == "__main__":
    main()
