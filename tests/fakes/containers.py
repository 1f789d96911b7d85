"""A container engine in memory that behaves as podman does where the Container kind leans on it.

Also what tests do behind the agent's back: `exits`, `kill`, `reboot`, `power_cut`, `lose_storage`;
and `refuse`, which makes one operation fail with podman's words. `calls` lists every change that
was asked for, oldest first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine
from harmony_agent.topology.containers import (
    ContainerEvent,
    ContainerState,
    EngineHost,
    EngineRefused,
    Health,
    Image,
    Listed,
    State,
)
from harmony_agent.topology.device_nodes import DeviceNode


@dataclass
class Made:
    """One container."""

    id: str
    name: str
    payload: dict[str, Any]
    image: Image
    state: State = "created"
    exit_code: int = 0
    started: datetime | None = None
    finished: datetime | None = None
    health: Health = ""
    config: dict[str, str] = field(default_factory=dict)
    lost: bool = False
    stopped: bool = False


class FakeContainers:
    """Implements `topology.containers.Containers`."""

    def __init__(self, images: Collection[str] = ("localhost/busybox",)) -> None:
        self.images = {name: _image(name) for name in images}
        self.registry: dict[str, Image] = {}
        self.made: dict[str, Made] = {}
        self.leftovers: dict[str, str] = {}
        self.calls: list[tuple[str, ...]] = []
        self.reads = 0
        self.missing_commands: set[str] = set()
        self.exec_codes: dict[str, int] = {}
        self.said: dict[str, list[str]] = {}
        self.silent_pulls = False
        self.shows_stops, self.keeps_events = True, True
        """an inspection tells who stopped it, as podman 5's; else the events, as podman 4.3's"""
        self.now = datetime(2026, 11, 29, 17, tzinfo=UTC)
        self.events_queue: asyncio.Queue[ContainerEvent] = asyncio.Queue()
        self.closed = False
        self.runtime = "crun"
        self.controllers_here: frozenset[str] | None = frozenset({"memory", "cpu", "pids"})
        self._count = 0
        self._refusals: dict[str, list[EngineRefused | Transient]] = {}

    # What a test does.

    def refuse(
        self, operation: str, text: str = "refused", status: int = 500, times: int = 1
    ) -> None:
        """The next calls of `operation` are answered with an error."""
        self._refusals.setdefault(operation, []).extend([EngineRefused(status, text)] * times)

    def silence(self, operation: str, reason: str = "Timeout", times: int = 1) -> None:
        """The next calls of `operation` aren't answered."""
        error = Transient(reason, f"podman did not answer {operation}", phase="Unknown")
        self._refusals.setdefault(operation, []).extend([error] * times)

    def named(self, name: str) -> Made | None:
        """The container of this name."""
        return next((one for one in self.made.values() if one.name == name), None)

    def get(self, name: str) -> Made:
        """The container of this name, which must exist."""
        found = self.named(name)
        assert found is not None, f"no container {name}"
        return found

    def exits(self, name: str, code: int) -> None:
        """It ends by itself."""
        one = self.get(name)
        self._tick()
        one.state, one.exit_code, one.finished = "exited", code, self.now
        self._tell(one)

    def reboot(self) -> None:
        """In order: what runs ends by SIGTERM, and podman sees it."""
        for one in self.made.values():
            if one.state in ("running", "paused", "stopping"):
                self._tick()
                one.state, one.exit_code, one.finished = "exited", 143, self.now

    def power_cut(self) -> None:
        """What ran is exited, with no end that podman saw."""
        for one in self.made.values():
            if one.state in ("running", "paused", "stopping"):
                one.state, one.exit_code = "exited", 0

    def lose_storage(self, name: str) -> None:
        """Its layer never reached the disk."""
        self.get(name).lost = True

    def forget(self, name: str) -> None:
        """The engine's database loses it; its storage still holds the name."""
        one = self.get(name)
        del self.made[one.id]
        self.leftovers[one.id] = name

    def foreign(
        self, name: str, *, running: bool = True, labels: Mapping[str, str] | None = None
    ) -> Made:
        """A container that somebody else made."""
        one = self._add(
            name, {"name": name, "labels": dict(labels or {})}, _image("localhost/theirs")
        )
        if running:
            self._run(one)
        return one

    # Looking.

    async def version(self) -> str:
        return "5.4.2"

    async def host(self) -> EngineHost:
        return EngineHost(self.controllers_here, self.runtime)

    async def list(self, labels: Mapping[str, str]) -> Sequence[Listed]:
        self._read("list")
        found = [one for one in self.made.values() if labels.items() <= self._labels(one).items()]
        return [
            Listed(
                id=one.id,
                name=one.name,
                state=one.state,
                labels=self._labels(one),
                exit_code=one.exit_code,
                started=int(one.started.timestamp()) if one.started else 0,
                ended=int(one.finished.timestamp()) if one.finished else 0,
                pid=int(one.id[:4], 16) if one.state == "running" else 0,
            )
            for one in found
        ]

    async def inspect(self, ref: str) -> ContainerState | None:
        self._read("inspect")
        one = self.made.get(ref) or self.named(ref)
        if one is None:
            return None
        if one.lost:
            raise EngineRefused(
                500, "getting graph driver info: stat /x/overlay/abc: no such file or directory"
            )
        return ContainerState(
            id=one.id,
            name=one.name,
            state=one.state,
            labels=self._labels(one),
            image_id=one.image.id,
            stopped=one.stopped if self.shows_stops else None,
            image_digest=one.image.digest,
            exit_code=one.exit_code if one.state == "exited" else None,
            started=one.started,
            finished=one.finished,
            health=one.health,
            ports=frozenset(
                (port["protocol"], port["host_port"])
                for port in one.payload.get("portmappings", [])
            ),
            config=dict(one.config),
        )

    async def was_stopped(self, state: ContainerState) -> bool | None:
        self._read("events")
        one = self.made.get(state.id)
        return one.stopped if one is not None and self.keeps_events else None

    async def image(self, ref: str) -> Image | None:
        self._read("image")
        return self.images.get(ref)

    async def logs(self, ident: str, lines: int, seconds: float | None = None) -> Sequence[LogLine]:
        self._read("logs")
        return [LogLine("", text) for text in self.said.get(self._need(ident).id, [])[-lines:]]

    async def exec(self, ident: str, argv: Sequence[str], timeout: float) -> int:
        self._read("exec")
        self._need(ident)
        return self.exec_codes.get(argv[0], 0)

    # Changing.

    async def create(self, payload: Mapping[str, Any]) -> str:
        name = payload["name"]
        self._change("create", name)
        if self.named(name) is not None:
            raise EngineRefused(
                500,
                f'container name "{name}" is already in use by {self.get(name).id}. Choose another',
            )
        if name in self.leftovers.values():
            ident = next(ident for ident, held in self.leftovers.items() if held == name)
            raise EngineRefused(
                500,
                f'the container name "{name}" is already in use by {ident}. You have to remove it',
            )
        if payload["image"] not in self.images:
            raise EngineRefused(500, f"{payload['image']}: image not known")
        return self._add(name, dict(payload), self.images[payload["image"]]).id

    async def clear_storage(self, ident: str) -> None:
        self._change("clear_storage", ident)
        self.leftovers.pop(ident, None)

    async def init(self, ident: str) -> None:
        one = self._need(ident)
        self._change("init", one.name)
        self._must_have_its_command(one)

    async def start(self, ident: str) -> None:
        one = self._need(ident)
        self._change("start", one.name)
        if one.lost:
            raise EngineRefused(
                500,
                "mounting storage for container: stat /x/overlay/abc: no such file or directory",
            )
        self._must_have_its_command(one)
        if one.state != "running":
            self._run(one)

    async def stop(self, ident: str, grace: int) -> None:
        one = self.made.get(ident)
        if one is None:
            return
        self._change("stop", one.name, str(grace))
        if one.state == "paused":
            raise EngineRefused(
                500,
                "container is running or paused, refusing to clean up: container state improper",
            )
        if one.state in ("running", "stopping"):
            self.exits(one.name, 0)
            one.stopped = True

    async def restart(self, ident: str, grace: int) -> None:
        one = self._need(ident)
        self._change("restart", one.name, str(grace))
        self.exits(one.name, 0)
        self._run(one)

    async def unpause(self, ident: str) -> None:
        one = self._need(ident)
        self._change("unpause", one.name)
        if one.state == "paused":
            one.state = "running"

    async def rename(self, ident: str, name: str) -> None:
        one = self._need(ident)
        self._change("rename", one.name, name)
        if self.named(name) not in (None, one):
            raise EngineRefused(500, f'name "{name}" is in use: container already exists')
        one.name = name

    async def remove(self, ident: str) -> None:
        one = self.made.get(ident)
        if one is not None:
            self._change("remove", one.name)
            del self.made[ident]
            self._tell(one)

    async def events(self) -> AsyncIterator[ContainerEvent]:
        while True:
            yield await self.events_queue.get()

    async def close(self) -> None:
        self.closed = True

    # Inside.

    def _read(self, operation: str) -> None:
        self.reads += 1
        self._fail(operation)

    def _change(self, operation: str, *arguments: str) -> None:
        self.calls.append((operation, *arguments))
        self._fail(operation)

    def _fail(self, operation: str) -> None:
        waiting = self._refusals.get(operation)
        if waiting:
            raise waiting.pop(0)

    def _need(self, ident: str) -> Made:
        if ident not in self.made:
            raise EngineRefused(404, "no such container")
        return self.made[ident]

    def _add(self, name: str, payload: dict[str, Any], image: Image) -> Made:
        self._count += 1
        ident = hashlib.sha256(f"{self._count}".encode()).hexdigest()
        limits = payload.get("resource_limits", {})
        config = {
            "memory": str(limits.get("memory")),
            "cpus": str(limits.get("cpu")),
            "pids": str(limits.get("pids")),
            "healthcheck": str(payload.get("healthconfig")),
            "network": str(payload.get("netns")),
        }
        self.made[ident] = Made(ident, name, payload, image, config=config)
        return self.made[ident]

    def _must_have_its_command(self, one: Made) -> None:
        command = [*one.payload.get("entrypoint", []), *one.payload.get("command", [])]
        if command and command[0] in self.missing_commands:
            raise EngineRefused(
                500, f'runc create failed: exec: "{command[0]}": no such file or directory'
            )

    def _run(self, one: Made) -> None:
        self._tick()
        one.state, one.started, one.finished = "running", self.now, None
        one.stopped = False
        one.health = "healthy" if "healthconfig" in one.payload else ""
        self._tell(one)
        match [*one.payload.get("entrypoint", []), *one.payload.get("command", [])]:
            case ["/bin/false"]:
                self.exits(one.name, 1)
            case ["/bin/echo", *words]:
                self.said.setdefault(one.id, []).append(" ".join(words))
                self.exits(one.name, 0)

    def _tell(self, one: Made) -> None:
        self.events_queue.put_nowait(ContainerEvent(one.id, one.name, self._labels(one)))

    def _tick(self) -> None:
        self.now += timedelta(seconds=1)

    def _labels(self, one: Made) -> dict[str, str]:
        labels: dict[str, str] = one.payload.get("labels", {})
        return labels


