"""Syncs of a first convergence, counted by strace, and its time where each of them is slow."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.passes import CONTENT, FIRST
from tests.bench.report import Row
from tests.bench.world import Device, Follower, Plane

SYNCS: Final = "fsync,fdatasync,syncfs"
MOST: Final = 10
CARD_MS: Final = 20
WITHIN_MS: Final = 1000


@contextmanager
def _slow_agent(device: Device, log: Path) -> Iterator[None]:
    """The agent on a card whose every sync takes 20 ms."""
    inject = f"inject={SYNCS}:delay_exit={CARD_MS}ms"
    trace = ["strace", "-f", "--seccomp-bpf", "-o", str(log), "-e", f"trace={SYNCS}", "-e", inject]
    with device.log.open("ab") as out:
        tracer = subprocess.Popen([*trace, *device.command()], stdout=out, stderr=out)
    try:
        yield
    finally:
        children = Path(f"/proc/{tracer.pid}/task/{tracer.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGTERM)
        tracer.wait(20)


async def measure(plane: Plane, url: str, folder: Path) -> list[Row]:
    """200 new Files of 1 KiB in one folder, from the put to ``Converged``."""
    what = f"first convergence of {FIRST} Files"
    if shutil.which("strace") is None:
        return [Row(f"{what}: syncs", "-", "-", "-", "-", None, "strace is not installed")]
    device, log = Device(folder, "syncs", url), folder / "syncs.log"
    with _slow_agent(device, log):
        follower = await Follower(plane).open()
        for number in (1, 2):
            (device.root / f"d{number}").mkdir()
        await follower.converge(device, "warm", 1, {f"d1/f{at}": CONTENT for at in range(FIRST)})
        time.sleep(1)  # what follows the status, as a flush of the ledger, is of before
        before = _count(log)
        took = await follower.converge(
            device, "first", 1, {f"d2/f{at}": CONTENT for at in range(FIRST)}
        )
        count = _count(log) - before
    return [
        Row(f"{what}: syncs", "-", str(count), "-", f"at most {MOST}", count <= MOST),
        Row(
            f"{what}, each sync takes {CARD_MS} ms", f"{FIRST * 2 * CARD_MS} ms", f"{took * 1e3:.0f} ms",
            f"{took * 1e3 / (FIRST * 2 * CARD_MS):.2f}", f"below {WITHIN_MS} ms", took * 1e3 < WITHIN_MS,
            note="the floor is one by one: each file and its folder synced",
        ),
    ]  # fmt: skip


def _count(log: Path) -> int:
    return len(re.findall(rf"\b(?:{SYNCS.replace(',', '|')})\(", log.read_text()))
