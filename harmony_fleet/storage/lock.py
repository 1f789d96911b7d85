"""The kernel's lock of a folder, which goes with its holder however that ends. It knows not what
the folder is for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harmony_fleet.errors import HarmonyError, InvalidInput

LOCK_SECONDS: Final = 30.0
_AGAIN: Final = 0.02


@contextlib.contextmanager
def alone(folder: Path, seconds: float, busy: HarmonyError) -> Iterator[int]:
    """Hold the lock after at most `seconds`. Yields its descriptor, also for a child that shall
    keep it.

    Raises `busy` if somebody else has it, InvalidInput if nobody can have it, OSError if there is
    no such folder.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _take(lock, time.monotonic() + seconds, busy)
        yield lock
    finally:
        os.close(lock)


def _take(lock: int, until: float, busy: HarmonyError) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise busy from None
            time.sleep(_AGAIN)
        except OSError as error:
            text = f"cannot lock the folder: {error.strerror}"
            raise InvalidInput(
                "NoLocks", text, "keep it on a file system that has locks (flock)"
            ) from None
        else:
            return
