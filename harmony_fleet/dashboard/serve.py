"""Keep a view, and answer with it until ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harmony_fleet.dashboard import metrics, page
from harmony_fleet.dashboard.http import LIMIT, Answer, Pages, handler
from harmony_fleet.errors import InvalidInput
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe import view
from harmony_fleet.rollout.fleet_apply import server_time


def pages_of(store: Store, seen: view.FleetView) -> Pages:
    """The dashboard, its data, and the metrics."""
    shown = page.page()

    async def whole() -> Answer:
        return shown

    async def told() -> Answer:
        return page.answered(
            page.dashboard(seen, await server_time(store), connected=store.connected)
        )

    async def scraped() -> Answer:
        text = metrics.exposition(seen, await server_time(store), connected=store.connected)
        return Answer(text, metrics.CONTENT_TYPE)

    return {"/": whole, "/data.json": told, "/metrics": scraped}


async def serve(store: Store, host: str, port: int, ready: Callable[[str, int], None]) -> None:
    """Serve until cancelled. `ready` hears where it listens. Raises InvalidInput if it can't
    listen.
    """
    seen = view.FleetView()
    await view.load(store, seen)
    try:
        server = await asyncio.start_server(handler(pages_of(store, seen)), host, port, limit=LIMIT)
    except OSError as error:
        raise InvalidInput(
            "ListenFailed",
            f"cannot listen on {host}:{port}: {error.strerror}",
            "choose another port with --listen",
        ) from None
    async with server:
        ready(*server.sockets[0].getsockname()[:2])
        await view.keep(store, seen)
