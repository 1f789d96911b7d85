"""Ten thousand devices: a command's time against reading the same keys bare, and against starting
any command.

What answers for the devices is one connection with the operator's rights (adr/0094 has the measure).
The agent's own adapters, with their permissions, are held by tests/integration/test_many_devices.py.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Final

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from harmony_fleet.roster.file import RosterFile
from tests.bench import fleet
from tests.bench.report import Row
from tests.natsserver import NatsServer

COUNT: Final = 10_000


async def measure(folder: Path, count: int = COUNT) -> list[Row]:
    """Status and plan from cold, and the view's rate."""
    home = folder / "fleet-home"
    with NatsServer(folder / "fleet-nats") as server:
        return await _measure(server, home, count)


async def _measure(server: NatsServer, home: Path, count: int) -> list[Row]:
    RosterFile(home).create(str(uuid.uuid4()))
    fleet.write_roster(home, 2, count)
    async with Store(Context((server.url,), None, None, home)) as store:
        await store.ensure_buckets()
        with fleet.devices(server.url, count):
            await asyncio.to_thread(
                fleet.command, home, server.url, "fleet", "apply", "--no-wait", "-o", "json"
            )
            await fleet.settled(store, count, 1)
        floors, took = [], {"fleet status": [], "fleet plan": []}  # type: ignore[var-annotated]
        _, found = await fleet.ours(store)
        counts = {bucket: len(part) for bucket, part in found.items()}
        for _ in range(2):
            floors.append(await fleet.bare(server.url, counts))
            for name, seconds in took.items():
                one = await asyncio.to_thread(
                    fleet.command, home, server.url, *name.split(), "-o", "json"
                )
                seconds.append(one.seconds)
        empty = (await asyncio.to_thread(fleet.start_up, home, server.url)).seconds
        rate = await fleet.kept_up(store, server.url, found)
    keys, floor = sum(map(len, found.values())), min(floors)
    rows = [
        _row(f"harmony {name}, {count:,} devices, cold", floor, min(seconds), empty)
        for name, seconds in took.items()
    ]
    bare = keys / floor
    return [
        *rows,
        Row(
            "the view: statuses a second kept up with",
            f"{bare:,.0f} keys/s read bare",
            f"{rate:,.0f}/s",
            f"{bare / rate:.2f}",
            "at most 2 x",
            bare / rate <= 2,
        ),
    ]


def _row(what: str, floor: float, ours: float, empty: float) -> Row:
    ratio = ours / floor
    note = f"of it {empty:.2f} s is what any command takes to start; without that {(ours - empty) / floor:.2f} x"
    return Row(
        what, f"{floor:.2f} s", f"{ours:.2f} s", f"{ratio:.2f}", "at most 2 x", ratio <= 2, note
    )
