"""A file tree in memory: implements topology.files.Files, and lets a test do by hand what people
and programs do.

It keeps what the real adapter promises (nothing is followed, nothing that holds something goes,
what isn't as expected is left alone) and counts changes, so that "the second pass does nothing" can
be asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import anyio

from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import (
    MAX_READ,
    Attributes,
    FileSpec,
    ObjectStat,
    ObjectType,
    PathError,
    PathQuery,
    PathState,
    StatFingerprint,
)

AGENT = 1000
"""The agent's uid and gid."""
UIDS = {"root": 0, "agent": AGENT, "www": 33}
GIDS = {"root": 0, "agent": AGENT, "www": 33}


@dataclass(frozen=True)
class Thing:
    """An object of the tree. `mark` is another one after each change."""

    type: ObjectType
    mark: int
    mode: int = 0o644
    uid: int = AGENT
    gid: int = AGENT
    content: bytes = b""
    target: str = ""


class FakeFiles:
    """`roots` exist as directories. `changes` lists each change by the agent: (call, path)."""

    def __init__(self, roots: Sequence[str] = ("/srv",)) -> None:
        self.roots = tuple(roots)
        self.things: dict[str, Thing] = {}
        self.leftovers: set[str] = set()
        self.formers: dict[str, bytes] = {}
        self.changes: list[tuple[str, str]] = []
        self.troubles: dict[str, PathError] = {}
        self.failures: list[Transient] = []
        self.cannot_give: set[int] = set()
        self.closed = False
        self.keyed: Callable[[bytes], str] = _digest
        """the digest of what holds a secret"""
        self._glanced: dict[str, PathState] = {}
        self._marks = 0
        self._listeners: list[Callable[[str], None]] = []

    # What a test does by hand.

    def set(
        self,
        path: str,
        content: bytes = b"",
        *,
        type: ObjectType = "file",  # noqa: A002
        mode: int = 0o644,
        uid: int = AGENT,
        gid: int = AGENT,
        target: str = "",
    ) -> None:
        """Put something there; parents are made."""
        for parent in reversed(self._parents(path)):
            if parent not in self.things:
                self.set(parent, type="directory", mode=0o755)
        self._store(path, Thing(type, 0, mode, uid, gid, content, target))

    def drop(self, path: str) -> None:
        """Remove it and all below."""
        for other in [
            other for other in self.things if other == path or other.startswith(path + "/")
        ]:
            del self.things[other]
            self._tell(other)

    def fail(self, error: Transient) -> None:
        """The next call that changes something raises this instead."""
        self.failures.append(error)

    # The protocol.

    async def stat_exact(self, spot: PathQuery) -> PathState:
        return self._sight(spot)

    async def stat_cached(self, spots: Sequence[PathQuery]) -> Sequence[PathState]:
        return [self._remembered(self._sight(spot)) for spot in spots]

    def _remembered(self, sight: PathState) -> PathState:
        """The same object where nothing changed."""
        before = self._glanced.get(sight.path)
        if before != sight:
            before = self._glanced[sight.path] = sight
        return before

    async def put(self, path: str, node: FileSpec, expect: StatFingerprint | None) -> None:
        content = await self._content(path, node)
        old = self._expect("put", path, expect)
        if self._sight(PathQuery(path)).missing:
            raise Transient("ParentMissing", f"cannot write {path}", delay=1.0)
        if old is not None and old.type == "directory" and not self._empty(path):
            raise Transient("DirectoryNotEmpty", f"cannot write {path}", phase="Blocked")
        before = old.mode & 0o1777 if old is not None and old.type == node.type == "file" else None
        default = {"file": 0o644, "directory": 0o755, "symlink": 0o777}[node.type]
        mode = node.mode if node.mode is not None else before if before is not None else default
        uid = node.uid if node.uid is not None else old.uid if old is not None else AGENT
        gid = node.gid if node.gid is not None else old.gid if old is not None else AGENT
        self.leftovers.discard(path)
        self._store(path, Thing(node.type, 0, mode, uid, gid, content, node.target))

    async def set_attributes(
        self, path: str, attributes: Attributes, expect: StatFingerprint
    ) -> None:
        old = self._expect("amend", path, expect)
        assert old is not None
        assert old.type in ("file", "directory")
        self._store(
            path,
            replace(
                old,
                mode=old.mode if attributes.mode is None else attributes.mode,
                uid=old.uid if attributes.uid is None else attributes.uid,
                gid=old.gid if attributes.gid is None else attributes.gid,
            ),
        )

    async def remove(self, path: str, expect: StatFingerprint) -> None:
        old = self._expect("remove", path, expect)
        if old is not None and old.type == "directory" and not self._empty(path):
            raise Transient("DirectoryNotEmpty", f"cannot remove {path}", phase="Blocked")
        self.drop(path)

    async def sweep(self, path: str) -> None:
        self._begin("sweep", path)
        self.leftovers.discard(path)

    async def make_parents(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path not in self.things:
                self._begin("make", path)
                self._store(path, Thing("directory", 0, 0o755))

    async def drop_parents(self, paths: Sequence[str]) -> Sequence[str]:
        stay = []
        for path in sorted(paths, key=len, reverse=True):
            thing = self.things.get(path)
            if thing is not None and thing.type == "directory" and self._empty(path):
                self._begin("drop", path)
                self.drop(path)
            elif thing is not None and thing.type == "directory":
                stay.append(path)
        return stay

    async def back_up(self, path: str, former: str, digest: str, expect: StatFingerprint) -> None:
        old = self._expect("keep", path, expect)
        assert old is not None
        assert digest == _digest(old.content)
        self.formers[former] = old.content

    async def try_owner(self, path: str, uid: int, gid: int) -> None:
        if uid in self.cannot_give or gid in self.cannot_give:
            raise Transient("PermissionDenied", f"cannot keep the owner of {path}", phase="Blocked")

    async def forget(self, former: str) -> None:
        self.formers.pop(former, None)

    async def watch(self, changed: Callable[[str], None]) -> None:
        self._listeners.append(changed)
        try:
            await anyio.sleep_forever()
        finally:
            self._listeners.remove(changed)

    async def close(self) -> None:
        self.closed = True

    # Inside.

    async def _content(self, path: str, node: FileSpec) -> bytes:
        if node.fetch is not None:
            pieces: list[bytes] = []

            async def write(piece: bytes) -> None:
                pieces.append(piece)

            await node.fetch(write)
            content = b"".join(pieces)
        elif node.backup:
            content = self.formers[node.backup]
        else:
            return node.content or b""
        if _digest(content) != node.digest:
            raise Transient("DigestMismatch", f"cannot write {path}")
        return content

    def _expect(self, call: str, path: str, expect: StatFingerprint | None) -> Thing | None:
        self._begin(call, path)
        sight = self._sight(PathQuery(path))
        if sight.error is not None:
            raise Transient(sight.error.reason, sight.error.message, phase=sight.error.phase)
        if (None if sight.stat is None else sight.stat.fingerprint) != expect:
            raise Transient("ChangedMeanwhile", f"cannot {call} {path}", delay=0.2)
        return self.things.get(path)

    def _begin(self, call: str, path: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.changes.append((call, path))

    def _store(self, path: str, thing: Thing) -> None:
        self._marks += 1
        self.things[path] = replace(thing, mark=self._marks)
        self._tell(path)

    def _tell(self, path: str) -> None:
        for listener in self._listeners:
            listener(path)

    def _parents(self, path: str) -> list[str]:
        """Parents below the root, innermost first."""
        root = next(root for root in self.roots if path.startswith(root + "/"))
        parts = path[len(root) + 1 :].split("/")[:-1]
        return ["/".join([root, *parts[:count]]) for count in range(len(parts), 0, -1)]

    def _empty(self, path: str) -> bool:
        return not any(other.startswith(path + "/") for other in self.things)

    def _sight(self, spot: PathQuery) -> PathState:
        uid, gid, unknown = _number(UIDS, spot.owner), _number(GIDS, spot.group), ""
        if spot.owner is not None and uid is None:
            unknown = f"user {spot.owner}"
        elif spot.group is not None and gid is None:
            unknown = f"group {spot.group}"
        sight = PathState(
            spot.path, has_backup=spot.backup in self.formers, uid=uid, gid=gid, unknown=unknown
        )
        trouble = self.troubles.get(spot.path) or self._in_the_way(spot.path)
        if trouble is not None:
            return replace(sight, error=trouble)
        missing = [
            parent for parent in reversed(self._parents(spot.path)) if parent not in self.things
        ]
        if missing:
            return replace(sight, missing=tuple(missing))
        thing = self.things.get(spot.path)
        seen = None if thing is None else self._seen(spot.path, thing)
        if seen is not None and thing is not None and seen.digest is not None and spot.keyed:
            seen = replace(seen, digest=self.keyed(thing.content))
        return replace(sight, stat=seen, leftover=spot.path in self.leftovers)

    def _in_the_way(self, path: str) -> PathError | None:
        for parent in reversed(self._parents(path)):
            thing = self.things.get(parent)
            if thing is not None and thing.type != "directory":
                reason = "SymlinkInPath" if thing.type == "symlink" else "NotADirectory"
                return PathError(reason, f"cannot go through {parent}")
        return None

    def _seen(self, path: str, thing: Thing) -> ObjectStat:
        readable = thing.type == "file" and len(thing.content) <= MAX_READ
        return ObjectStat(
            type=thing.type,
            mode=0o777 if thing.type == "symlink" else thing.mode,
            uid=thing.uid,
            gid=thing.gid,
            owner=_name(UIDS, thing.uid),
            group=_name(GIDS, thing.gid),
            fingerprint=(thing.mark,),
            size=len(thing.content),
            digest=_digest(thing.content) if readable else None,
            target=thing.target if thing.type == "symlink" else None,
            empty=self._empty(path),
        )


class FakeObjects:
    """An object store in memory; `contents` by (bucket, name)."""

    def __init__(self) -> None:
        self.contents: dict[tuple[str, str], bytes] = {}

    async def fetch(
        self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        content = self.contents.get((bucket, name))
        if content is None:
            raise Transient("ObjectMissing", f"cannot fetch {bucket}/{name}")
        for start in range(0, len(content), 100_000):
            await write(content[start : start + 100_000])


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _number(known: dict[str, int], account: str | None) -> int | None:
    if account is None:
        return None
    return int(account) if account.isdecimal() else known.get(account)


def _name(known: dict[str, int], number: int) -> str:
    return next((name for name, value in known.items() if value == number), str(number))
