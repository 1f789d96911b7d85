"""Many agents' adapters in one process, each with its device's own credentials; told of and seen by
lines of JSON.

Run as ``python -m tests.integration.crowd URL CA POLL CREDS…``. Says ``{"ready": n}`` once that
many have a snapshot, and ``{"device", "deployment", "data", "at"}`` for each value that one of them
is given, by the monotonic clock.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from pathlib import Path

from harmony_agent.adapters.nats.control_plane import NatsControl
from harmony_agent.topology.control_plane import Entry, Lost, Snapshot

AT_ONCE = 16
"""Handshakes of one process at a time. A device has a processor of its own for its handshake; here
hundreds share one, and all would run into their time-outs together.
"""


class _Member(NatsControl):
    """The agent's own adapter, that waits for its turn to connect."""

    gate = asyncio.Semaphore(AT_ONCE)

    async def _connect(self) -> None:
        async with self.gate:
            await super()._connect()


class Crowd:
    """The adapters, and how many of them have read desired state since they were last without
    it.
    """

    def __init__(self, url: str, ca: str, poll: float) -> None:
        self._options = {"servers": [url], "tls_ca": ca, "poll": poll}
        self.ready: set[str] = set()

    async def run(self, files: list[str]) -> None:
        """Until cancelled. They begin one after the other, as devices do whose power comes back."""
        tasks = []
        for file in files:
            tasks += [asyncio.create_task(self._one(Path(file)))]
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    async def _one(self, file: Path) -> None:
        control = _Member(file.stem, "crowd", credentials=str(file), **self._options)  # type: ignore[arg-type]
        connection = asyncio.create_task(control.run())
        async for event in control.desired():
            if isinstance(event, Lost):
                self._count(file.stem, ready=False)
                continue
            for entry in event.entries if isinstance(event, Snapshot) else (event.entry,):
                _say(file.stem, entry)
            self._count(file.stem, ready=True)
        connection.cancel()

    def _count(self, device: str, *, ready: bool) -> None:
        before = len(self.ready)
        (self.ready.add if ready else self.ready.discard)(device)
        if len(self.ready) != before:
            print(json.dumps({"ready": len(self.ready)}), flush=True)


def _say(device: str, entry: Entry) -> None:
    data = base64.b64encode(entry.data or b"").decode()
    told = {
        "device": device,
        "deployment": entry.key.partition(".")[2],
        "data": data,
        "at": time.monotonic(),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(Crowd(sys.argv[1], sys.argv[2], float(sys.argv[3])).run(sys.argv[4:]))
