"""Content from a NATS object store, one chunk after the other, without a consumer.

Checks the size of an object. Its digest is for the caller to check.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from harmony_agent.adapters.nats.api import Api, Denied
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.topology.control_plane import BucketMissing, Unreachable
from scores.jetstream import (
    NO_MESSAGE,
    ApiError,
    Stored,
    object_chunks,
    object_meta,
    object_stream,
    stored,
)

_CHUNK_SECONDS: Final = 10.0
"""For one chunk, which has 128 KiB by default and may come over a slow line."""


async def fetch(
    api: Api, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]
) -> None:
    """Stream an object of at most `limit` bytes to `write`.

    Raises Transient; Terminal if the object is larger.
    """
    try:
        await _fetch(api, bucket, name, limit, write)
    except BucketMissing:
        raise _missing(f"there is no object store {bucket}: make it") from None
    except Denied:
        raise Transient(
            "ObjectDenied",
            f"cannot read object {name}: this fleet's devices may not read {bucket}; "
            f"harmony server objects {bucket}",
            delay=30,
            phase="Blocked",
        ) from None
    except (Unreachable, ApiError) as error:
        text = f"cannot read object {name} of {bucket}: {error}"
        raise Transient("Unreachable", text) from error


async def _fetch(
    api: Api, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]
) -> None:
    meta = await _message(api, bucket, {"last_by_subj": object_meta(bucket, name)})
    info = json.loads(meta.value or b"{}") if meta else {}
    if not info or info.get("deleted"):
        raise _missing(f"object {name} of {bucket} isn't there: put it there")
    left, sequence = int(info.get("size") or 0), 1
    if left > limit:
        raise Terminal(
            "ObjectTooLarge",
            f"cannot use object {name} of {bucket}: it has {left} bytes, at most {limit}; "
            "name a smaller one",
        )
    chunks = object_chunks(bucket, str(info.get("nuid")))
    while left > 0:
        chunk = await _message(api, bucket, {"seq": sequence, "next_by_subj": chunks})
        if chunk is None or not chunk.value:
            raise Unreachable("a part of it is missing: somebody writes it anew")
        left, sequence = left - len(chunk.value), chunk.sequence + 1
        await write(chunk.value)


async def _message(api: Api, bucket: str, request: dict[str, Any]) -> Stored | None:
    call = f"STREAM.MSG.GET.{object_stream(bucket)}"
    try:
        answer = await api.call(call, request, _CHUNK_SECONDS)
    except ApiError as error:
        if error.code == NO_MESSAGE:
            return None
        raise
    return stored(answer["message"])


def _missing(text: str) -> Transient:
    return Transient("ObjectMissing", text, delay=10, phase="Blocked")
