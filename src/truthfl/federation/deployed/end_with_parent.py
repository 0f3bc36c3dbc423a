"""A script that runs a command which ends when its parent process ends, even if the parent is killed.

`python end_with_parent.py PARENT_PID COMMAND...` replaces itself by COMMAND. Only Linux can signal a process when its
parent ends; elsewhere COMMAND just runs. Imports no other module of the package, to start quickly.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """On Linux, let this process receive SIGTERM when the thread that started it ends.

    parent  the id of the parent process
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before prctl was called
        sys.exit(1)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
