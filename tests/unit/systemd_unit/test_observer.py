"""What a survey tells, whatever happens while it looks. The manager is a stand-in that signals at a
chosen moment.
"""

from __future__ import annotations

from typing import Any

from harmony_agent.adapters.posix.listeners import Listeners
from harmony_agent.adapters.systemd.diagnosis import Diagnosis
from harmony_agent.adapters.systemd.observer import UnitObserver
from harmony_agent.adapters.systemd.unit_files import OnDisk
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import UNREADABLE, Unit

PATHS = {"a.service": "/unit/a", "b.service": "/unit/b"}


class Manager:
    """Lists two units that run. Tells of a change of the first just as the second has been read."""

    connections = 1

    def __init__(self) -> None:
        self.unit_changed = Listeners[str]()
        self.reloading = Listeners[bool]()

    async def manager(
        self, method: str, _signature: str = "", names: Any = ()
    ) -> list[tuple[Any, ...]]:
        listed = names if method == "ListUnitsByNames" else PATHS
        return [
            (name, "", "loaded", "active", "running", "", PATHS[name], 0, "", "/")
            for name in listed
        ]

    async def call(self, path: str, *_words: Any) -> dict[str, tuple[str, Any]]:
        if path == PATHS["b.service"]:
            for changed in PATHS.values():
                self.unit_changed.tell(changed)
        return {"MainPID": ("u", 7)}


class Disk:
    """Both have a file; nothing is enabled."""

    directory = "/nowhere"

    def scan(self, names: Any) -> dict[str, OnDisk]:
        return {name: OnDisk({name: "[Service]\n"}) for name in names}

    async def fingerprint(self) -> tuple[()]:
        return ()

    async def state(self, *_about: Any) -> str:
        return "static"

    def retain(self, *_names: Any) -> None:
        """Nothing is kept."""

    async def run(self, *words: Any) -> Any:
        return words[-1](None)


async def test_what_changes_while_it_is_read_is_not_gone() -> None:
    manager, disk = Manager(), Disk()
    sight = UnitObserver(manager, disk, disk, disk, Diagnosis("user"))  # type: ignore[arg-type]
    heard: list[str] = []
    sight.changed.add(heard.append)
    try:
        for _ in range(3):
            assert set(await sight.list_units(list(PATHS))) == set(PATHS)
    finally:
        sight.close()
    assert set(heard) == set(PATHS)


class Closed(Disk):
    """The manager may read no file of the units, as the agent; or only the agent may."""

    def __init__(self, stands: str) -> None:
        self.stands = stands

    def scan(self, names: Any) -> dict[str, OnDisk]:
        return {name: OnDisk({name: self.stands}) for name in names}

    async def state(self, *_about: Any) -> str:
        raise Transient("AccessDenied", "systemd refuses GetUnitFileState", phase="Blocked")


async def _looked(stands: str) -> Unit | None:
    disk = Closed(stands)
    sight = UnitObserver(Manager(), disk, disk, disk, Diagnosis("user"))  # type: ignore[arg-type]
    try:
        return (await sight.list_units(["a.service"])).get("a.service")
    finally:
        sight.close()


async def test_a_file_that_nobody_can_read_is_shown_and_hides_no_unit() -> None:
    found = await _looked(UNREADABLE)
    assert found is not None
    assert (found.files, found.unit_file_state) == ({"a.service": UNREADABLE}, "")
    assert found.refusal is not None
    assert found.refusal.reason == "AccessDenied"
    linked = await _looked("link:/root/closed.service")  # what it leads to can't be read
    assert linked is not None
    assert linked.refusal is not None
