"""Make many objects of one file system durable at the price of a few.

A sync of a card takes 5 to 30 ms, and one `syncfs` covers all that was written. It also waits for
what others wrote, so it is left where they wrote much.

Synchronous; called in worker threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from harmony_agent.adapters.posix import mounts, syscalls

FEW: Final = 3
"""Up to as many are synced one by one."""
SIDE_BY_SIDE: Final = 8
"""Threads that sync where one call isn't taken. The disk answers those who wait together at once."""
_COVERED: Final = frozenset({"ext4", "btrfs", "xfs", "f2fs", "tmpfs", "overlay"})
"""File systems whose `syncfs` empties the cache of the disk as well (overlay syncs the one below;
nothing of tmpfs is durable). FAT's doesn't."""
_OTHERS_DIRTY: Final = 16 << 20
"""Bytes that others wrote lately; a card takes a second or two for them."""


def sync_all(fd: int, count: int, size: int) -> bool:
    """Make all durable that was written to the file system of `fd`: `count` objects of `size` bytes
    in all.

    False: it would not be worth it, or an error came that may be another's. Sync each then.
    """
    if count <= FEW:
        return False
    try:
        if mounts.file_system(fd) not in _COVERED or _dirty() > size + _OTHERS_DIRTY:
            return False
        syscalls.syncfs(fd)
    except OSError:
        return False
    return True


def sync_each(fds: Sequence[int]) -> list[OSError | None]:
    """Sync each, a few side by side. Returns for each its error, if it failed.

    Sync none of these again: the kernel tells of an error once.
    """
    errors: list[OSError | None] = [None] * len(fds)
    left = iter(range(len(fds)))  # each number goes to one thread

    def work() -> None:
        for at in left:
            try:
                os.fsync(fds[at])
            except OSError as error:
                errors[at] = error

    helpers: list[threading.Thread] = []
    with suppress(RuntimeError):  # the system gives no more threads: those that there are do it
        for _ in range(min(SIDE_BY_SIDE, len(fds)) - 1):
            helper = threading.Thread(target=work, daemon=True)
            helper.start()
            helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    return errors


def _dirty() -> int:
    """Bytes that wait to be written to any disk."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        fields = (line.split() for line in lines)
        return sum(int(field[1]) for field in fields if field[0] in ("Dirty:", "Writeback:")) << 10
