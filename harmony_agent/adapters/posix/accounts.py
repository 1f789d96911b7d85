"""Users and groups by name and number, remembered for a minute.

A look-up may reach a directory server, so call it in a worker thread. A name that isn't known is
asked for each time.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_SECONDS: Final = 60.0
_NOBODY: Final = 2**32 - 1
"""The id that the kernel takes for "leave it": no account has it."""


class _Memory(Generic[K, V]):
    def __init__(self, monotonic: Callable[[], float], ask: Callable[[K], V]) -> None:
        self._monotonic = monotonic
        self._ask = ask
        self._known: dict[K, tuple[float, V]] = {}

    def find(self, key: K) -> V | None:
        known = self._known.get(key)
        if known is not None and known[0] > self._monotonic():
            return known[1]
        try:
            value = self._ask(key)
        except (KeyError, OverflowError):
            self._known.pop(key, None)
            return None
        self._known[key] = (self._monotonic() + _SECONDS, value)
        return value


class Accounts:
    """Look up accounts in the device's name service. `monotonic` is a clock in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._uids: _Memory[str, int] = _Memory(monotonic, lambda name: pwd.getpwnam(name).pw_uid)
        self._gids: _Memory[str, int] = _Memory(monotonic, lambda name: grp.getgrnam(name).gr_gid)
        self._owners: _Memory[int, str] = _Memory(monotonic, lambda uid: pwd.getpwuid(uid).pw_name)
        self._groups: _Memory[int, str] = _Memory(monotonic, lambda gid: grp.getgrgid(gid).gr_name)

    def uid(self, owner: str) -> int | None:
        """The number of a user's name or decimal number; None where there is no such user."""
        return _number(owner) if owner.isdecimal() else self._uids.find(owner)

    def gid(self, group: str) -> int | None:
        """The number of a group's name or decimal number; None where there is no such group."""
        return _number(group) if group.isdecimal() else self._gids.find(group)

    def owner(self, uid: int) -> str:
        """The user's name; the number in decimal where it has none."""
        return self._owners.find(uid) or str(uid)

    def group(self, gid: int) -> str:
        """The group's name; the number in decimal where it has none."""
        return self._groups.find(gid) or str(gid)


def _number(text: str) -> int | None:
    value = int(text)
    return value if value < _NOBODY else None
