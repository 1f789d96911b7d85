"""Observe paths, exactly or from the cache.

Synchronous; called in worker threads. A file whose content was read is known again by its mark, so
that an unchanged one costs an lstat: until an hour has passed, and not while it is so young that a
second change could carry the same times.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

from harmony_agent.adapters.accounts import Accounts
from harmony_agent.adapters.filelook import Looker
from harmony_agent.adapters.filetree import Job, MissingParents, Obstacle, Place, Tree, mark, trouble
from harmony_agent.adapters.formers import Formers
from harmony_agent.adapters.inotify import Watcher
from harmony_agent.topology import Clock
from harmony_agent.topology.files import Mark, Seen, Sight, Spot

_READ_AGAIN: Final = 3600.0
"""Seconds after which content is read again at the latest, though nothing says that it changed."""
_YOUNG: Final = 0.1
"""Seconds, more than the kernel's clock tick: two changes within one carry the same time."""
_LARGE: Final = 1 << 20
"""Bytes beyond which even an exact look trusts the mark."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """Cached state of a path.

    `settled`: its mark will differ after any change. `due`: when to read it again.
    """

    spot: Spot
    sight: Sight
    mark: Mark | None
    parent: str
    settled: bool
    due: float


class Sights:
    """Looks, and remembers. One path is looked at by one thread at a time, besides a glance at all."""

    def __init__(self, tree: Tree, formers: Formers, watcher: Watcher, clock: Clock) -> None:
        self._tree = tree
        self._formers = formers
        self._watcher = watcher
        self._clock = clock
        self._accounts = Accounts(clock.monotonic)
        self._looker = Looker(self._accounts)
        self._memory: dict[str, _Memory] = {}
        self._swept: set[str] = set()
        self._synced: set[str] = set()

    def look(self, spot: Spot, job: Job) -> Sight:
        """Observe the path now."""
        self._watcher.follow(spot.path)
        uid, gid, unknown = self._resolve(spot)
        sight = Sight(spot.path, kept=self._formers.has(spot.former), uid=uid, gid=gid, unknown=unknown)
        looked = self._clock.now()
        try:
            with self._tree.parent(spot.path) as place:
                self._sync(place)
                seen = self._see(place, job)
                sight = replace(sight, seen=seen, leftover=self._left(place))
        except MissingParents as missing:
            return replace(sight, missing=missing.paths)
        except Obstacle as obstacle:
            return replace(sight, trouble=obstacle.trouble)
        except OSError as error:
            return replace(sight, trouble=trouble(error, f"look at {spot.path}"))
        return self._remember(spot, sight, looked)

    def glance(self, spots: Iterable[Spot], job: Job) -> tuple[list[Sight], dict[str, int]]:
        """All of them, and the inodes of the directories in which they stand; the unchanged ones as remembered."""
        now = self._clock.monotonic()
        plain: dict[str, int] = {}
        sights = []
        for spot in spots:
            memory = self._memory.get(spot.path)
            if (
                memory is not None
                and memory.settled
                and memory.due > now
                and (memory.spot is spot or memory.spot == spot)
                and (plain.get(memory.parent) or self._is_plain(memory.parent, plain))
                and _mark_of(spot.path) == memory.mark
                and self._same_accounts(memory)
            ):
                sights.append(memory.sight)
            else:
                job.check()
                sights.append(self.look(spot, job))
        return sights, plain

    def retain(self, paths: Sequence[str], inodes: dict[str, int]) -> None:
        """Remember these and no others."""
        self._watcher.retain(paths, inodes)
        if max(len(self._memory), len(self._swept), len(self._synced)) > len(paths):
            for path in self._memory.keys() - set(paths):
                self._memory.pop(path, None)
            self._swept.intersection_update(paths)
            self._synced.intersection_update({_parent(path) for path in paths})

    def spot(self, path: str) -> Spot | None:
        """Return the last query of `path`."""
        memory = self._memory.get(path)
        return None if memory is None else memory.spot

    def learn(self, path: str, status: os.stat_result, digest: str) -> None:
        """A file with this content was just put there."""
        seen = self._looker.file(status, digest)
        spot = self.spot(path) or Spot(path)
        self._memory[path] = _Memory(spot, Sight(path, seen), seen.mark, "", settled=False, due=0.0)

    def swept(self, path: str, *, clean: bool) -> None:
        """Return whether nothing unfinished stands beside `path`, as far as is known."""
        (self._swept.add if clean else self._swept.discard)(path)

    def unsynced(self, path: str) -> None:
        """The directory of `path` couldn't be made durable: try at the next look."""
        self._synced.discard(_parent(path))

    def _same_accounts(self, memory: _Memory) -> bool:
        if memory.spot.owner is None and memory.spot.group is None:
            return True
        return self._resolve(memory.spot) == (memory.sight.uid, memory.sight.gid, memory.sight.unknown)

    def _is_plain(self, directory: str, plain: dict[str, int]) -> bool:
        """Return whether no part of it below its root is a link: enough to trust what is
        remembered, not to change things.
        """
        inode = plain.get(directory)
        if inode is None:
            inode = plain[directory] = self._plain_inode(directory, plain)
        return inode != 0

    def _plain_inode(self, directory: str, plain: dict[str, int]) -> int:
        try:
            if directory == self._tree.root_of(directory + "/x"):
                return os.stat(directory or "/").st_ino
            if not self._is_plain(_parent(directory), plain):
                return 0
            status = os.lstat(directory)
        except OSError:
            return 0
        return status.st_ino if stat.S_ISDIR(status.st_mode) else 0

    def _see(self, place: Place, job: Job) -> Seen | None:
        memory = self._memory.get(place.path)
        now = self._clock.monotonic()

        def known(found: Mark) -> str | None:
            if memory is None or memory.sight.seen is None or memory.mark != found:
                return None
            trusted = memory.settled and memory.due > now and memory.sight.seen.size > _LARGE
            return memory.sight.seen.digest if trusted else None

        seen = self._looker.see(place, job, known)
        if seen is None or seen.type != "file" or seen.digest is not None or memory is None or memory.mark != seen.mark:
            return seen
        return memory.sight.seen  # can't be read (as mode 0200), but it is what was put there

    def _remember(self, spot: Spot, sight: Sight, looked: float) -> Sight:
        """Note it; the same object as before where it shows the same, which makes comparing cheap."""
        if sight.leftover:
            self._memory.pop(spot.path, None)
            return sight
        before = self._memory.get(spot.path)
        if before is not None and before.sight == sight:
            sight = before.sight
        seen = sight.seen
        settled = seen is None or seen.type == "directory" or seen.mark[-1] < (looked - _YOUNG) * 1e9
        share = crc32(os.fsencode(spot.path)) / 2**32  # so that not all are read again at once
        due = self._clock.monotonic() + _READ_AGAIN * (1 + share) / 2
        found = None if seen is None else seen.mark
        self._memory[spot.path] = _Memory(spot, sight, found, _parent(spot.path), settled, due)
        return sight

    def _sync(self, place: Place) -> None:
        """Once after a start, and after an error: an agent that was killed may have renamed and not synced."""
        directory = _parent(place.path)
        if directory not in self._synced:
            place.sync()
            self._synced.add(directory)

    def _left(self, place: Place) -> bool:
        """Return whether something unfinished stands beside it: looked for once, for later ones are
        the agent's own.
        """
        if place.path in self._swept:
            return False
        if place.stat(place.temp) is not None:
            return True
        self._swept.add(place.path)
        return False

    def _resolve(self, spot: Spot) -> tuple[int | None, int | None, str]:
        uid = None if spot.owner is None else self._accounts.uid(spot.owner)
        gid = None if spot.group is None else self._accounts.gid(spot.group)
        if spot.owner is not None and uid is None:
            return uid, gid, f"user {spot.owner}"
        if spot.group is not None and gid is None:
            return uid, gid, f"group {spot.group}"
        return uid, gid, ""


def _mark_of(path: str) -> Mark | None:
    """Fingerprint of the object at a path whose parents hold no link. None if it can't be read."""
    try:
        return mark(os.lstat(path))
    except FileNotFoundError:
        return None
    except OSError:
        return ()


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
