"""``$HARMONY_HOME/fleet/roster.yaml``: read, locked, changed by mutations that carry its
generation.

The lock is the kernel's (flock on the folder) and goes with its holder. Beside the roster lies its
seal: see `seal`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from harmony_fleet.errors import Conflict, InvalidInput
from harmony_fleet.roster import text
from harmony_fleet.roster.edit import Edit
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.seal import (
    RosterSeal,
    Version,
    admit,
    expect,
    from_bytes,
    seal_of,
    to_bytes,
)
from harmony_fleet.storage import durable, secret
from harmony_fleet.storage.lock import LOCK_SECONDS, alone
from harmony_fleet.storage.regular import read_regular
from scores.canonical import digest

Check = Callable[[Roster], None]
_Read = tuple[Roster, bytes, RosterSeal | None]


class RosterFile:
    """The roster of one home."""

    def __init__(self, home: Path, seen: Callable[[Roster], None] = lambda _roster: None) -> None:
        """`seen` hears of each roster that was read or written."""
        self._seen = seen
        self.folder = home / "fleet"
        self.path = self.folder / "roster.yaml"
        self.seal_path = self.folder / "roster.seal"
        self._last: tuple[bytes | None, bytes, _Read] | None = None
        """the bytes that were read last, and what they are: a large roster takes long to parse"""

    def read(self) -> Roster:
        """Read the roster. Raises InvalidInput, or Conflict if it may not follow the last one."""
        with contextlib.suppress(Conflict, OSError), self._lock(0):
            self._sweep()
        return self._read()[0]

    def history(self) -> tuple[Version, ...]:
        """The versions that this home has had, the present one last. Raises as `read` does."""
        return _before(*self._read())

    def create(self, lineage: str) -> Roster:
        """Make an empty roster that writes by the home's `lineage`."""
        self._make_folder()
        with self._lock(LOCK_SECONDS) as lock:
            self._sweep()
            if self.path.exists():
                raise Conflict(
                    "RosterExists",
                    f"cannot make {self.path}: it exists",
                    "see: harmony fleet status",
                )
            if self.seal_path.exists():
                raise Conflict(
                    "RosterMissing",
                    f"cannot make {self.path} anew: this fleet had one, and it is gone",
                    f"restore it from a backup; to begin again as another authority, remove {self.seal_path}",
                )
            data = text.HEADER.format(lineage=lineage).encode()
            roster = text.parse(data, str(self.path))
            self._write(self.path, data, lock)
            self._write(self.seal_path, to_bytes(seal_of(roster, data)), lock)
            return roster

    def put(self, name: str, data: bytes) -> None:
        """Write a file of Scores beside the roster."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists() or _bytes(path) != data:
            with self._lock(LOCK_SECONDS) as lock:
                self._write(path, data, lock)

    @contextlib.contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[Roster]:
        """Read the roster under its lock. Nobody changes it until the end of this block."""
        with self._lock(seconds) as lock:
            self._sweep()
            roster, data, seal = self._read()
            self._seal(roster, data, seal, lock)
            yield roster

    def mutate(
        self, generation: int | None, edit: Edit, check: Check = lambda _roster: None
    ) -> tuple[Roster, bool]:
        """Change the roster by one generation, if it still is at `generation` (None: at whichever it
        is). Returns it, and whether it changed.

        `check` may refuse the result. Every refusal comes before anything is touched. An editor
        takes no lock, so the file is compared once more before it is written.
        """
        with self._lock(LOCK_SECONDS) as lock:
            self._sweep()
            before, data, seal = self._read()
            if generation is not None:
                expect(before, generation)
            changed = text.edited(data, edit)
            after = text.parse(changed, str(self.path))
            if after.content_digest() == before.content_digest():
                self._seal(before, data, seal, lock)
                return before, False
            check(after)
            if _bytes(self.path) != data:
                raise _changed_meanwhile(self.path)
            self._write(self.path, changed, lock)
            self._write(
                self.seal_path, to_bytes(seal_of(after, changed, _before(before, data, seal))), lock
            )
            self._seen(after)
            return after, True

    def overrule(self, version: Version) -> Roster:
        """Have what stands here follow `version`, which was applied elsewhere: one generation above
        both.
        """
        with self._lock(LOCK_SECONDS) as lock:
            self._sweep()
            before, data, seal = self._read()
            raised = text.raised(data, max(before.generation, version[0]) + 1)
            after = text.parse(raised, str(self.path))
            self._write(self.path, raised, lock)
            history = (*_before(before, data, seal), version)
            self._write(self.seal_path, to_bytes(seal_of(after, raised, history)), lock)
            return after

    def replace(self, data: bytes, history: tuple[Version, ...]) -> Roster:
        """Put another copy's roster, with its past, in the place of this one, which is kept as
        ``roster.yaml.old``.
        """
        self._make_folder()
        roster = text.parse(data, str(self.path))
        with self._lock(LOCK_SECONDS) as lock:
            self._sweep()
            old = _bytes(self.path)
            if old is not None and old != data:
                self._write(self.folder / "roster.yaml.old", old, lock)
            self._write(self.path, data, lock)
            self._write(self.seal_path, to_bytes(seal_of(roster, data, history)), lock)
        return roster

    def _read(self) -> _Read:
        for path in (self.path, self.seal_path):
            secret.check_writers(path)
        sealed = _bytes(
            self.seal_path
        )  # first: it is written last, so that it is never newer than the roster
        data = _bytes(self.path)
        if data is None:
            raise InvalidInput(
                "NoRoster",
                f"cannot find the roster {self.path}",
                "make one with: harmony fleet init",
            )
        if self._last is not None and self._last[:2] == (sealed, data):
            return self._last[2]
        seal = None if sealed is None else from_bytes(sealed, str(self.seal_path), text.MAX_ROSTER)
        roster = text.parse(data, str(self.path))
        admit(seal, roster)
        self._last = (sealed, data, (roster, data, seal))
        self._seen(roster)
        return roster, data, seal

    def _seal(self, roster: Roster, data: bytes, seal: RosterSeal | None, lock: int) -> None:
        """Seal what was found if that is new: the first roster, one changed by hand, or one from
        before a kill.
        """
        if seal is None or seal.text != digest(data) or not seal.form:
            self._write(
                self.seal_path, to_bytes(seal_of(roster, data, _before(roster, data, seal))), lock
            )

    def _sweep(self) -> None:
        """Nothing is swept where nothing can be written: the next write says so."""
        for path in (self.path, self.seal_path):
            with contextlib.suppress(OSError):
                durable.sweep(os.path.realpath(path))

    def _write(self, path: Path, data: bytes, lock: int) -> None:
        try:
            durable.replace(os.path.realpath(path), data, keep=[lock])
        except OSError as error:
            raise InvalidInput(
                "RosterUnwritable",
                f"cannot write {path}: {error.strerror}",
                "see the folder's permissions and space",
            ) from None

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise InvalidInput(
                "RosterUnwritable",
                f"cannot make {self.folder}: {error.strerror}",
                "set HARMONY_HOME to another folder",
            ) from None

    @contextlib.contextmanager
    def _lock(self, seconds: float) -> Iterator[int]:
        """Hold the kernel's lock, after at most `seconds`. Raises Conflict if another has it."""
        busy = Conflict(
            "RosterBusy",
            "cannot lock the roster: another command holds it",
            "try again when that has ended",
        )
        with contextlib.ExitStack() as held:
            try:
                lock = held.enter_context(alone(self.folder, seconds, busy))
            except (FileNotFoundError, NotADirectoryError):
                raise InvalidInput(
                    "NoRoster",
                    f"cannot find the roster {self.path}",
                    "make one with: harmony fleet init",
                ) from None
            except OSError as error:
                raise InvalidInput(
                    "RosterUnreadable",
                    f"cannot open {self.folder}: {error.strerror}",
                    "check its permissions",
                ) from None
            yield lock


def _before(roster: Roster, data: bytes, seal: RosterSeal | None) -> tuple[Version, ...]:
    """The versions up to `roster`, also where it was changed by hand since it was sealed."""
    return seal_of(roster, data, seal.history if seal else ()).history


def _changed_meanwhile(path: Path) -> Conflict:
    return Conflict(
        "StaleGeneration",
        f"cannot change the roster: somebody else wrote {path} meanwhile",
        "see what changed, then try again",
    )


def _bytes(path: Path) -> bytes | None:
    try:
        return read_regular(path, text.MAX_ROSTER + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(
            "RosterUnreadable",
            f"cannot read {path}: {error.strerror}",
            "see what is there, and its permissions",
        ) from None
