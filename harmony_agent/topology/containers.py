"""Containers: what the device's container engine can do, and what it shows of a container.

No library, no I/O.

`Containers` is implemented over podman's API and by a fake in memory; both pass one contract suite.
Its methods raise `EngineRefused` where the engine answered with an error, and
`core.errors.Transient` (PodmanUnavailable, PodmanUnreachable, Timeout) where it did not answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from harmony_agent.core.frozen import frozen
from harmony_agent.core.reconciler import LogLine

State = Literal["created", "running", "paused", "stopping", "exited", "removing", "unknown"]
Health = Literal["", "starting", "healthy", "unhealthy"]


class EngineRefused(Exception):
    """The engine answered with an error. `text` is its own and may repeat what it was given:
    sanitise before showing.

    `status` is the HTTP status, 0 where the error came inside a stream.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"the container engine refused (status {status})")
        self.status = status
        self.text = text

    def words(self) -> str:
        """The engine's own on one line, for what was given no secret."""
        return " ".join(self.text.split())[:400]

    @property
    def no_space(self) -> bool:
        """Return whether a disk is full."""
        return "no space left on device" in self.text or "disk quota exceeded" in self.text

    @property
    def in_use(self) -> bool:
        """Return whether it is refused because a container has what is to be removed."""
        return self.status == 409 or "being used" in self.text or "in use" in self.text


@frozen()
class Listed:
    """A container as one list call shows it: enough to see that nothing changed since it was last
    inspected.
    """

    id: str
    name: str
    state: State
    labels: Mapping[str, str]
    exit_code: int = 0
    started: int = 0
    ended: int = 0
    pid: int = 0
    networks: tuple[str, ...] = ()


@frozen()
class ContainerState:
    """A container as inspected.

    `config` shows what can be changed of a container without changing its id, by the Score's field
    names: memory, cpus, pids, healthcheck, network; each in a spelling that is only good for
    comparing with itself. `ports` are those of the device that it has while it runs, as
    ``("tcp", 8080)``. `stopped`: somebody asked the engine to stop it; None where an inspection
    doesn't tell (see `Containers.was_stopped`). `broken`: it is listed but can't be inspected, for
    its storage is gone.
    """

    id: str
    name: str
    state: State
    labels: Mapping[str, str]
    image_id: str = ""
    image_digest: str | None = None
    exit_code: int | None = None
    started: datetime | None = None
    finished: datetime | None = None
    health: Health = ""
    stop_timeout: int = 10
    stopped: bool | None = None
    ports: frozenset[tuple[str, int]] = frozenset()
    config: Mapping[str, str] = field(default_factory=dict)
    broken: bool = False

    @property
    def run(self) -> str:
        """Name of the current or last run, unique on this device."""
        return f"{self.id}@{self.started.isoformat()}" if self.started else f"{self.id}@"


@frozen()
class Image:
    """An image that is on the device. `entrypoint` is its own."""

    id: str
    digest: str | None
    entrypoint: tuple[str, ...] = ()


@frozen()
class EngineHost:
    """The host as the engine tells of it: the cgroup controllers that it can limit containers by (None
    where it can't tell), and the name of its runtime.
    """

    controllers: frozenset[str] | None
    runtime: str = ""


@frozen()
class Subordinates:
    """The subordinate ids of the device from which containers get users of their own: whose, and
    how many.
    """

    user: str
    count: int


NO_SUBORDINATES: Final = Subordinates("", 0)


@frozen()
class ContainerEvent:
    """Something happened to the container `name`."""

    id: str
    name: str
    labels: Mapping[str, str]


class Containers(Protocol):
    """A container engine. `ident` is a full id, `ref` a full id or a full name; never a prefix of
    either.
    """

    async def version(self) -> str:
        """The engine's version, as ``4.3.1``."""
        ...

    async def host(self) -> EngineHost:
        """Its host, which only a change of its configuration or a reboot changes."""
        ...

    async def list(self, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Every container, running or not, that has all of these labels. One call."""
        ...

    async def inspect(self, ref: str) -> ContainerState | None:
        """Inspect one container. None if none has exactly this id or name."""
        ...

    async def was_stopped(self, state: ContainerState) -> bool | None:
        """Tell by the engine's events if somebody asked for the end of this run; None where they
        don't show it. A stop shows a moment after the end.
        """
        ...

    async def image(self, ref: str) -> Image | None:
        """An image on the device; None when it isn't there."""
        ...

    async def create(self, payload: Mapping[str, Any]) -> str:
        """Create a container from a SpecGenerator value; its id."""
        ...

    async def clear_storage(self, ident: str) -> None:
        """Remove what a container of this full id left in the storage, where the engine itself
        knows no such one.
        """
        ...

    async def init(self, ident: str) -> None:
        """Make all ready for a start: its user, its command, its mounts, its network and ports.
        Nothing of it runs yet.
        """
        ...

    async def start(self, ident: str) -> None:
        """Start it; nothing happens when it runs."""
        ...

    async def stop(self, ident: str, grace: int) -> None:
        """Ask it to stop, kill it after `grace` seconds; returns when it has stopped, or isn't
        there.
        """
        ...

    async def restart(self, ident: str, grace: int) -> None:
        """Stop, then start."""
        ...

    async def unpause(self, ident: str) -> None:
        """Let a paused one go on."""
        ...

    async def rename(self, ident: str, name: str) -> None:
        """Give it another name; its id stays."""
        ...

    async def remove(self, ident: str) -> None:
        """Kill and remove it with its anonymous volumes (named ones stay); nothing happens when it
        isn't there.
        """
        ...

    async def exec(self, ident: str, argv: Sequence[str], timeout: float) -> int:
        """Run an argument list in it and return the exit code. The output is dropped."""
        ...

    async def logs(self, ident: str, lines: int, seconds: float | None = None) -> Sequence[LogLine]:
        """The last lines it wrote, oldest first; bounded in bytes as well, and of the last
        `seconds` where that is set.
        """
        ...

    def events(self) -> AsyncIterator[ContainerEvent]:
        """Stream events of containers, from now on.

        Reconnects by itself; some events may be missed.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
