"""Each kind on a device in memory, behind one face: for what holds of every kind.

A kind whose part of the device isn't here can't be tested by `test_every_kind.py`, which says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harmony_agent.kinds.system_upgrade.plan import LINGER
from harmony_agent.topology.packages import PackageState
from scores.base import Score
from scores.file import File
from scores.network import Network
from scores.package import Package
from scores.system_upgrade import SystemUpgrade
from scores.volume import Volume
from tests.fakes.store import FakeStore
from tests.unit.container import bench as containers
from tests.unit.file.world import World as FileWorld
from tests.unit.network.test_passes import Bench as NetworkBench
from tests.unit.package.test_package import Bench as PackageBench
from tests.unit.session import bench as sessions
from tests.unit.system_upgrade.test_system_upgrade import World as UpgradeWorld
from tests.unit.systemd_unit import bench as units
from tests.unit.volume.test_passes import Bench as VolumeBench


async def _nothing() -> None:
    """The device does nothing by itself."""


@dataclass
class Device:
    """One kind and its part of a device.

    `first` and `second` are two specs of one name. `kind` is asked for anew, as `restart` makes
    another. `stands` lists what is there, `changes` what was ever done to the device. `goes_on` lets
    the device do what it does by itself.
    """

    store: FakeStore
    kind: Callable[[], Any]
    restart: Callable[[], object]
    first: Score
    second: Score
    stands: Callable[[], list[str]]
    changes: Callable[[], int]
    goes_on: Callable[[], Awaitable[None]] = _nothing


def _file() -> Device:
    world = FileWorld()
    return Device(
        world.store,
        lambda: world.kind,
        world.restart,
        File(name="a", path="/srv/d/a", content="1", parents=True),
        File(name="a", path="/srv/e/a", content="2", mode="0600", parents=True),
        lambda: sorted(world.files.things),
        lambda: len(world.files.changes),
    )


def _unit() -> Device:
    bench = units.Bench()
    return Device(
        bench.store,
        lambda: bench.kind,
        bench.restart_agent,
        units.web(state="running", enabled=True),
        units.web(content=units.SLEEP + "# 2\n", dropins={"a.conf": "[Service]\nNice=5\n"}),
        lambda: sorted({*bench.units.disk, *bench.units.enabled}),
        lambda: len(bench.units.calls),
    )


def _container() -> Device:
    bench = containers.Bench()
    return Device(
        bench.store,
        lambda: bench.kind,
        bench.restart_agent,
        containers.web(),
        containers.web(hostname="h"),
        lambda: sorted(one.name for one in bench.containers.made.values()),
        lambda: len(bench.containers.calls),
    )


def _session() -> Device:
    bench = sessions.Bench()
    return Device(
        bench.store,
        lambda: bench.kind,
        bench.restart_agent,
        sessions.worker(),
        sessions.worker(command=["/usr/bin/top", "-b"]),
        bench.sessions.names,
        lambda: len(bench.sessions.calls),
    )


def _volume() -> Device:
    bench = VolumeBench()
    return Device(
        bench.store,
        lambda: bench.kind,
        bench.restart_agent,
        Volume(name="data", on_remove="orphan"),
        Volume(name="data", on_remove="delete-data"),
        lambda: sorted(bench.volumes.made),
        lambda: len(bench.volumes.calls),
    )


def _network() -> Device:
    bench = NetworkBench()
    return Device(
        bench.store,
        lambda: bench.kind,
        bench.restart_agent,
        Network(name="home", subnet="10.89.5.0/24"),
        Network(name="home", subnet="10.89.6.0/24"),
        lambda: sorted(bench.networks.made),
        lambda: len(bench.networks.calls),
    )


def _upgrade() -> Device:
    """Nothing of an upgrade stands on the device; an attempt goes on until it is complete, and is
    shown for a while.
    """
    world = UpgradeWorld()

    async def goes_on() -> None:
        for asked in world.updater.asks:
            world.updater.put(asked, "complete")
        await world.clock.advance(LINGER + 1)

    def attempt(number: int) -> SystemUpgrade:
        fields = {"attempt_id": f"a{number}", "run_uid": "r", "expires_at": "2026-11-29T18:00:00Z"}
        return SystemUpgrade.model_validate({"name": "os", **fields})

    return Device(
        world.store,
        lambda: world.kind,
        world.restarted,
        attempt(1),
        attempt(2),
        list,
        lambda: len(world.updater.asks),
        goes_on,
    )


def _package() -> Device:
    """Nothing is done for a package: what stands is what somebody else installed."""
    bench = PackageBench()
    bench.packages.known = {"gpiod": PackageState("1")}
    return Device(
        bench.store,
        lambda: bench.kind,
        bench.restart_agent,
        Package(name="gpiod"),
        Package(name="gpiod", version="1"),
        list,
        lambda: 0,
    )


DEVICES: Mapping[str, Callable[[], Device]] = {
    "File": _file,
    "SystemdUnit": _unit,
    "Container": _container,
    "SystemUpgrade": _upgrade,
    "Session": _session,
    "Volume": _volume,
    "Network": _network,
    "Package": _package,
}
