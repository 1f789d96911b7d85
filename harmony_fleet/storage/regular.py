"""Read files of which nothing is known yet: regular ones alone, by an open that can't hang, up to a
bound.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_MOST: Final = 1 << 30


class NotRegular(OSError):
    """There is something else: a folder, a FIFO, a socket, a device."""


def read_regular(path: Path, most: int = _MOST) -> bytes:
    """At most `most` bytes of a regular file. Raises OSError, of which NotRegular is one."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotRegular(0, "it is no regular file", str(path))
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)
