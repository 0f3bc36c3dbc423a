"""Started in front of a command, so that it ends with whoever started it, even when that one is killed.

`python end_with_parent.py PARENT COMMAND...` becomes COMMAND. Linux tells a process of its parent's death; elsewhere
the command merely runs. A script that looks nowhere, not even at the rest of the package: it must start in no time.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Ask Linux to end this process in good order when the thread that started it is gone."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it went before we could ask
        sys.exit(1)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
