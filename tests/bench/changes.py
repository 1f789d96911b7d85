"""From a put in desired-state to ``Converged`` in actual-state: one File changed, in manifests of
many sizes.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from scores.keys import ACTUAL, DESIRED
from tests.bench import floors
from tests.bench.report import Row, compare, median, quantile
from tests.bench.world import Device, Follower, Plane, end, spawn

SIZES: Final = (10, 100, 1000)


async def measure(plane: Plane, url: str, folder: Path, rounds: int = 500) -> list[Row]:
    """The first row: one resource in the manifest."""
    device = Device(folder, "one", url)
    (folder / "floor").mkdir()
    with ExitStack() as stack:
        floor = spawn(
            ["-m", "tests.bench.floors", "watch", url, str(folder / "floor")],
            stdout=subprocess.PIPE,
        )
        stack.callback(end, floor)
        stack.enter_context(device.agent())
        assert floor.stdout is not None
        floor.stdout.readline()
        ours = await Follower(plane).open(DESIRED, ACTUAL)
        bare = await Follower(plane).open(floors.DESIRED, floors.ACTUAL)
        took: list[float] = []
        took_bare: list[float] = []
        for number in range(1, rounds + 21):
            content = f"{number:012}".rjust(1024, "x")
            took.append(await ours.converge(device, "web", number, {"f": content}))
            took_bare.append(await bare.round("k", content.encode(), content[-12:].encode()))
    took, took_bare = took[20:], took_bare[20:]  # the first ones warm up
    return [
        compare(
            f"put to Converged, 1 File of 1 changed, p50 of {rounds}",
            median(took_bare),
            median(took),
            1.5,
        ),
        compare(
            f"put to Converged, 1 File of 1 changed, p99 of {rounds}",
            quantile(took_bare, 0.99),
            quantile(took, 0.99),
            2.0,
        ),
    ]


async def measure_growth(plane: Plane, url: str, folder: Path, rounds: int = 30) -> list[Row]:
    """The same with 10, 100 and 1,000 resources of which one changes: an agent each, taken in
    turn.
    """
    devices = {size: Device(folder, f"of-{size}", url) for size in SIZES}
    took: dict[int, list[float]] = {size: [] for size in SIZES}
    with ExitStack() as stack:
        for device in devices.values():
            stack.enter_context(device.agent())
        ours = await Follower(plane).open()
        for number in range(1, rounds + 3):
            for size, device in devices.items():
                contents = {f"f{at}": "same" for at in range(size)} | {"f0": f"{number}"}
                took[size].append(await ours.converge(device, "web", number, contents))
    middle = {size: median(values[2:]) * 1e3 for size, values in took.items()}
    slope = (middle[1000] - middle[100]) / 9
    first = (middle[100] - middle[10]) / 0.9
    shown = ", ".join(f"{size}: {value:.1f} ms" for size, value in middle.items())
    worst = max(slope, first)
    return [
        Row(
            "the same, for each 100 unchanged resources more",
            "-",
            f"{worst:.2f} ms",
            "-",
            "less than 3 ms",
            worst < 3,
            f"p50 of {rounds} with {shown}; {first:.2f} ms for each 100 up to 100, {slope:.2f} from there to 1,000",
        )
    ]
