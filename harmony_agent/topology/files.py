"""Files: the calls of the kind File on a device's file tree, and the states that it sees.

Paths are absolute and normal, inside one of the adapter's roots. No call follows a symbolic link
below a root, writes through the object at a path, or removes a directory that holds something. A
call puts a complete object at a path or none, and it is durable when the call returns. Calls raise
`core.errors` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Final, Literal, Protocol

from harmony_agent.core.frozen import frozen
from scores.file import MAX_OBJECT
from scores.status import ResourcePhase

MAX_READ: Final = MAX_OBJECT
"""Bytes of a file that are read and hashed. No Score wants a larger one; it has no digest here."""
TEMP_PREFIX: Final = ".harmony-"
TEMP_SUFFIX: Final = "~"
"""Form of temporary names: an unfinished file is beside its path.

No Score may claim such a name.
"""

NodeType = Literal["file", "directory", "symlink"]
ObjectType = Literal["file", "directory", "symlink", "other"]
StatFingerprint = tuple[int, ...]
"""Fingerprint of an object's state, without its content (device, inode, times, …). Opaque."""
Write = Callable[[bytes], Awaitable[None]]
Fetch = Callable[[Write], Awaitable[None]]
"""Streams content into the `Write` it is given."""


@frozen()
class PathQuery:
    """Path to observe.

    `backup` names a backup of the previous object, "" if there is none. `owner` and `group` are
    names or numbers; the caller wants their ids. With `keyed`, the content holds a secret, and its
    digest is made with the device's own key.
    """

    path: str
    backup: str = ""
    owner: str | None = None
    group: str | None = None
    keyed: bool = False


@frozen()
class ObjectStat:
    """An object at a path. `mode` holds the lower 12 bits; `owner` and `group` are names, or
    numbers that have none.

    `digest` is of a regular file's content, None where it can't be read or is larger than MAX_READ.
    `type` "other" is a FIFO, socket or device. `empty` is of a directory.
    """

    type: ObjectType
    mode: int
    uid: int
    gid: int
    owner: str
    group: str
    fingerprint: StatFingerprint
    size: int = 0
    digest: str | None = None
    target: str | None = None
    empty: bool = True


@frozen()
class PathError:
    """Error of a query of a path: a code of ``docs/reasons``, for a `Wait`."""

    reason: str
    message: str
    phase: ResourcePhase = "Blocked"
    seconds: float = 10.0


@frozen()
class PathState:
    """Observed state of a path.

    `missing`: parents below the root that don't exist, outermost first. `leftover`: a killed
    agent's unfinished file is beside it. `has_backup`: the query's backup exists. `uid` and `gid`
    are those of the query's owner and group, None without one; `unknown` is an account that this
    device doesn't know.
    """

    path: str
    stat: ObjectStat | None = None
    missing: tuple[str, ...] = ()
    leftover: bool = False
    has_backup: bool = False
    uid: int | None = None
    gid: int | None = None
    unknown: str = ""
    error: PathError | None = None


@frozen()
class Attributes:
    """Attributes to change of an object that stays. None leaves one as it is."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


@frozen(kw_only=True)
class FileSpec:
    """Object to put at a path.

    None for `mode`, `uid` or `gid` keeps the present one; a new object gets 0644 (directory 0755)
    and the agent's ids. A file has `content`, or `fetch` (streamed), or `backup` (a backup's name).
    The latter two are used only if they have `digest`. A symlink has a `target`.
    """

    type: NodeType
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    content: bytes | None = field(default=None, repr=False)
    fetch: Fetch | None = field(default=None, repr=False, compare=False)
    backup: str = ""
    digest: str = ""
    target: str = ""


class Files(Protocol):
    """The device's file tree.

    `expect` is the fingerprint of the object that the caller saw at the path, None for no object. If
    something else is there, a call changes nothing and raises Transient ``ChangedMeanwhile``.
    """

    async def stat_exact(self, query: PathQuery) -> PathState:
        """Observe a path exactly: read its content, unless it is large and known by its stat.

        Never raises for a path.
        """
        ...

    async def stat_cached(self, queries: Sequence[PathQuery]) -> Sequence[PathState]:
        """Observe all paths. An unchanged one costs an lstat; the others as `stat_exact`.

        `has_backup` may be old.
        """
        ...

    async def put(self, path: str, node: FileSpec, expect: StatFingerprint | None) -> None:
        """Put `node` at `path`, in place of the expected object. A directory there must be empty."""
        ...

    async def set_attributes(
        self, path: str, attributes: Attributes, expect: StatFingerprint
    ) -> None:
        """Change mode and owner. A file with other names gets an inode of its own."""
        ...

    async def remove(self, path: str, expect: StatFingerprint) -> None:
        """Remove the object; a directory only when it is empty."""
        ...

    async def sweep(self, path: str) -> None:
        """Remove the unfinished object of a killed agent beside `path`."""
        ...

    async def make_parents(self, paths: Sequence[str]) -> None:
        """Make these directories (0755), outermost first. One that is there stays as it is.

        Their owner is the agent, or root in the system profile.
        """
        ...

    async def drop_parents(self, paths: Sequence[str]) -> Sequence[str]:
        """Remove the empty ones of these directories, innermost first. Return those that stay."""
        ...

    async def back_up(self, path: str, backup: str, digest: str, expect: StatFingerprint) -> None:
        """Copy the file at `path`, which has `digest`, as `backup`, in place of an older one."""
        ...

    async def try_owner(self, path: str, uid: int, gid: int) -> None:
        """Try whether the agent may give a file to this owner.

        Raises Transient ``PermissionDenied``.
        """
        ...

    async def forget(self, backup: str) -> None:
        """Delete the backup, if there is one."""
        ...

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with an observed path that may have changed, until cancelled."""
        ...

    async def close(self) -> None:
        """Close descriptors."""
        ...
