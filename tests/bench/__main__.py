"""All rows, each beside its floor in the same run: one table, JSON, and a part of RESULTS.md.

    python -m tests.bench [--full] [--only ROW …]

In under five minutes; with --full the ten idle minutes are ten. These are figures, no tests: a row
that isn't met fails nothing. What needs a disposable device is measured as root and else left out,
and said to be.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.bench import changes, fleets, floors, kills, passes, repairs, resting, syncs
from tests.bench.report import Report, Row
from tests.bench.world import ROOT, Plane, plane
from tests.natsserver import NatsServer

OUT: Final = ROOT / ".cache" / "bench"
RESULTS: Final = Path(__file__).parent / "RESULTS.md"
IDLE_SECONDS: Final = 60.0
FULL_SECONDS: Final = 600.0
Part = Callable[[], Awaitable[list[Row]]]


def parts(control: Plane, url: str, folder: Path, *, full: bool) -> dict[str, Part]:
    """The rows by their names, in the order in which they are taken."""
    seconds = FULL_SECONDS if full else IDLE_SECONDS

    async def noop() -> list[Row]:
        return [
            row for count in (200, 1000) for row in (await passes.measure_noop(folder, count))[0]
        ]

    async def first() -> list[Row]:
        return (await passes.measure_first(control, url, folder))[0]

    async def size() -> list[Row]:
        return [*resting.measure_size(), *await asyncio.to_thread(resting.measure_updater, folder)]

    async def rest() -> list[Row]:
        """An agent rests here while another's units and containers are killed on a device: each
        counts its own.
        """
        idle = asyncio.create_task(resting.measure_idle(control, url, folder, seconds))
        killed = await asyncio.to_thread(kills.measure)
        return [*killed, *await idle]

    return {
        "change": lambda: changes.measure(control, url, folder),
        "growth": lambda: changes.measure_growth(control, url, folder),
        "noop": noop,
        "first": first,
        "syncs": lambda: syncs.measure(control, url, folder),
        "edit": lambda: repairs.measure_file(control, url, folder),
        "rest": rest,
        "start": lambda: resting.measure_start(control, url, folder),
        "fleet": lambda: fleets.measure(folder),
        "size": size,
    }


async def run(report: Report, only: list[str], *, full: bool) -> bool:
    """Measure one part after the other; one that breaks is a row, too, and the others go on.

    False: one broke.
    """
    whole = True
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=_disk()) as name,
        NatsServer(Path(name) / "nats") as server,
    ):
        async with plane(server, floors.DESIRED, floors.ACTUAL) as control:
            for part, measure in parts(control, server.url, Path(name), full=full).items():
                if only and part not in only:
                    continue
                begun = time.monotonic()
                try:
                    report.add(await measure())
                except Exception as error:
                    whole = False
                    report.add(
                        [Row(part, "-", "-", "-", "-", None, f"could not be measured: {error!r}")]
                    )
                print(f"    ({part}: {time.monotonic() - begun:.0f} s)", flush=True)
    return whole


def _disk() -> str:
    """Where syncs reach a disk: /tmp may be in memory."""
    OUT.mkdir(parents=True, exist_ok=True)
    return str(OUT)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--full", action="store_true", help="idle for ten minutes, not one")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="ROW", help="of: " + " ".join(_names())
    )
    asked = parser.parse_args()
    begun = time.monotonic()
    ours = ("scores", "harmony_nats", "harmony_agent", "harmony_fleet", "harmony_updater")
    for package in (*ours, "tests/bench"):
        compileall.compile_dir(
            ROOT / package, quiet=1
        )  # as installed: where nothing may be written, not at each start
    report = Report("make bench" + (" (full)" if asked.full else ""))
    whole = asyncio.run(run(report, asked.only, full=asked.full))
    print("\n" + "\n".join(f"{name}: {value}" for name, value in report.facts().items()))
    print("\n" + report.table())
    if asked.only:
        print("\nonly some rows: nothing is written")
    else:
        report.write("bench", RESULTS, OUT)
        print(
            f"\n{time.monotonic() - begun:.0f} s; written to {os.path.relpath(RESULTS)} and {OUT.name}/bench.json"
        )
    return 0 if whole else 1


def _names() -> list[str]:
    return ["change", "growth", "noop", "first", "syncs", "edit", "rest", "start", "fleet", "size"]


if __name__ == "__main__":
    sys.exit(main())
