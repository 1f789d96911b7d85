"""The agent at rest, its start, and its size."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
import tomllib
from contextlib import ExitStack
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from tests.bench.report import Row, compare, median
from tests.bench.world import (
    ROOT,
    Device,
    Follower,
    Plane,
    end,
    memory,
    processor,
    spawn,
    wakeups,
    written,
)

COUNT: Final = 100
FILE_LIBRARIES: Final = ("anyio", "nats", "pydantic", "sqlite3")
ALL_LIBRARIES: Final = (*FILE_LIBRARIES, "h11", "sdbus")
_START: Final = """
import sys, time
from harmony_agent.engine.reconcile.relist import Relister
relist = Relister.relist
async def timed(self):
    good = await relist(self)
    print(time.monotonic(), len(self._seen), flush=True)
    return good
Relister.relist = timed
from harmony_agent.cli import main
sys.exit(main(sys.argv[1:]))
"""


def _libraries(*names: str) -> subprocess.Popen[str]:
    return spawn(["-m", "tests.bench.floors", "imports", *names], stdout=subprocess.PIPE, text=True)


async def measure_idle(plane: Plane, url: str, folder: Path, seconds: float) -> list[Row]:
    """100 Files, all settled: memory, processor, bytes, wake-ups."""
    device = Device(folder, "idle", url)
    with ExitStack() as stack:
        bare = _libraries(*FILE_LIBRARIES)
        stack.callback(end, bare)
        agent = stack.enter_context(device.agent())
        await (await Follower(plane).open()).converge(
            device, "web", 1, {f"f{at}": f"{at}" for at in range(COUNT)}
        )
        await asyncio.sleep(15)  # a relist and a heartbeat have been
        before = (
            time.monotonic(),
            processor(agent.pid),
            wakeups(agent.pid),
            written(agent.pid),
            _state(device),
        )
        await asyncio.sleep(seconds)
        passed = time.monotonic() - before[0]
        used = processor(agent.pid) - before[1]
        woken = sum(
            count - before[2].get(thread, 0) for thread, count in wakeups(agent.pid).items()
        )
        bytes_ = written(agent.pid) - before[3]
        same = _state(device) == before[4]
        (rss, pss), (floor_rss, floor_pss) = memory(agent.pid), memory(bare.pid)
    return [
        _memory(f"idle, {COUNT} Files, File alone: resident", floor_rss, rss, 40),
        _memory(f"idle, {COUNT} Files, File alone: proportional", floor_pss, pss, 40),
        Row(
            f"idle for {passed:.0f} s: CPU", "-", f"{used / passed * 100:.3f} % of a core", "-", "at most 0.1 %",
            used / passed <= 0.001, f"{used * 1e3:.0f} ms in {passed:.0f} s",
        ),
        Row(
            f"idle for {passed:.0f} s: wake-ups", "-", f"{woken / passed:.2f} a second", "-", "at most 2 a second",
            woken / passed <= 2,
        ),
        Row(
            f"idle for {passed:.0f} s: bytes written", "-", f"{bytes_}", "-", "0", bytes_ == 0 and same,
            "" if same else "the state directory was changed",
        ),
    ]  # fmt: skip


def _memory(what: str, floor: float, ours: float, most: float) -> Row:
    ratio = ours / floor
    met = ratio <= 1.15 and ours <= most
    return Row(
        what,
        f"{floor:.1f} MB",
        f"{ours:.1f} MB",
        f"{ratio:.2f}",
        f"at most 1.15 x, {most:g} MB",
        met,
    )


def _state(device: Device) -> list[tuple[str, int, int]]:
    return sorted(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in device.state.iterdir()
    )


async def measure_start(plane: Plane, url: str, folder: Path, rounds: int = 9) -> list[Row]:
    """From the start of the process to the end of its first relist, 100 Files; against importing
    the libraries.
    """
    device = Device(folder, "starting", url)
    with device.agent():
        await (await Follower(plane).open()).converge(
            device, "web", 1, {f"f{at}": f"{at}" for at in range(COUNT)}
        )
    took, bare = [], []
    for _ in range(rounds + 1):
        took.append(
            await asyncio.to_thread(
                _until_said, ["-c", _START, "run", "--config", str(device.config)], 0
            )
        )
        bare.append(
            await asyncio.to_thread(
                _until_said, ["-m", "tests.bench.floors", "imports", *FILE_LIBRARIES], 1
            )
        )
    return [
        compare(
            f"start to first relist done, {COUNT} Files", median(bare[1:]), median(took[1:]), 2.0
        )
    ]


def _until_said(words: list[str], column: int) -> float:
    begun = time.monotonic()
    process = spawn(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        if not line:
            raise RuntimeError("it ended before it said anything")
        return float(line[column]) - begun
    finally:
        end(process)


_OURS = ("scores", "harmony_nats", "harmony_agent", "harmony_updater", "harmony_fleet")


def measure_size() -> list[Row]:
    """The files of the agent's package and of all that it needs, compiled ones too, as installed
    here.
    """
    found: dict[str, Distribution] = {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for needed in [*project["dependencies"], *project["optional-dependencies"]["agent"]]:
        _needs(re.match(r"[\w.-]+", needed)[0].lower(), frozenset(), found)  # type: ignore[index]
    total = sum(_bytes(one) for one in found.values())
    ours = sum(
        path.stat().st_size
        for package in _OURS
        for path in (ROOT / package).rglob("*")
        if path.is_file()
    )
    size = (total + ours) / 1e6
    note = ", ".join(sorted(found))
    return [
        Row(
            "size of the agent, installed",
            "-",
            f"{size:.1f} MB",
            "-",
            "at most 60 MB",
            size <= 60,
            note,
        )
    ]


def _needs(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> None:
    if name in found:
        return
    found[name] = one = distribution(name)
    for text in one.requires or ():
        requirement, _, marker = text.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if (
            (extra and extra[1] not in extras)
            or "python_version <" in marker
            or "platform_system ==" in marker
        ):
            continue
        match = re.match(r"[\w.-]+", requirement)
        if match:
            try:
                _needs(match[0].lower(), frozenset(), found)
            except ModuleNotFoundError:
                continue


def _bytes(one: Distribution) -> int:
    total = 0
    for file in one.files or ():
        path = Path(str(file.locate()))
        total += path.stat().st_size if path.is_file() else 0
    return total


def measure_updater(folder: Path) -> list[Row]:
    """The root updater as it waits, on a socket of its own; it does nothing there."""
    (folder / "updater" / "state").mkdir(parents=True)
    words = ["-m", "tests.bench.updater", str(folder / "updater")]
    process = spawn(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            return [
                Row(
                    "the updater in memory",
                    "-",
                    "-",
                    "-",
                    "at most 20 MB",
                    None,
                    "it did not come up here",
                )
            ]
        time.sleep(0.5)
        rss, pss = memory(process.pid)
    finally:
        end(process)
    note = f"resident; proportional {pss:.1f} MB"
    return [
        Row("the updater in memory", "-", f"{rss:.1f} MB", "-", "at most 20 MB", rss <= 20, note)
    ]
