"""How a fleet of simulated devices scales: `harmony fleet status`, `plan`, `apply`, and the view,
against bare floors.

    python -m tests.bench.fleet [DEVICES…]        1,000 and 10,000 by default; three deployments each

A real nats-server on loopback; devices that answer in a process of their own; each command as a
process, cold, that has to end with 0. The floor is the same keys read bare by the client library's
own watch, in the same run; the machine's load is told beside it. Peak memory is the command's own.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harmony_fleet.context import Context
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe import view as fleet_view
from harmony_fleet.observe.view import WATCHED, FleetView, keep
from harmony_fleet.roster.file import RosterFile
from scores.jetstream import kv_subject
from scores.keys import ACTUAL
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer

DEPLOYMENTS: Final = 3
_HARMONY: Final = [
    sys.executable,
    "-c",
    "import sys; from harmony_fleet.cli import main; sys.exit(main())",
]


@dataclass(frozen=True)
class Took:
    """A command's time and processor time in seconds, and its peak memory in MiB."""

    seconds: float
    cpu: float
    mib: float


def roster_text(lineage: str, generation: int, count: int) -> str:
    """A roster of `count` devices; what each deployment says changes with the generation."""
    lines = [f"version: 1\nlineage: {lineage}\ngeneration: {generation}\ndevices:"]
    lines += [
        f"- {{name: pi-{at:05}, class: web, labels: {{site: s{at % 10}}}}}" for at in range(count)
    ]
    lines.append("deployments:")
    for number in range(DEPLOYMENTS):
        file = f"{{kind: File, name: f{number}, path: /srv/f{number}, content: generation {generation}}}"
        unit = (
            f"{{kind: SystemdUnit, name: u{number}.service, content: '[Service]', enabled: true}}"
        )
        lines.append(f"- name: d{number}\n  scores:\n  - {file}\n  - {unit}")
    return "\n".join([*lines, ""])


def write_roster(home: Path, generation: int, count: int) -> None:
    """Put it in place as a change by hand, and have it sealed, as any command does at its first
    lock.
    """
    file = RosterFile(home)
    lineage = json.loads(file.seal_path.read_bytes())["lineage"]
    file.path.write_text(roster_text(lineage, generation, count))
    with file.locked():
        pass


def command(home: Path, url: str, *words: str) -> Took:
    """Run `harmony` as a process."""
    env = {**os.environ, "HARMONY_SERVER": url, "HARMONY_HOME": str(home)}
    begun, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*_HARMONY, *words], env=env, stdout=subprocess.DEVNULL, stderr=said
        )
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            peak = max(peak, peak_kib(process.pid))
            time.sleep(0.01)
        took = time.perf_counter() - begun
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        told = said.read().decode()[-1000:]
    if process.returncode != 0:
        raise RuntimeError(f"harmony {' '.join(words)} ended with {process.returncode}: {told}")
    return Took(took, used.ru_utime + used.ru_stime, peak / 1024)


def peak_kib(pid: int) -> int:
    """The most that the process had in memory. (ru_maxrss would count what its parent had when it
    was forked.)
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


@contextmanager
def devices(url: str, count: int) -> Iterator[None]:
    """Devices that answer, in a process of their own."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_answer, args=(url, count, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(120):
            raise RuntimeError("the simulated devices didn't come up")
        yield
    finally:
        process.kill()
        process.join()


def _answer(url: str, count: int, ready: Any) -> None:
    async def main() -> None:
        import nats

        client = await nats.connect(url, pending_size=256 * 1024 * 1024)
        async with SimFleet(client, [f"pi-{at:05}" for at in range(count)], beat=10.0):
            await client.flush(60)
            ready.set()
            await asyncio.sleep(3600)

    asyncio.run(main())


async def settled(store: Store, count: int, generation: int) -> None:
    """Wait until every device said that it has this generation."""
    want = f'"generation":{generation},'.encode()
    while True:
        found = await store.entries(ACTUAL)
        if len(found) == count * DEPLOYMENTS and all(
            want in (entry.value or b"") for entry in found.values()
        ):
            return
        await asyncio.sleep(0.5)


async def bare(url: str, counts: dict[str, int]) -> float:
    """The floor: so many keys of each bucket read by the client library, and nothing made of
    them.
    """
    import nats

    client = await nats.connect(url)
    begun = time.perf_counter()
    for bucket, count in counts.items():
        watcher = await (await client.jetstream().key_value(bucket)).watchall()
        seen: set[str] = set()
        while len(seen) < count:
            entry = await watcher.updates(60)  # type: ignore[no-untyped-call]
            if entry is not None:
                seen.add(entry.key)
        await watcher.stop()  # type: ignore[no-untyped-call]
    took = time.perf_counter() - begun
    await client.close()
    return took


async def ours(store: Store) -> tuple[float, dict[str, dict[str, Entry]]]:
    """The same by our own reader, which knows for certain that it has them all."""
    begun = time.perf_counter()
    found = {bucket: await store.entries(bucket) for bucket in WATCHED}
    return time.perf_counter() - begun, found


def start_up(home: Path, url: str) -> Took:
    """The other floor: a command that reads nothing."""
    return command(home, url, "schema", "--kind", "File")


