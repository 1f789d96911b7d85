"""A process that was busy doesn't take its own absence for silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from harmony_fleet.nats.connection import Inbox


async def later(turns: int, work: Callable[[], Any]) -> None:
    """Some turns of the loop from now: what a socket holds takes a few until it is a message."""
    for _ in range(turns):
        await asyncio.sleep(0)
    work()


async def test_what_came_while_the_process_was_busy_is_read() -> None:
    inbox: Any = Inbox("x")

    def busy() -> None:
        time.sleep(0.5)  # longer than the whole wait
        tasks.append(
            asyncio.ensure_future(
                later(5, lambda: tasks.append(asyncio.ensure_future(inbox._take("news"))))
            )
        )

    tasks: list[Any] = [asyncio.ensure_future(later(1, busy))]
    assert await inbox.next(0.45) == "news"
    await asyncio.gather(*tasks)


async def test_silence_ends() -> None:
    assert await Inbox("x").next(0.02) is None
