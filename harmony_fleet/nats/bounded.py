"""The same for many devices, a bounded number at a time, so that neither NATS nor this process
drowns in requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 32
A = TypeVar("A")
B = TypeVar("B")


async def gather_bounded(work: Callable[[A], Awaitable[B]], items: Iterable[A]) -> list[B]:
    """Run `work` for each item, and return the results in order.

    The first error cancels the rest.
    """
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: A) -> B:
        async with gate:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    except (
        BaseException
    ):  # gather alone would let the others run: requests of a look that was given up
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
