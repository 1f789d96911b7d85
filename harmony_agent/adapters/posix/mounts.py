"""The type of the file system at a descriptor, as the kernel's table of mounts has it.

Asks no file system anything: one that hangs would hang the caller.
"""

from __future__ import annotations

import os
from typing import Final

_PLACE: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def file_system(fd: int) -> str:
    """Return the type, as ``ext4``; "" where the table doesn't have it."""
    mount = _field(f"/proc/self/fdinfo/{fd}", "mnt_id:")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            if line.split(" ", 1)[0] == mount:
                return line.partition(" - ")[2].split(" ", 1)[0]
    return ""


def file_system_at(directory: str) -> str:
    """Return the type at a directory. Raises OSError."""
    fd = os.open(directory, _PLACE)
    try:
        return file_system(fd)
    finally:
        os.close(fd)


def _field(path: str, name: str) -> str:
    with open(path, encoding="ascii") as lines:
        return next((line.split()[1] for line in lines if line.startswith(name)), "")
