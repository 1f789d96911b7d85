"""Where the cases of `units_cases` happen: a service manager, an agent's kind on it, and a person
with a shell.

Two worlds: `FakeWorld` in memory, and `RealWorld` on a booted Debian, which `python -m
tests.contract.units_world` runs there. Must import nothing that a device hasn't got: no pytest.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Protocol

from harmony_agent.core.actions import Converged, Wait
from harmony_agent.kinds.systemd_unit import UnitReconciler
from harmony_agent.topology.units import MASK, Unit, Units
from scores.systemd_unit import SystemdUnit
from tests.fakes import drive
from tests.fakes.store import FakeStore
from tests.fakes.units import FakeUnits

PATIENCE = 60.0


class World(Protocol):
    """What a case may use."""

    units: Units
    store: FakeStore
    kind: UnitReconciler

    async def systemctl(self, verb: str, *names: str) -> None:
        """A person's systemctl."""

    async def put(self, place: str, text: str) -> None:
        """A person writes a file in the unit directory, in place."""

    async def take(self, place: str) -> None:
        """A person removes one."""

    async def vendor(self, name: str, text: str) -> None:
        """A package brings a unit, and the manager loads it."""

    async def touch(self, path: str) -> None:
        """A file comes into being, for conditions."""

    async def kill(self, name: str) -> None:
        """The unit's main process is killed."""

    async def ends(self, name: str) -> None:
        """The unit's process comes to its end."""

    async def crash(self) -> None:
        """The agent is killed and comes back: a new connection, the same store."""

    async def reloads(self) -> int:
        """How often the manager loaded all unit files."""

    async def close(self) -> None:
        """Everything that a case made goes."""


