"""Observe paths, exactly or from the cache.

Synchronous; called in worker threads. A file whose content was read is known again by its stat, so
an unchanged one costs an lstat. Its content is read again after an hour at the latest.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from zlib import crc32

from harmony_agent.adapters.files.backups import Backups
from harmony_agent.adapters.files.read import Hasher, PathReader
from harmony_agent.adapters.posix.accounts import Accounts
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.inotify import Watcher
from harmony_agent.adapters.posix.path_errors import MissingParents, PathRefused, path_error
from harmony_agent.adapters.posix.safe_path import ParentDir, RootedPaths
from harmony_agent.adapters.posix.stat_cache import StatCache, fingerprint, is_settled
from harmony_agent.core.frozen import frozen
from harmony_agent.topology import Clock
from harmony_agent.topology.files import ObjectStat, PathQuery, PathState, StatFingerprint

_READ_AGAIN: Final = 3600.0
"""Seconds after which content is read again at the latest, though nothing says that it changed."""
_LARGE: Final = 1 << 20
"""Bytes beyond which even an exact look trusts the fingerprint."""


@frozen()
class _Known:
    """Cached state of a path. `due`: when to read it again."""

    query: PathQuery
    state: PathState
    parent: str
    due: float


class PathCache:
    """Observes paths and remembers what it saw.

    One thread at a time observes a path, besides the one that goes through all of them.
    """

    def __init__(
        self,
        tree: RootedPaths,
        backups: Backups,
        watcher: Watcher,
        clock: Clock,
        keyed: Hasher = hashlib.sha256,
    ) -> None:
        """`keyed` makes the hash of what holds a secret."""
        self._paths = tree
        self._backups = backups
        self._watcher = watcher
        self._clock = clock
        self._accounts = Accounts(clock.monotonic)
        self._reader = PathReader(self._accounts)
        self._keyed = keyed
        self._known = StatCache[_Known]()
        self.stirred: set[str] = set()
        """paths that may differ from what was last listed; added to by any thread"""
        self._swept: set[str] = set()
        self._synced: set[str] = set()

    def stat_exact(self, query: PathQuery, job: Job) -> PathState:
        """Observe the path now."""
        self._watcher.follow(query.path)
        uid, gid, unknown = self._resolve(query)
        path_state = PathState(
            query.path,
            has_backup=self._backups.has(query.backup),
            uid=uid,
            gid=gid,
            unknown=unknown,
        )
        looked = self._clock.now()
        try:
            with self._paths.parent(query.path) as place:
                self._sync(place)
                seen = self._see(place, job, keyed=query.keyed)
                path_state = replace(path_state, stat=seen, leftover=self._left(place))
        except MissingParents as missing:
            return replace(path_state, missing=missing.paths)
        except PathRefused as obstacle:
            return replace(path_state, error=obstacle.error)
        except OSError as error:
            return replace(path_state, error=path_error(error, f"look at {query.path}"))
        return self._remember(query, path_state, looked)

    def stat_cached(
        self, query: PathQuery, plain: dict[str, int], now: float, job: Job
    ) -> PathState:
        """Observe the path; an unchanged one comes from the cache. `plain` as `inode` has it."""
        state = self._unchanged(query, plain, now)
        if state is None:
            job.check()
            state = self.stat_exact(query, job)
            if state.error is not None or state.missing:
                self.stirred.add(query.path)
        return state

    def retain(self, paths: Sequence[str], inodes: dict[str, int]) -> None:
        """Remember these and no others."""
        self._watcher.retain(paths, inodes)
        most = max(len(self._known), len(self._swept), len(self._synced), len(self.stirred))
        if most > len(paths):
            self.stirred.intersection_update(paths)
            self._known.retain(paths)
            self._swept.intersection_update(paths)
            self._synced.intersection_update({_parent(path) for path in paths})

    def query(self, path: str) -> PathQuery | None:
        """Return the last query of `path`."""
        entry = self._known.last(path)
        return None if entry is None else entry.value.query

    def learn(self, path: str, status: os.stat_result, digest: str) -> None:
        """Note that a file with this content was just put there."""
        seen = self._reader.file(status, digest)
        query = self.query(path) or PathQuery(path)
        known = _Known(query, PathState(path, seen), "", due=0.0)
        self.stirred.add(path)
        self._known.put(path, seen.fingerprint, known, settled=False)

    def swept(self, path: str, *, clean: bool) -> None:
        """Note whether nothing unfinished stands beside `path`."""
        (self._swept.add if clean else self._swept.discard)(path)

    def unsynced(self, path: str) -> None:
        """Note that the directory of `path` couldn't be made durable. The next look tries again."""
        self._synced.discard(_parent(path))

    def _unchanged(self, query: PathQuery, plain: dict[str, int], now: float) -> PathState | None:
        """Return the cached state, if nothing tells that it changed."""
        entry = self._known.last(query.path)
        if entry is None or not entry.settled:
            return None
        known = entry.value
        same = (
            known.due > now
            and (known.query is query or known.query == query)
            and (plain.get(known.parent) or self._is_plain(known.parent, plain))
            and entry.holds(_fingerprint_of(query.path))
            and self._same_accounts(known)
        )
        return known.state if same else None

    def _same_accounts(self, known: _Known) -> bool:
        query, state = known.query, known.state
        if query.owner is None and query.group is None:
            return True
        return self._resolve(query) == (state.uid, state.gid, state.unknown)

    def inode(self, directory: str, plain: dict[str, int]) -> int:
        """Return the inode of a directory; 0 where it is no directory or a part below its root is a link.

        `plain` are those that were asked for before. It is enough to trust the cache. It isn't
        enough to change anything.
        """
        inode = plain.get(directory)
        if inode is None:
            inode = plain[directory] = self._plain_inode(directory, plain)
        return inode

    def _is_plain(self, directory: str, plain: dict[str, int]) -> bool:
        return self.inode(directory, plain) != 0

    def _plain_inode(self, directory: str, plain: dict[str, int]) -> int:
        root = self._paths.root_of(directory + "/x")
        if root is None:
            return 0
        try:
            if directory == root:
                return os.stat(directory or "/").st_ino
            if not self._is_plain(_parent(directory), plain):
                return 0
            status = os.lstat(directory)
        except OSError:
            return 0
        return status.st_ino if stat.S_ISDIR(status.st_mode) else 0

    def _see(self, place: ParentDir, job: Job, *, keyed: bool) -> ObjectStat | None:
        entry = self._known.last(place.path)
        if entry is not None and entry.value.query.keyed != keyed:
            entry = None  # its digest is another one
        before = None if entry is None else entry.value.state.stat
        now = self._clock.monotonic()

        def known(found: StatFingerprint) -> str | None:
            if entry is None or before is None or before.size <= _LARGE:
                return None
            return before.digest if entry.holds(found) and entry.value.due > now else None

        hasher = self._keyed if keyed else hashlib.sha256
        seen = self._reader.see(place, job, known, hasher)
        if (
            seen is None
            or seen.type != "file"
            or seen.digest is not None
            or entry is None
            or entry.fingerprint != seen.fingerprint
        ):
            return seen
        return before  # can't be read (as mode 0200), but it is what was put there

    def _remember(self, query: PathQuery, path_state: PathState, looked: float) -> PathState:
        """Note the state. An equal state stays the same object, which makes comparing cheap."""
        if path_state.leftover:
            self._known.drop(query.path)
            self.stirred.add(query.path)
            return path_state
        before = self._known.last(query.path)
        if before is not None and before.value.state == path_state:
            path_state = before.value.state
        else:
            self.stirred.add(query.path)
        seen = path_state.stat
        share = crc32(os.fsencode(query.path)) / 2**32  # so that not all are read again at once
        due = self._clock.monotonic() + _READ_AGAIN * (1 + share) / 2
        known = _Known(query, path_state, _parent(query.path), due)
        found = None if seen is None else seen.fingerprint
        # A directory's fingerprint holds no time.
        timed = None if seen is None or seen.type == "directory" else seen.fingerprint[-1]
        settled = timed is None or is_settled(timed, looked)
        self._known.put(query.path, found, known, settled=settled)
        if not settled:
            self.stirred.add(query.path)
        return path_state

    def _sync(self, place: ParentDir) -> None:
        """Sync the directory once after a start, and after an error.

        An agent that was killed may have renamed something and not synced.
        """
        directory = _parent(place.path)
        if directory not in self._synced:
            place.sync()
            self._synced.add(directory)

    def _left(self, place: ParentDir) -> bool:
        """Return whether something unfinished stands beside it.

        Looks once for each path: a later one is the agent's own.
        """
        if place.path in self._swept:
            return False
        if place.stat(place.temp) is not None:
            return True
        self._swept.add(place.path)
        return False

    def _resolve(self, query: PathQuery) -> tuple[int | None, int | None, str]:
        uid = None if query.owner is None else self._accounts.uid(query.owner)
        gid = None if query.group is None else self._accounts.gid(query.group)
        if query.owner is not None and uid is None:
            return uid, gid, f"user {query.owner}"
        if query.group is not None and gid is None:
            return uid, gid, f"group {query.group}"
        return uid, gid, ""


def _fingerprint_of(path: str) -> StatFingerprint | None:
    """Fingerprint of the object at a path whose parents hold no link. None if it can't be read."""
    try:
        return fingerprint(os.lstat(path))
    except FileNotFoundError:
        return None
    except OSError:
        return ()


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
