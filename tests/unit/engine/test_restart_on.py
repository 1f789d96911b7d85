"""What runs is restarted or reloaded once for each change of what it names: a new spec, a repair,
a File that came after it was started; and for nothing else, whenever the agent is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harmony_agent.adapters.timezones import SystemTimezones
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.container import ContainerReconciler, ImageBounds, ImagePuller
from harmony_agent.kinds.systemd_unit import UnitReconciler
from tests.fakes.containers import FakeContainers, FakeDeviceNodes, FakeEnvFiles
from tests.fakes.images import FakeImageMemory, FakeImages
from tests.fakes.memory_kind import MemoryFiles, Put
from tests.fakes.units import FakeUnits
from tests.unit.engine.world import BOOT, DEVICE, World, file

SERVICE = "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n"


class Podman(FakeContainers):
    """Podman by the device's clock."""

    def __init__(self, world: World) -> None:
        self._world, self._more = world, timedelta()
        super().__init__()

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._world.clock.now(), UTC) + self._more

    @now.setter
    def now(self, now: datetime) -> None:
        del now  # time passes by itself


class Systemd(FakeUnits):
    """Systemd by the device's clock."""

    def __init__(self, world: World) -> None:
        self._world, self._count = world, 0
        super().__init__()
        self.boot = BOOT

    @property
    def _now(self) -> int:
        self._count += 1
        return int(self._world.clock.monotonic() * 1e6) + self._count % 1000

    @_now.setter
    def _now(self, now: int) -> None:
        del now


class Files(MemoryFiles):
    """May be killed right after it wrote."""

    killed: asyncio.Event | None = None

    async def apply(self, action: Any) -> None:
        await super().apply(action)
        if self.killed is not None and isinstance(action, Put):
            self.killed.set()
            await asyncio.sleep(1000)