def fed(found: dict[str, dict[str, Entry]]) -> float:
    """Entries a second that the view takes, with no network."""
    view = FleetView()
    entries = [entry for part in found.values() for entry in part.values()]
    begun = time.perf_counter()
    for entry in entries:
        view.feed(entry)
    return len(entries) / (time.perf_counter() - begun)


async def kept_up(store: Store, url: str, found: dict[str, dict[str, Entry]]) -> float:
    """Statuses a second that the view keeps up with, from publish to count, while another process
    publishes.
    """
    fleet_view.RELIST_SECONDS = 3600.0  # type: ignore[misc]  # what is listed again is no news
    view = FleetView()
    watching = asyncio.create_task(keep(store, view))
    total = sum(map(len, found.values()))
    while view.events < 2 * total:  # listed once, and watched from the first
        await asyncio.sleep(0.05)
    values = [(key, entry.value or b"") for key, entry in found[ACTUAL].items()]
    context = multiprocessing.get_context("spawn")
    publisher = context.Process(target=_publish, args=(url, values), daemon=True)
    publisher.start()
    before = view.events
    while view.events == before:
        await asyncio.sleep(0.001)
    begun = time.perf_counter()
    while view.events < before + len(values):
        await asyncio.sleep(0.005)
    rate = len(values) / (time.perf_counter() - begun)
    publisher.join()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return rate


def _publish(url: str, values: list[tuple[str, bytes]]) -> None:
    async def main() -> None:
        import nats

        client = await nats.connect(url, pending_size=256 * 1024 * 1024)
        for key, value in values:
            await client.publish(kv_subject(ACTUAL, key), value)
        await client.flush(60)
        await client.close()

    asyncio.run(main())


def looks(home: Path, url: str) -> dict[str, Took]:
    """What changes nothing, of a fleet that is as it should be."""
    words = {"status from cold": "status", "verify, clean": "verify", "plan, nothing to do": "plan"}
    return {name: command(home, url, "fleet", verb, "-o", "json") for name, verb in words.items()}


def change(home: Path, url: str, generation: int) -> Took:
    """One mutation of one device."""
    words = (
        "device",
        "set",
        "pi-00000",
        "--variable",
        f"at={generation}",
        "--generation",
        str(generation),
    )
    return command(home, url, "fleet", *words)


async def measure(server: NatsServer, home: Path, count: int) -> dict[str, str]:
    """One fleet, all figures."""
    url = server.url
    RosterFile(home).create(str(uuid.uuid4()))
    begun = time.perf_counter()
    write_roster(home, 2, count)
    parsed = time.perf_counter() - begun
    async with Store(Context((url,), None, None, home)) as store:
        await store.ensure_buckets()
        with devices(url, count):
            first = command(home, url, "fleet", "apply", "--no-wait", "-o", "json")
            await settled(store, count, 1)
            _, found = await ours(store)
            counts = {bucket: len(part) for bucket, part in found.items()}
            floor = await bare(url, counts)
            rows = looks(home, url)
            write_roster(home, 3, count)
            every = command(home, url, "fleet", "apply", "--wait", "--timeout", "10m", "-o", "json")
            await settled(store, count, 2)
            rows["verify, clean, after that"] = command(home, url, "fleet", "verify", "-o", "json")
            mutated = change(home, url, 3)
        floor = min(floor, await bare(url, counts))
        read, found = await ours(store)
        rate = await kept_up(store, url, found)
    keys = sum(map(len, found.values()))
    rows = {
        "a command that reads nothing": start_up(home, url),
        "one device changed in the roster": mutated,
        **rows,
    }
    rows |= {"first apply": first, "apply that touches all, until converged": every}
    shown = {
        name: f"{took.seconds:7.2f} s  {took.seconds / floor:5.1f} x floor  {took.cpu:6.2f} s CPU  {took.mib:5.0f} MiB"
        for name, took in rows.items()
    }
    view = fed(found)
    return {
        "load of the machine, cores": f"{os.getloadavg()[0]:.1f}, {os.cpu_count()}",
        "keys": f"{keys}",
        "floor: the same keys by the client library's watch": f"{floor:7.2f} s  {keys / floor:,.0f} keys/s",
        "the same by our own reader": f"{read:7.2f} s  {read / floor:5.1f} x floor",
        "roster.yaml read and sealed after a change by hand": f"{parsed:7.2f} s",
        **shown,
        "the view, entries fed": f"{view:,.0f}/s  {keys / floor / view:5.1f} x floor",
        "the view, statuses kept up with through NATS": f"{rate:,.0f}/s  {keys / floor / rate:5.1f} x floor",
    }


def main(counts: list[int]) -> None:
    """Print a table a fleet."""
    for count in counts:
        with (
            tempfile.TemporaryDirectory(prefix="fleet-") as folder,
            NatsServer(Path(folder) / "nats") as server,
        ):
            print(f"{count} devices, {DEPLOYMENTS} deployments each")
            for name, figure in asyncio.run(measure(server, Path(folder) / "home", count)).items():
                print(f"  {name:52} {figure}", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1000, 10_000])
