"""A process that SIGSTOP holds: the signal is sent at once, but each thread stops only when it next
runs.
"""

import os
import signal
import time
from pathlib import Path

STOPS_WITHIN = 20.0


def halt(pid: int) -> None:
    """Stop the process and come back when none of its threads runs any more; TimeoutError if that
    takes too long.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOPS_WITHIN
    while states := _states(pid) - {"T"}:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"process {pid} doesn't stop: threads in state {', '.join(sorted(states))}"
            )
        time.sleep(0.005)


def _states(pid: int) -> set[str]:
    """States of its threads, as proc(5) has them; the name before them may hold anything, brackets
    too.
    """
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found.add(
                (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2][0]
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
