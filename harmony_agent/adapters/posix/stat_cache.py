"""Values that are known by the stat of the object that they were read from.

A value holds while the fingerprint of its object stays the same. An object that changed just before
it was looked at is racy: the kernel's clock ticks, so a second change may carry the same times. The
value of a racy object is noted, and isn't trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from typing import Final, Generic, TypeVar

from harmony_agent.core.frozen import frozen
from harmony_agent.topology.files import StatFingerprint

V = TypeVar("V")
RACY_SECONDS: Final = 0.1
"""Longer than a tick of the kernel's clock on any device."""


def fingerprint(status: os.stat_result) -> StatFingerprint:
    """Tell states of an object apart without reading it.

    Leaves out a directory's own times: they change with its content.
    """
    s = status
    if stat.S_ISDIR(s.st_mode):
        return (s.st_dev, s.st_ino, s.st_mode, s.st_uid, s.st_gid)
    return (
        s.st_dev,
        s.st_ino,
        s.st_mode,
        s.st_uid,
        s.st_gid,
        s.st_size,
        s.st_mtime_ns,
        s.st_ctime_ns,
    )


def is_settled(changed_ns: int, looked: float) -> bool:
    """Return whether each later change will carry another time than `changed_ns`.

    `looked` is the wall clock in seconds, read before the object's stat. A time of change that lies
    in the future is settled: the clock was set back since.
    """
    return abs(looked - changed_ns / 1e9) > RACY_SECONDS


@frozen()
class Entry(Generic[V]):
    """A value, the fingerprint of its object (None: no object), and whether that can be trusted."""

    fingerprint: StatFingerprint | None
    value: V
    settled: bool

    def holds(self, found: StatFingerprint | None) -> bool:
        """Return whether the value is that of an object with this fingerprint."""
        return self.settled and self.fingerprint == found


class StatCache(Generic[V]):
    """Values by path. A cache with `most` entries forgets all of them before it takes one more."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._entries: dict[str, Entry[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def last(self, path: str) -> Entry[V] | None:
        """Return the last entry, though its object may have changed."""
        return self._entries.get(path)

    def find(self, path: str, found: StatFingerprint | None) -> V | None:
        """Return the value of an object with this fingerprint. None if it must be read."""
        entry = self._entries.get(path)
        return entry.value if entry is not None and entry.holds(found) else None

    def put(self, path: str, found: StatFingerprint | None, value: V, *, settled: bool) -> None:
        """Note a value. `settled` is as `is_settled` says."""
        if self._most is not None and len(self._entries) >= self._most:
            self._entries.clear()
        self._entries[path] = Entry(found, value, settled)

    def drop(self, path: str) -> None:
        """Forget one."""
        self._entries.pop(path, None)

    def retain(self, paths: Collection[str]) -> None:
        """Forget all others."""
        for path in self._entries.keys() - set(paths):
            self._entries.pop(path, None)
