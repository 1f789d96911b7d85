"""The one mutation lock: what changes the device's software holds it, agent upgrades as well as system upgrades.

`mutation.lock` is locked by flock, which goes with its holder; `mutation.holder` names it, durably: when it dies
half-way, nobody else gets the lock until it has come back and ended."""

import fcntl
import os

from harmony_updater.journal import read, write_durably


class MutationLock:
    """Shared by all that are given the same directory; `kind` begins the names of this one's transactions."""

    def __init__(self, folder: str, kind: str) -> None:
        self._holder, self._kind = f"{folder}/mutation.holder", kind
        self._file = os.open(f"{folder}/mutation.lock", os.O_WRONLY | os.O_CREAT, 0o600)

    def acquire(self, name: str) -> str | None:
        """Take it for our transaction `name`; None when it is ours now, else who has it. Never waits."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return read(self._holder) or "a process that gave no name"
        holder, ours = read(self._holder), f"{self._kind} {name}"
        if holder not in {"", ours}:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            return f"{holder}, which has not ended"
        if not holder:
            write_durably(self._holder, ours)
        return None

    def release(self) -> None:
        """Our transaction, be it of this process or of one before it, has ended."""
        if read(self._holder).startswith(f"{self._kind} "):
            write_durably(self._holder, "")
        fcntl.flock(self._file, fcntl.LOCK_UN)