class FakeEnvFiles:
    """Implements `topology.env_files.EnvFiles`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.inodes: dict[str, str] = {}

    async def digests(self, paths: Collection[str]) -> Mapping[str, str | None]:
        return {path: _digest(self.files.get(path)) for path in paths}

    async def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    async def identify(self, paths: Collection[str]) -> Mapping[str, str | None]:
        return {path: self.inodes.get(path) for path in paths}

    async def resolve(self, paths: Collection[str]) -> Mapping[str, str]:
        return {path: self.links.get(path, path) for path in paths}


class FakeDeviceNodes:
    """Implements `topology.device_nodes.DeviceNodes`; `plug` and `unplug` are what a person does."""

    def __init__(self) -> None:
        self.nodes: dict[str, DeviceNode] = {}
        self.followed: tuple[str, ...] = ()
        self._listeners: list[Callable[[str], None]] = []
        self._inode = 0

    def plug(self, path: str, minor: int = 0, *, real: str = "", access: str = "rw") -> None:
        """A character node of major 188 stands there, by a link where `real` is another path."""
        self._inode += 1
        real = real or path
        self.nodes[path] = DeviceNode(real, "c", 188, minor, self._inode, "dialout", access)
        self._tell(path)

    def unplug(self, path: str) -> None:
        """Nothing stands there."""
        del self.nodes[path]
        self._tell(path)

    async def look(self, paths: Collection[str]) -> Mapping[str, DeviceNode | None]:
        return {path: self.nodes.get(path) for path in paths}

    def retain(self, paths: Sequence[str]) -> None:
        self.followed = tuple(paths)

    @contextmanager
    def listening(self, changed: Callable[[str], None]) -> Iterator[None]:
        self._listeners.append(changed)
        yield
        self._listeners.remove(changed)

    def _tell(self, path: str) -> None:
        for listener in self._listeners:
            listener(path)


def _digest(content: bytes | None) -> str | None:
    return None if content is None else "sha256:" + hashlib.sha256(content).hexdigest()


def _image(name: str) -> Image:
    ident = hashlib.sha256(name.encode()).hexdigest()
    return Image(
        id=ident, digest=f"sha256:{ident}", entrypoint=("/entry",) if "entry" in name else ()
    )
