"""Forks real agents, `harmony-agent run` with all imports done, so that a test can kill a hundred
of them.

A program: its arguments are the configuration and the log; for each line on standard input it runs
one agent to its end, telling ``started <pid>`` and ``ended <exit code, or minus the signal>``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

import harmony_agent.adapters.files.local_files
import harmony_agent.app
import harmony_agent.kinds.file  # noqa: F401  # what an agent imports later, it has already
from harmony_agent import cli

_PR_SET_PDEATHSIG: Final = 1


def agent(config: str, log: str) -> int:
    """The forked child: as the console script would be started by a service manager."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    null, out = (
        os.open(os.devnull, os.O_RDWR),
        os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
    )
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(out, 2)
    return cli.main(["run", "--config", config])


def main(config: str, log: str) -> None:
    """Serve until standard input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for _line in sys.stdin:
        child = os.fork()
        if not child:
            code = 70
            try:
                code = agent(config, log)
            finally:
                os._exit(code)
        print(f"started {child}", flush=True)
        print(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
