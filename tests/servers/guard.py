"""Run a command that dies with the process that asked for it.

A test run that is killed outright never reaches its cleanup. On Linux the kernel is asked, before
the command takes this process's place, to kill it when its parent goes; elsewhere the command just
runs. Plain file, not a module: it is run as `python -I -S guard.py PARENT_PID COMMAND...`.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("the parent went away before the server started")
    os.execv(command[0], command)  # noqa: S606 (no shell is the point)


if __name__ == "__main__":
    main()
