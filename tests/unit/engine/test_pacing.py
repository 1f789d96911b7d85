"""What counts as drift and what doesn't, through the engine with a real kind over a fake podman."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harmony_agent.adapters.timezones import SystemTimezones
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.container import ContainerReconciler
from harmony_agent.kinds.systemd_unit import UnitReconciler
from tests.fakes.containers import FakeContainers, FakeDeviceNodes, FakeEnvFiles
from tests.fakes.images import puller
from tests.fakes.units import FakeUnits
from tests.unit.engine.world import DEVICE, World, file

ONCE = {"kind": "Container", "name": "job", "image": "localhost/busybox", "restart": "never"}


class Podman:
    """A world whose only kind is Container."""

    def __init__(self) -> None:
        self.world = World(self._kinds)
        self.containers: FakeContainers | None = None
        self.boot = 1

    def _kinds(self, book: DeviceState) -> dict[str, Any]:
        self.containers = self.containers or FakeContainers()
        containers = self.containers
        return {
            "Container": ContainerReconciler(
                containers,
                FakeEnvFiles(),
                FakeDeviceNodes(),
                SystemTimezones(),
                DeviceStateView(book, "Container"),
                device=DEVICE,
                boot_id=f"{self.boot}",
                env_roots=["/srv"],
                now=lambda: containers.now,
                puller=puller(containers, DeviceStateView(book, "Container")),
            )
        }


@pytest.mark.parametrize("drift", ["enforce", "report"])
def test_that_a_container_ended_as_it_should_is_no_drift(drift: str) -> None:
    podman = Podman()
    world = podman.world

    async def test() -> None:
        await world.start()
        world.publish(1, {**ONCE, "drift": drift})
        await world.told("Converged", 1)
        assert podman.containers is not None
        podman.containers.exits("job", 0)
        await world.until(lambda: world.status("Container/job").phase == "Completed")
        assert world.status("Container/job").drift is None

    world.run(test())


@pytest.mark.parametrize("drift", ["enforce", "report"])
def test_a_reboot_is_no_drift(drift: str) -> None:
    podman = Podman()
    world = podman.world

    async def test() -> None:
        await world.start()
        world.publish(1, {**ONCE, "restart": "always", "drift": drift})
        await world.told("Converged", 1)
        await world.stop()
        assert podman.containers is not None
        podman.containers.reboot()
        podman.boot += 1
        await world.start()
        await world.until(
            lambda: podman.containers and podman.containers.get("job").state == "running"
        )
        await world.until(lambda: world.status("Container/job").phase == "Ready")
        assert world.status("Container/job").drift is None

    world.run(test())


class Dying(FakeContainers):
    """Whatever is started ends before anybody looks."""

    async def start(self, ident: str) -> None:
        await super().start(ident)
        self.exits(self.made[ident].name, len(self.calls))


def test_what_ends_before_anybody_looks_is_started_anew_once_and_then_at_a_distance() -> None:
    """A pass acts and looks several times: what it started itself and ended again is a crash as any
    other.
    """
    podman = Podman()
    podman.containers = Dying()
    world = podman.world

    def starts() -> int:
        assert podman.containers is not None
        return sum(call[0] == "start" for call in podman.containers.calls)

    async def test() -> None:
        await world.start()
        world.publish(1, {**ONCE, "restart": "always"})
        await world.told("Degraded", 1)
        assert world.status("Container/job").reason == "CrashLoop"
        assert starts() == 2
        await asyncio.sleep(9)
        assert starts() == 2
        await asyncio.sleep(2)
        assert starts() == 3

    world.run(test())


def test_drift_that_is_only_reported_is_not_repaired() -> None:
    podman = Podman()
    world = podman.world

    async def test() -> None:
        await world.start()
        world.publish(1, {**ONCE, "drift": "report"})
        await world.told("Converged", 1)
        assert podman.containers is not None
        await podman.containers.remove(podman.containers.get("job").id)
        await world.until(lambda: world.status("Container/job").reason == "DriftReported")
        shown = world.status("Container/job").drift
        assert shown is not None
        assert (shown.action, shown.fields, shown.count) == ("reported", ["name"], 0)
        assert podman.containers.named("job") is None

    world.run(test())


def test_what_does_not_live_is_restarted_though_drift_is_only_reported() -> None:
    """Liveness is health, no drift: what differs stays as it is, what hangs is restarted, with the
    usual pauses.
    """
    podman = Podman()
    world = podman.world
    probe = {"exec": ["alive"], "period_seconds": 1, "failure_threshold": 2}

    async def test() -> None:
        await world.start()
        world.publish(1, {**ONCE, "restart": "always", "drift": "report", "liveness": probe})
        await world.told("Converged", 1)
        assert podman.containers is not None
        one = podman.containers.get("job")
        await podman.containers.rename(one.id, "by-hand")
        await world.until(lambda: world.status("Container/job").reason == "DriftReported")
        began, run = world.loop.passed, one.started
        podman.containers.exec_codes["alive"] = 1
        await world.until(lambda: one.started != run)
        assert world.loop.passed - began < 5
        run = one.started
        await world.until(lambda: world.status("Container/job").reason == "LivenessFailed")
        shown = world.status("Container/job").drift
        assert shown is not None
        assert (shown.action, shown.fields, shown.count) == ("reported", ["name"], 0)
        await world.until(lambda: one.started != run)
        assert world.loop.passed - began > 10  # the second time there was a pause
        podman.containers.exec_codes["alive"] = 0
        await world.until(lambda: world.status("Container/job").reason == "DriftReported")
        assert one.name == "by-hand"

    world.run(test())


class Stubborn(FakeContainers):
    """A podman that says yes and does nothing, and tells of it."""

    async def unpause(self, ident: str) -> None:
        self._change("unpause", ident)
        self._tell(self.made[ident])


class Unmoved(FakeUnits):
    """A manager that enables and disables nothing, and tells of every reload."""

    async def enable(self, name: str) -> None:
        self.calls.append(f"enable {name}")

    async def disable(self, name: str, *, runtime: bool) -> None:
        self.calls.append(f"disable {name}")

    async def reload(self, name: str) -> None:
        await super().reload(name)
        self.hears(name)


UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=default.target\n"
GOALS: dict[str, dict[str, Any]] = {
    "enabled": {"enabled": True, "content": UNIT},
    "disabled": {"enabled": False},
}


@pytest.mark.parametrize("goal", GOALS)
def test_a_unit_that_never_gets_there_is_asked_for_less_and_less(goal: str) -> None:
    units = Unmoved()
    units.vendor["web.service"] = UNIT
    units.enabled |= {"web.service"} if goal == "disabled" else set()
    world = World(
        lambda book: {"SystemdUnit": UnitReconciler(units, DeviceStateView(book, "SystemdUnit"))}
    )
    score = {"kind": "SystemdUnit", "name": "web.service", "adopt": True, **GOALS[goal]}
    world.run(_bounded(world, score, units.calls))


def test_a_container_that_never_gets_there_is_asked_for_less_and_less() -> None:
    podman = Podman()
    containers = podman.containers = Stubborn()

    def pause() -> None:
        containers.get("job").state = "paused"

    score = {"kind": "Container", "name": "job", "image": "localhost/busybox"}
    podman.world.run(_bounded(podman.world, score, containers.calls, after=pause))


def test_a_file_that_never_gets_there_is_asked_for_less_and_less() -> None:
    world = World()

    async def test() -> None:
        await world.start()
        world.files.disk = _Sieve()
        await _bounded(world, file("a"), world.files.writes, started=True)

    world.run(test())


class _Sieve(dict[str, bytes]):
    """Holds nothing."""

    def __setitem__(self, path: str, data: bytes) -> None:
        return


async def _bounded(
    world: World,
    score: dict[str, Any],
    calls: Any,
    *,
    started: bool = False,
    after: Any = lambda: None,
) -> None:
    """Changes asked of the outside in the first two minutes, and in two minutes after a quarter of
    an hour.
    """
    if not started:
        await world.start()
    world.publish(1, score)
    await asyncio.sleep(1)
    after()
    await asyncio.sleep(120)
    assert len(calls) <= 100
    await asyncio.sleep(900)
    before = len(calls)
    await asyncio.sleep(120)
    assert len(calls) - before <= 40
    world.publish(2, removed=True)
    await asyncio.sleep(300)
    assert len(calls) - before <= 140