async def settle(world: World, name: str, *, until: str = "") -> drive.Pass:
    """Passes until the plan is Converged or something else than progress (or a Wait of reason
    `until`).
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        done = await drive.run(world.kind, world.store, name)
        plan = done.plan
        if isinstance(plan, Wait) and (
            plan.reason == until or (not until and plan.phase != "Progressing")
        ):
            return done
        if isinstance(plan, Converged) and not until:
            return done
        assert time.monotonic() < deadline, (
            f"{name} doesn't settle: {plan} {await world.units.look(name)}"
        )
        await asyncio.sleep(0.05)


async def want(world: World, spec: SystemdUnit, **tokens: str) -> drive.Pass:
    """Want `spec`, and let it settle."""
    world.store.set_desired(spec, **tokens)
    return await settle(world, spec.name)


async def gone(world: World, name: str) -> None:
    """Want `name` no more, and let it go."""
    world.store.unset(name)
    done = await settle(world, name)
    assert isinstance(done.plan, Converged), done.plan
    assert world.store.record(name) is None


async def seen(world: World, name: str) -> Unit:
    """The unit, which must exist."""
    unit = await world.units.look(name)
    assert unit is not None, f"{name} doesn't exist"
    return unit


class FakeWorld:
    """In memory."""

    def __init__(self) -> None:
        self.units: FakeUnits = FakeUnits()
        self.store = FakeStore("SystemdUnit")
        self.kind = UnitReconciler(self.units, self.store)

    async def systemctl(self, verb: str, *names: str) -> None:
        calls, reloads = list(self.units.calls), self.units.reloads
        for name in names:
            match verb:
                case "start" | "stop" | "restart" | "enable" | "mask":
                    await getattr(self.units, verb)(name)
                    self.units.held.discard(name)
                case "disable" | "unmask":
                    await getattr(self.units, verb)(name, runtime=False)
        await self.units.reload("")
        self.units.calls, self.units.reloads = calls, reloads

    async def put(self, place: str, text: str) -> None:
        self.units.disk[place] = text

    async def take(self, place: str) -> None:
        self.units.disk.pop(place)

    async def vendor(self, name: str, text: str) -> None:
        self.units.vendor[name] = text

    async def touch(self, path: str) -> None:
        self.units.paths.add(path)

    async def kill(self, name: str) -> None:
        self.units.exits(name, code=9)

    async def ends(self, name: str) -> None:
        self.units.loaded[name].job = ""
        self.units.exits(name)

    async def crash(self) -> None:
        self.units.crash()

    async def reloads(self) -> int:
        return self.units.reloads

    async def close(self) -> None:
        await self.units.close()


class RealWorld:
    """systemd on this machine, in the scope of who runs this."""

    def __init__(self) -> None:
        from harmony_agent.adapters.systemd.bus import Bus
        from harmony_agent.adapters.systemd.units import SystemdUnits

        self._user = os.getuid() != 0
        home = Path.home()
        self._directory = (
            home / ".config/systemd/user" if self._user else Path("/etc/systemd/system")
        )
        self._vendor = (
            home / ".local/share/systemd/user"
            if self._user
            else Path("/usr/local/lib/systemd/system")
        )
        self._keep = tempfile.mkdtemp()
        self._made: set[Path] = set()
        self._touched: set[Path] = set()
        self._make = lambda: SystemdUnits(
            "user" if self._user else "system", str(self._directory), f"{self._keep}/k"
        )
        self.store = FakeStore("SystemdUnit")
        self.units: Units = self._make()
        self.kind = UnitReconciler(self.units, self.store)
        self._count = 0
        self._listener = Bus("user" if self._user else "system")

        def reloading(_begins: bool) -> None:
            self._count += 1

        self._listener.reloading.add(reloading)

    async def systemctl(self, verb: str, *names: str) -> None:
        scope = ["--user"] if self._user else []
        process = await asyncio.create_subprocess_exec(
            "systemctl", *scope, "--quiet", verb, "--", *names
        )
        await process.wait()

    async def _file(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if text == MASK:
            path.symlink_to("/dev/null")
        else:
            path.write_text(text)
        self._made.add(path)

    async def put(self, place: str, text: str) -> None:
        await self._file(self._directory / place, text)

    async def take(self, place: str) -> None:
        (self._directory / place).unlink()

    async def vendor(self, name: str, text: str) -> None:
        await self._file(self._vendor / name, text)
        await self.systemctl("daemon-reload")

    async def touch(self, path: str) -> None:
        Path(path).touch()
        self._touched.add(Path(path))

    async def kill(self, name: str) -> None:
        os.kill((await seen(self, name)).main_pid, 9)
        await asyncio.sleep(0.2)

    async def ends(self, name: str) -> None:
        await asyncio.sleep(0.8)

    async def crash(self) -> None:
        await self.units.close()
        self.units = self._make()
        self.kind = UnitReconciler(self.units, self.store)

    async def reloads(self) -> int:
        await self._listener.manager(
            "GetUnit", "s", "-.slice"
        )  # after it, everything before has been heard
        return self._count // 2

    async def close(self) -> None:
        names = {path.name.partition(".d/")[0] for path in self._made} | set(self.store.names())
        await self.systemctl("stop", *names)
        for path in self._made | self._touched:
            path.unlink(missing_ok=True)
        for name in names:
            shutil.rmtree(self._directory / f"{name}.d", ignore_errors=True)
            (self._directory / name).unlink(missing_ok=True)
            for folder in self._directory.glob(
                "*.wants"
            ):  # else the next case finds a link as its owner's
                (folder / name).unlink(missing_ok=True)
        await self.systemctl("daemon-reload")
        await self.systemctl("reset-failed")
        await self.units.close()
        self._listener.close()
        shutil.rmtree(self._keep)


async def _all(only: list[str]) -> dict[str, Any]:
    from tests.contract import units_cases

    results: dict[str, Any] = {}
    for name, case in units_cases.CASES.items():
        if only and name not in only:
            continue
        world = RealWorld()
        begun = time.monotonic()
        try:
            await world.reloads()
            async with asyncio.timeout(60):
                await case(world)
            results[name] = {"error": "", "seconds": time.monotonic() - begun}
        except BaseException:
            results[name] = {"error": traceback.format_exc(), "seconds": time.monotonic() - begun}
        try:
            await world.close()
        except BaseException:
            results[name]["error"] += traceback.format_exc()
    return results


if __name__ == "__main__":
    json.dump(asyncio.run(_all(sys.argv[1:])), sys.stdout)
