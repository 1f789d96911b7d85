"""Hold the one mutation lock: whatever changes the device's software needs it, agent upgrades too.

`mutation.lock` is locked by flock, which goes with its holder. `mutation.holder` names the holder,
durably: when that dies half-way, nobody else gets the lock until it has come back and ended.
"""

import fcntl
import os

from harmony_updater.journal import read, write_durably


class MutationLock:
    """The lock in one directory, which all that share it are given.

    The names of our transactions begin with `kind`.
    """

    def __init__(self, folder: str, kind: str) -> None:
        self._holder = f"{folder}/mutation.holder"
        self._kind = kind
        self._file = os.open(f"{folder}/mutation.lock", os.O_WRONLY | os.O_CREAT, 0o600)

    def acquire(self, name: str) -> str | None:
        """Take it for our transaction `name`; None when it is ours now, else who has it.

        It never waits.
        """
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return read(self._holder) or "a process that gave no name"
        holder = read(self._holder)
        ours = f"{self._kind} {name}"
        if holder not in {"", ours}:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            return f"{holder}, which has not ended"
        if not holder:
            write_durably(self._holder, ours)
        return None

    def release(self) -> None:
        """Let go of it: our transaction, of this process or of one before it, has ended."""
        if read(self._holder).startswith(f"{self._kind} "):
            write_durably(self._holder, "")
        fcntl.flock(self._file, fcntl.LOCK_UN)
