"""Close a nats-py client in any state of its connection: in time, with no task or socket left.

A client that loses its connection while it writes fails to close itself. Its tasks stay, and nobody
reads their errors. The names used here are private to nats-py, so each of them may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import anyio
from nats.aio.client import Client

_TASKS: Final = ("_flusher_task", "_reading_task", "_ping_interval_task", "_reconnection_task")


async def close(client: Client, seconds: float) -> None:
    """Close `client`. After `seconds` the rest is cut off."""
    with contextlib.suppress(Exception), anyio.move_on_after(seconds):
        await client.close()
    tasks: list[Any] = [getattr(client, name, None) for name in _TASKS]
    subscriptions = getattr(client, "_subs", {})
    tasks += [
        getattr(subscription, "_wait_for_msgs_task", None)
        for subscription in subscriptions.values()
    ]
    for task in tasks:
        if isinstance(task, asyncio.Task):
            _end(task)
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if isinstance(writer, asyncio.StreamWriter):
        writer.transport.abort()


def _end(task: asyncio.Task[Any]) -> None:
    """Cancel the task, or read its error: else the loop complains of it."""
    if not task.done():
        task.cancel()
        task.add_done_callback(_end)
    elif not task.cancelled():
        task.exception()
