"""What a survey tells, whatever happens while it looks. The manager is a stand-in that signals at a
chosen moment.
"""

from __future__ import annotations

from typing import Any

from harmony_agent.adapters.posix.listeners import Listeners
from harmony_agent.adapters.systemd.observer import UnitObserver
from harmony_agent.adapters.systemd.unit_files import OnDisk

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
    sight = UnitObserver(manager, disk, disk, disk)  # type: ignore[arg-type]
    heard: list[str] = []
    sight.changed.add(heard.append)
    try:
        for _ in range(3):
            assert set(await sight.list_units(list(PATHS))) == set(PATHS)
    finally:
        sight.close()
    assert set(heard) == set(PATHS)
