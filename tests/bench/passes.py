"""A pass over unchanged Files, and the first convergence of 200: the agent's own code in this
process or beside it.

The no-op pass runs in this process, so that nothing but the pass is counted: its wall time, and the
processor time of all threads.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from harmony_agent.adapters.files.local_files import LocalFiles
from harmony_agent.adapters.host import SystemClock
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.engine.engine import Engine, Intervals
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.file import FileReconciler
from scores.canonical import canonical
from scores.keys import ACTUAL, DESIRED
from scores.names import format_time
from scores.status import Capabilities, DeviceInfo, OsInfo
from tests.bench.floors import write_durably
from tests.bench.report import Row, compare, median
from tests.bench.world import LINEAGE, Device, Follower, Plane
from tests.fakes.ledger import FakeLedger
from tests.fakes.plane import FakePlane

CONTENT: Final = "x" * 1024
FIRST: Final = 200
NOOP: Final = {200: 0.5, 1000: 0.1}
"""by number of Files: what a pass at rest may cost, against an lstat of each"""


PERIOD: Final = 10.0
"""Seconds between two relists of an agent."""


class _Clock(SystemClock):
    """The machine's, and a monotonic time that may be pushed on."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Inside:
    """The engine with real files in this process, on a control plane in memory."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.clock = clock = _Clock()
        self.plane = FakePlane("pi-01")
        times = Times(
            clock, lambda: format_time(datetime.fromtimestamp(clock.now(), UTC)), lambda: 0.5
        )
        book = DeviceState(FakeLedger(), times.wire_now)
        self.files = LocalFiles([str(self.root)], str(folder / "state"), clock)
        store: Any = DeviceStateView(book, "File")
        self.reconciler = FileReconciler(self.files, store, self.plane, roots=[str(self.root)])
        self.engine = Engine(
            device="pi-01",
            state=book,
            kinds={"File": self.reconciler},  # type: ignore[dict-item]
            control=self.plane,
            prober=None,  # type: ignore[arg-type]  # a File has no probes
            times=times,
            intervals=Intervals(heartbeat=10_000, relist=10_000),
            describe=_describe,
            refresh=self.plane.refresh,
            agent_version="1",
        )

    async def converge(self, count: int) -> None:
        """Make `count` files, and wait until all is settled and old enough to be known again by its
        mark.
        """
        scores = [
            {
                "kind": "File",
                "name": f"f{at}",
                "path": f"{self.root}/f{at}",
                "content": f"{at}",
                "mode": "0644",
            }
            for at in range(count)
        ]
        about = {
            "api": "harmony/v1",
            "device": "pi-01",
            "deployment": "web",
            "lineage": LINEAGE,
            "generation": 1,
        }
        self.plane.set(DESIRED, "pi-01.web", canonical({**about, "scores": scores}))
        while b'"phase":"Converged"' not in self._said():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        await self.engine.relisters[0].relist()
        await asyncio.sleep(0.1)

    def _said(self) -> bytes:
        entry = self.plane.entries[ACTUAL].get("pi-01.web")
        return entry.data or b"" if entry is not None else b""

    def read_all(self) -> float:
        """Processor seconds of reading and hashing every file, as each is at least once an hour."""
        sights = self.files._cache
        spots = self.reconciler._index.all()[2]
        begun = time.process_time()
        for spot in spots:
            sights.stat_exact(spot, Job())
        return time.process_time() - begun


async def _describe() -> DeviceInfo:
    os_info = OsInfo(id="debian", version_id="12", arch="x86_64", kernel="6")
    return DeviceInfo(
        device="pi-01",
        labels={},
        agent_version="1",
        boot_id="b",
        os=os_info,
        kinds=["File"],
        capabilities=Capabilities(),
    )


def _lstat_loop(known: dict[str, tuple[int, ...]]) -> int:
    changed = 0
    for path, before in known.items():
        now = os.lstat(path)
        if (
            now.st_ino,
            now.st_mode,
            now.st_uid,
            now.st_gid,
            now.st_size,
            now.st_mtime_ns,
            now.st_ctime_ns,
        ) != before:
            changed += 1
    return changed


def _known(root: Path) -> dict[str, tuple[int, ...]]:
    found = {}
    for path in sorted(map(str, root.iterdir())):
        now = os.lstat(path)
        found[path] = (
            now.st_ino, now.st_mode, now.st_uid, now.st_gid, now.st_size, now.st_mtime_ns, now.st_ctime_ns
        )  # fmt: skip
    return found


async def measure_noop(folder: Path, count: int, rounds: int = 100) -> tuple[list[Row], float]:
    """Rows for `count` Files, and the processor seconds of one pass."""
    inside = Inside(folder / f"noop-{count}")
    task = asyncio.create_task(inside.engine.run(lambda: None))
    try:
        await inside.converge(count)
        known = _known(inside.root)
        wall: list[tuple[float, float]] = []
        cpu: list[tuple[float, float]] = []
        relist = inside.engine.relisters[0].relist
        for _ in range(rounds):
            inside.clock.ahead += PERIOD
            clocks = [(time.perf_counter(), time.process_time())]
            await relist()
            clocks.append((time.perf_counter(), time.process_time()))
            assert _lstat_loop(known) == 0
            clocks.append((time.perf_counter(), time.process_time()))
            wall.append((clocks[1][0] - clocks[0][0], clocks[2][0] - clocks[1][0]))
            cpu.append((clocks[1][1] - clocks[0][1], clocks[2][1] - clocks[1][1]))
        reading = inside.read_all()
    finally:
        task.cancel()
        await asyncio.wait([task])
    ours, floor = (median([pair[side] for pair in wall]) for side in (0, 1))
    ours_cpu, floor_cpu = (median([pair[side] for pair in cpu]) for side in (0, 1))
    hourly = f"reading all of them, spread over each hour, adds {reading * 10 / 2700 * 1e3:.3f} ms CPU to a pass each 10 s"
    rows = [
        compare(f"no-op pass over {count} Files, wall", floor, ours, NOOP[count]),
        compare(
            f"no-op pass over {count} Files, CPU", floor_cpu, ours_cpu, NOOP[count], note=hourly
        ),
    ]
    return rows, ours_cpu


async def measure_first(
    plane: Plane, url: str, folder: Path, rounds: int = 7
) -> tuple[list[Row], float]:
    """200 new Files of 1 KiB: from the put to ``Converged``, against writing the same durably one
    by one.
    """
    device = Device(folder, "first", url)
    took, bare = [], []
    with device.agent():
        follower = await Follower(plane).open()
        for number in range(1, rounds + 2):
            for place in ("ours", "bare"):
                (device.root / f"{place}{number}").mkdir()
            contents = {f"ours{number}/f{at}": CONTENT for at in range(FIRST)}
            took.append(await follower.converge(device, f"first{number}", 1, contents))
            bare.append(_one_by_one(device.root / f"bare{number}"))
            await follower.remove(device, f"first{number}", 2)
    ours = median(took[1:])
    return [compare(f"first convergence of {FIRST} Files", median(bare[1:]), ours, 1.3)], ours


def _one_by_one(folder: Path) -> float:
    data = CONTENT.encode()
    with _directory(folder) as fd:
        begun = time.perf_counter()
        for at in range(FIRST):
            write_durably(fd, f"f{at}", data)
        return time.perf_counter() - begun


@contextmanager
def _directory(folder: Path) -> Any:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)
