"""A file is edited: how long until it is right again. The agent beside a bare inotify loop that
repairs durably.
"""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from harmony_agent.adapters.posix import syscalls
from tests.bench.report import Row, compare, median, quantile
from tests.bench.world import Device, Follower, Plane, end, spawn

_EVENT: Final = struct.Struct("iIII")
CONTENT: Final = "y" * 1024
FILES: Final = 400


class Seen:
    """Waits for the rename that puts a file right. The sync of the directory after it can't be seen
    by anybody.
    """

    def __init__(self, *folders: Path) -> None:
        self._fd = syscalls.inotify_init()
        for folder in folders:
            syscalls.inotify_add(self._fd, str(folder), syscalls.IN_MOVED_TO)
        os.set_blocking(self._fd, True)

    def edit(self, path: Path) -> float:
        """Edit it, and wait: seconds until something is renamed to it."""
        begun = time.perf_counter()
        path.write_text("edited")
        while True:
            data, offset = os.read(self._fd, 65536), 0
            at = time.perf_counter()
            while offset < len(data):
                length = _EVENT.unpack_from(data, offset)[3]
                if data[offset + 16 : offset + 16 + length].rstrip(b"\0") == os.fsencode(path.name):
                    return at - begun
                offset += 16 + length

    def close(self) -> None:
        os.close(self._fd)


async def measure_file(plane: Plane, url: str, folder: Path, rounds: int = FILES) -> list[Row]:
    """Each file is edited once: what is edited again and again is something else's, and the agent
    backs off from it.
    """
    device = Device(folder, "edited", url)
    bare = folder / "edited-bare"
    bare.mkdir()
    for at in range(rounds):
        (bare / f"b{at}").write_text(CONTENT)
    with ExitStack() as stack:
        stack.enter_context(device.agent())
        floor = spawn(["-m", "tests.bench.floors", "repair", str(bare)], stdout=subprocess.PIPE)
        stack.callback(end, floor)
        assert floor.stdout is not None
        floor.stdout.readline()
        await (await Follower(plane).open()).converge(
            device, "web", 1, {f"f{at}": CONTENT for at in range(rounds)}
        )
        await asyncio.sleep(2)
        seen = Seen(device.root, bare)
        stack.callback(seen.close)
        took, took_bare = [], []
        for at in range(rounds):
            took.append(await asyncio.to_thread(seen.edit, device.root / f"f{at}"))
            await asyncio.sleep(0.01)
            took_bare.append(await asyncio.to_thread(seen.edit, bare / f"b{at}"))
            await asyncio.sleep(0.01)
    return [
        compare(f"file edited: repaired, p50 of {rounds}", median(took_bare), median(took), 2.5),
        compare(
            f"file edited: repaired, p99 of {rounds}",
            quantile(took_bare, 0.99),
            quantile(took, 0.99),
            4.0,
        ),
    ]
