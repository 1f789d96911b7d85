"""Write content that comes in pieces, each in a worker thread."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from harmony_agent.adapters.posix.executor import Job
from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import MAX_READ, Fetch, FileSpec

_PIECE: Final = 1 << 20
_MISMATCH_SECONDS: Final = 60.0
"""Seconds until an object with wrong content is fetched again: somebody has to replace it first."""


class _Draft(Protocol):
    def write(self, data: bytes) -> None: ...


async def fill(
    draft: _Draft,
    path: str,
    node: FileSpec,
    fetch: Fetch,
    in_thread: Callable[[Callable[[Job], None]], Awaitable[None]],
) -> None:
    """Write what `fetch` streams. Raises Transient ``DigestMismatch`` if it isn't what `node` says."""
    hashed = hashlib.sha256()
    held = bytearray()
    left = MAX_READ

    def flush(_job: Job) -> None:
        hashed.update(held)
        draft.write(bytes(held))
        held.clear()

    async def write(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise _mismatch(path, "is larger than 64 MiB")
        held.extend(data)
        if len(held) >= _PIECE:
            await in_thread(flush)

    await fetch(write)
    await in_thread(flush)
    if "sha256:" + hashed.hexdigest() != node.digest:
        raise _mismatch(path, "hasn't the digest that the Score says")


def _mismatch(path: str, how: str) -> Transient:
    return Transient(
        "DigestMismatch",
        f"cannot write {path}: the object {how}; put the right one into the object store",
        delay=_MISMATCH_SECONDS,
    )
