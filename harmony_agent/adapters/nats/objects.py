"""Content from a NATS object store, in its chunks. Checks a size, not a digest: that is for whoever
asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError, ObjectNotFoundError

from harmony_agent.core.errors import Terminal, Transient
from scores.jetstream import object_chunks

_CHUNK_SECONDS: Final = 10.0


async def fetch(
    stream: JetStreamContext,
    bucket: str,
    name: str,
    limit: int,
    write: Callable[[bytes], Awaitable[None]],
) -> None:
    """Stream an object of at most `limit` bytes to `write`. Raises Transient; Terminal where it is
    larger.
    """
    try:
        store = await stream.object_store(bucket)
        info = await store.get_info(name)
        if (info.size or 0) > limit:
            text = f"cannot use object {name} of {bucket}: it has {info.size} bytes, at most {limit}; name a smaller one"
            raise Terminal("ObjectTooLarge", text)
        if not info.size:
            return
        chunks = await stream.subscribe(
            object_chunks(bucket, str(info.nuid)), ordered_consumer=True
        )
        try:
            left = info.size
            while left > 0:
                message = await chunks.next_msg(timeout=_CHUNK_SECONDS)
                left -= len(message.data)
                await write(message.data)
        finally:
            await chunks.unsubscribe()
    except (ObjectNotFoundError, NotFoundError):
        raise Transient(
            "ObjectMissing",
            f"object {name} of {bucket} isn't there: put it there",
            delay=10,
            phase="Blocked",
        ) from None
    except (TimeoutError, nats.errors.Error, OSError) as error:
        cause = str(error) or type(error).__name__
        raise Transient("Unreachable", f"cannot read object {name} of {bucket}: {cause}") from error