class Device:
    """Files, containers and units in memory."""

    def __init__(self) -> None:
        self.world = World(self.kinds)
        self.podman = Podman(self.world)
        self.systemd = Systemd(self.world)
        self.images = FakeImages(self.podman)

    def puller(self, state: DeviceState) -> ImagePuller:
        """What pulls its images."""
        view = DeviceStateView(state, "Container")
        now = lambda: self.podman.now  # noqa: E731
        return ImagePuller(
            self.podman,
            self.images,
            FakeImageMemory(),
            view,
            now=now,
            local=now,
            bounds=ImageBounds(),
        )

    def kinds(self, state: DeviceState) -> dict[str, Any]:
        self.files = Files(DeviceStateView(state, "File"))
        self.files.disk = self.world.disk
        return {
            "File": self.files,
            "Container": ContainerReconciler(
                self.podman,
                FakeEnvFiles(),
                FakeDeviceNodes(),
                SystemTimezones(),
                DeviceStateView(state, "Container"),
                device=DEVICE,
                boot_id=BOOT,
                env_roots=["/srv"],
                now=lambda: self.podman.now,
                puller=self.puller(state),
            ),
            "SystemdUnit": UnitReconciler(self.systemd, DeviceStateView(state, "SystemdUnit")),
        }

    def run(self, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def started() -> None:
            await self.world.start()
            await test()

        self.world.run(started())

    async def applied(self, generation: int, *scores: dict[str, Any]) -> None:
        self.world.publish(generation, *scores)
        await self.world.told("Converged", generation)
        await asyncio.sleep(25)

    def edit(self) -> None:
        self.world.disk["/srv/config"] = b"edited by hand"

    def restarts(self, name: str = "app") -> int:
        calls = self.podman.calls
        return sum(call[:2] == ("restart", name) for call in calls)

    def calls(self, what: str) -> int:
        return self.systemd.calls.count(f"{what} app.service")


@pytest.fixture
def device() -> Device:
    return Device()


CONFIG = file("config")


def container(name: str = "app", *restart_on: str, **more: Any) -> dict[str, Any]:
    score = {"kind": "Container", "name": name, "image": "localhost/busybox"}
    return {**score, "restart_on": list(restart_on), **more}


def unit(**more: Any) -> dict[str, Any]:
    return {"kind": "SystemdUnit", "name": "app.service", **more}


APP = container("app", "File/config")


def test_a_repair_is_a_change_once(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, APP)
        assert device.restarts() == 0
        device.edit()
        await asyncio.sleep(30)
        assert (device.world.disk["/srv/config"], device.restarts()) == (b"1", 1)
        assert device.world.status("Container/app").phase == "Ready"
        await asyncio.sleep(100)
        assert device.restarts() == 1
        device.edit()
        await asyncio.sleep(30)
        assert device.restarts() == 2

    device.run(test)


def test_a_new_content_is_a_change_once(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, APP)
        device.world.publish(2, file("config", content="2"), APP)
        await device.world.told("Converged", 2)
        assert device.restarts() == 1  # before it is said to be converged
        await asyncio.sleep(60)
        assert device.restarts() == 1

    device.run(test)


def test_drift_found_at_the_start_is_a_change_once(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, APP)
        await device.world.stop()
        device.edit()
        await device.podman.restart(device.podman.get("app").id, 1)  # it reads what was edited
        device.podman.calls.clear()
        await device.world.start()
        await asyncio.sleep(30)
        assert (device.world.disk["/srv/config"], device.restarts()) == (b"1", 1)
        await device.world.stop()
        await device.world.start()
        await asyncio.sleep(30)
        assert device.restarts() == 1

    device.run(test)


def test_a_kill_between_repair_and_restart_loses_no_restart(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, APP)
        device.files.killed = asyncio.Event()
        device.edit()
        await device.files.killed.wait()
        assert (device.world.disk["/srv/config"], device.restarts()) == (b"1", 0)
        for _ in range(3):
            await device.world.stop()
            await device.world.start()
            await asyncio.sleep(30)
        assert device.restarts() == 1

    device.run(test)


def test_a_kill_in_the_restart_repeats_none_that_was_done(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, APP)
        restart, killed = device.podman.restart, asyncio.Event()

        async def cut(ident: str, grace: int) -> None:
            await restart(ident, grace)
            killed.set()
            await asyncio.sleep(1000)

        device.podman.restart = cut  # type: ignore[method-assign]
        device.edit()
        await killed.wait()
        await device.world.stop()
        device.podman.restart = restart  # type: ignore[method-assign]
        await device.world.start()
        await asyncio.sleep(60)
        assert device.restarts() == 1

    device.run(test)


def test_a_file_that_comes_in_the_second_generation_is_read(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, container())
        await device.applied(2, CONFIG, APP)
        assert device.restarts() == 1

    device.run(test)


def test_to_name_a_file_that_was_read_restarts_nothing(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG)
        await device.applied(2, CONFIG, container())
        await device.applied(3, CONFIG, APP)
        assert device.restarts() == 0

    device.run(test)


def test_a_default_that_is_spelt_out_restarts_nothing(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, APP)
        await device.applied(2, {**CONFIG, "drift": "enforce", "adopt": False}, APP)
        await device.applied(3, {**CONFIG, "on_remove": "orphan"}, APP)
        assert device.restarts() == 0

    device.run(test)


def test_a_restart_is_no_change_for_the_next_in_the_chain(device: Device) -> None:
    async def test() -> None:
        last = container("last", "Container/app")
        await device.applied(1, CONFIG, APP, last)
        device.edit()
        await asyncio.sleep(30)
        assert (device.restarts(), device.restarts("last")) == (1, 0)
        await device.applied(2, CONFIG, {**APP, "hostname": "h"}, last)
        assert (device.restarts(), device.restarts("last")) == (1, 1)  # app was made anew

    device.run(test)


def test_a_container_that_was_stopped_by_hand_is_no_change(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, container(), container("last", "Container/app"))
        await device.podman.stop(device.podman.get("app").id, 1)
        await asyncio.sleep(30)
        assert device.podman.get("app").state == "running"
        assert device.restarts("last") == 0

    device.run(test)


def test_a_unit_that_ran_already_reads_the_file_that_came(device: Device) -> None:
    async def test() -> None:
        device.systemd.vendor["app.service"] = SERVICE
        await device.systemd.start("app.service")
        await asyncio.sleep(5)
        await device.applied(1, CONFIG, unit(restart_on=["File/config"]))
        assert device.calls("restart") == 1
        await device.world.stop()
        await device.world.start()
        await asyncio.sleep(30)
        assert device.calls("restart") == 1

    device.run(test)


def test_a_unit_is_reloaded_once_for_a_repair(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, CONFIG, unit(content=SERVICE, reload_on=["File/config"]))
        assert device.calls("reload-unit") == 0
        device.edit()
        await asyncio.sleep(30)
        assert (device.calls("reload-unit"), device.calls("restart")) == (1, 0)
        await device.world.stop()
        await device.world.start()
        await asyncio.sleep(30)
        assert device.calls("reload-unit") == 1

    device.run(test)


def test_drift_that_is_only_reported_changes_nothing(device: Device) -> None:
    async def test() -> None:
        await device.applied(1, {**CONFIG, "drift": "report"}, APP)
        device.edit()
        await asyncio.sleep(30)
        assert device.restarts() == 0
        assert device.world.status("File/config").reason == "DriftReported"

    device.run(test)


def instance(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "SystemdUnit", "name": f"app@{name}.service", **more}


def template(text: str = "a") -> dict[str, Any]:
    content = f"[Unit]\nDescription={text}\n{SERVICE}"
    return {"kind": "SystemdUnit", "name": "app@.service", "content": content}


def test_a_changed_template_restarts_its_running_instances_once(device: Device) -> None:
    def restarts() -> list[str]:
        return [call for call in device.systemd.calls if call.startswith("restart ")]

    async def test() -> None:
        device.systemd.vendor |= {f"app@{name}.service": SERVICE for name in ("a", "b", "off")}
        others = [
            instance("own", content=SERVICE),
            instance("off", state="stopped"),
            {"kind": "SystemdUnit", "name": "other@a.service", "content": SERVICE},
        ]
        await device.applied(1, template(), instance("a"), instance("b"), *others)
        assert restarts() == []
        device.world.publish(2, template("b"), instance("a"), instance("b"), *others)
        await device.world.told("Converged", 2)
        assert sorted(restarts()) == ["restart app@a.service", "restart app@b.service"]
        await device.world.stop()
        await device.world.start()
        await asyncio.sleep(30)
        assert len(restarts()) == 2
        device.systemd.disk["app@.service"] = "[Service]\nExecStart=/bin/evil\n"
        await asyncio.sleep(30)
        assert len(restarts()) == 4
        await device.applied(3, instance("a"), instance("b"), *others)
        assert len(restarts()) == 4

    device.run(test)


def test_a_template_of_another_deployment_restarts_nothing(device: Device) -> None:
    async def test() -> None:
        device.systemd.vendor["app@a.service"] = SERVICE
        device.world.publish(1, template(), deployment="base")
        await device.world.told("Converged", 1, "base")
        await device.applied(1, instance("a"))
        device.world.publish(2, template("b"), deployment="base")
        await device.world.told("Converged", 2, "base")
        await device.applied(2, instance("a"), CONFIG)
        assert not [call for call in device.systemd.calls if call.startswith("restart ")]

    device.run(test)
