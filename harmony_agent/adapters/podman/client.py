"""`topology.containers.Containers` over the API of podman's service (4.3 to 5.4), on its socket.

Must not log: what goes through here holds values of `env`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from harmony_agent.adapters.podman import decode as answers
from harmony_agent.adapters.podman.transport import Link, answered
from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine
from harmony_agent.topology.containers import (
    ContainerEvent,
    ContainerState,
    EngineHost,
    EngineRefused,
    Image,
    Listed,
)

CHANGE_SECONDS: Final = 60.0
"""For a step that changes a container, besides the grace of a stop."""
STREAM_SECONDS: Final = 300.0
"""A stream without events for so long is opened anew: its service may have gone."""
LOG_BYTES: Final = 512 * 1024
_RETRY_FIRST, _RETRY_MOST = 1.0, 30.0
_ID: Final = re.compile(r"[0-9a-f]{64}")
_EVENTS: Final = (
    *(
        "create",
        "init",
        "start",
        "restart",
        "died",
        "exited",
        "stop",
        "kill",
        "remove",
        "rename",
        "pause",
        "unpause",
    ),
    *("update", "health_status"),
)
_NO_CONTENT: Final = (204, 304, 404)


class Podman:
    """Containers of the podman service that listens on the socket `path`."""

    def __init__(self, path: str) -> None:
        self._link = Link(path)
        self._version: str | None = None
        self._unended: dict[tuple[str, tuple[str, ...]], str] = {}
        """the exec session of each command that wasn't seen to end"""

    async def _get(self, what: str, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON at `path`. None if there is no such thing."""

        async def work() -> Any:
            async with self._link.request("GET", path, params) as response:
                await answered(response, missing=True)
                return None if response.status in _NO_CONTENT else await response.json()

        return await self._link.call(what, work)

    async def _change(
        self, what: str, path: str, params: Mapping[str, Any] | None = None, *, body: Any = None,
        method: str = "POST", seconds: float = CHANGE_SECONDS, missing: bool = False,
    ) -> Any:  # fmt: skip
        """Send a POST or DELETE and return its answer. None if that is empty."""

        async def work() -> Any:
            async with self._link.request(method, path, params, body) as response:
                await answered(response, missing=missing)
                return None if response.status in _NO_CONTENT else await response.json()

        return await self._link.call(what, work, seconds, slow=True)

    # Looking.

    async def version(self) -> str:
        """The service's version."""
        return str((await self._get("for its version", "/version"))["Version"])

    async def host(self) -> EngineHost:
        """The runtime, and the controllers of the service's own cgroup, which can't be told with
        cgroups of version 1.
        """
        host = (await self._get("for its host", "/info"))["host"]
        known = host.get("cgroupVersion") == "v2"
        controllers = frozenset(host.get("cgroupControllers") or ()) if known else None
        return EngineHost(controllers, str((host.get("ociRuntime") or {}).get("name") or ""))

    async def list(self, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Every container that has all of these labels."""
        return await self._list({"label": [f"{name}={value}" for name, value in labels.items()]})

    async def _list(self, filters: Mapping[str, Sequence[str]]) -> Sequence[Listed]:
        params = {"all": "true", "filters": json.dumps(filters)}
        entries = await self._get("to list containers", "/containers/json", params)
        return [answers.listed(entry) for entry in entries or []]

    async def inspect(self, ref: str) -> ContainerState | None:
        """Inspect one container. A name is found in a list: podman takes it for a part of an id."""
        ident = ref
        if not _ID.fullmatch(ref):
            found = await self._list({"name": [f"^{re.escape(ref)}$"]})
            ident = next((one.id for one in found if one.name == ref), "")
        body = await self._get(f"to inspect {ref}", f"/containers/{ident}/json") if ident else None
        if body is None:
            return None
        state = answers.container(body)
        if state.state == "exited" and state.stopped is None and await self._shows_stops():
            return replace(state, stopped=False)
        return state

    async def _shows_stops(self) -> bool:
        """Tell if an inspection shows a stop: podman's from version 5."""
        if self._version is None:
            self._version = await self.version()
        major = self._version.partition(".")[0]
        return major.isdecimal() and int(major) >= 5

    async def was_stopped(self, state: ContainerState) -> bool | None:
        """Read the events around the end of its last run."""
        if state.started is None or state.finished is None:
            return None
        since = int(state.finished.timestamp() - answers.KILL_SECONDS)
        params = {
            "stream": "false",
            "since": str(since),
            "filters": json.dumps({"container": [state.id]}),
        }

        async def work() -> bytes:
            async with self._link.request("GET", "/events", params) as response:
                return await (await answered(response)).read()

        lines = (await self._link.call(f"who stopped {state.name}", work)).splitlines()
        return answers.was_stopped(lines, state.started)

    async def image(self, ref: str) -> Image | None:
        """An image that is here."""
        body = await self._get(f"to inspect the image {ref}", f"/images/{ref}/json")
        return None if body is None else answers.image(body)

    async def logs(self, ident: str, lines: int, seconds: float | None = None) -> Sequence[LogLine]:
        """The last lines, at most `LOG_BYTES` of them."""

        async def work() -> Sequence[LogLine]:
            params = {"stdout": "true", "stderr": "true", "follow": "false", "tail": str(lines)}
            params["timestamps"] = "true"
            if seconds is not None:
                params["since"] = f"{time.time() - seconds:.6f}"
            found = answers.LogLines(lines, LOG_BYTES)
            async with self._link.request("GET", f"/containers/{ident}/logs", params) as response:
                async for chunk in (await answered(response)).chunks():
                    found.add(chunk)
            return found.lines()

        return await self._link.call("for logs", work)

    # Changing.

    async def create(self, payload: Mapping[str, Any]) -> str:
        """Create a container; its id."""
        return str(
            (await self._change("to create a container", "/containers/create", body=payload))["Id"]
        )

    async def clear_storage(self, ident: str) -> None:
        """Remove storage that the service itself doesn't know. A removal by id finds it."""
        await self.remove(ident)

    async def init(self, ident: str) -> None:
        """Make all ready for a start."""
        await self._change("to prepare a container", f"/containers/{ident}/init")

    async def start(self, ident: str) -> None:
        """Start it."""
        await self._change("to start a container", f"/containers/{ident}/start")

    async def stop(self, ident: str, grace: int) -> None:
        """Stop it; podman kills it after `grace` seconds."""
        path, params = f"/containers/{ident}/stop", {"timeout": grace}
        await self._change("to stop a container", path, params, seconds=grace + 10.0, missing=True)

    async def restart(self, ident: str, grace: int) -> None:
        """Stop it, then start it."""
        path, params = f"/containers/{ident}/restart", {"t": grace}
        await self._change("to restart a container", path, params, seconds=grace + CHANGE_SECONDS)

    async def unpause(self, ident: str) -> None:
        """Let it go on."""
        await self._change("to unpause a container", f"/containers/{ident}/unpause")

    async def rename(self, ident: str, name: str) -> None:
        """Rename it."""
        await self._change("to rename a container", f"/containers/{ident}/rename", {"name": name})

    async def remove(self, ident: str) -> None:
        """Kill and remove it, and its anonymous volumes."""
        self._unended = {
            command: session for command, session in self._unended.items() if command[0] != ident
        }
        params = {"force": "true", "v": "true", "ignore": "true", "timeout": 0}
        path = f"/containers/{ident}"
        await self._change("to remove a container", path, params, method="DELETE", missing=True)

    async def exec(self, ident: str, argv: Sequence[str], timeout: float) -> int:
        """Run a command in it. Its output is read and dropped, because it may wait for a reader.

        Podman ends no command that hangs, so an earlier one must have ended.
        """
        command = (ident, tuple(argv))

        async def work() -> int:
            await self._must_have_ended(command)
            made = {"Cmd": list(argv), "AttachStdout": True, "AttachStderr": True}
            async with self._link.request(
                "POST", f"/containers/{ident}/exec", body=made
            ) as response:
                session = str((await (await answered(response)).json())["Id"])
            self._unended[command] = session
            run = {"Detach": False, "Tty": False}
            async with self._link.request("POST", f"/exec/{session}/start", body=run) as response:
                async for _ in (await answered(response)).chunks():
                    pass
            async with self._link.request("GET", f"/exec/{session}/json") as response:
                code = int((await (await answered(response)).json())["ExitCode"])
            self._unended.pop(command, None)
            return code

        return await self._link.call("to run a probe", work, timeout, slow=True)

    async def _must_have_ended(self, command: tuple[str, tuple[str, ...]]) -> None:
        if (session := self._unended.get(command)) is None:
            return
        async with self._link.request("GET", f"/exec/{session}/json") as response:
            found = (
                {}
                if (await answered(response, missing=True)).status == 404
                else await response.json()
            )
        if found.get("Running"):
            raise Transient(
                "ProbeHangs", "the command of an earlier probe still runs in the container"
            )
        self._unended.pop(command, None)

    # Events.

    async def events(self) -> AsyncIterator[ContainerEvent]:
        """Stream events for ever.

        Reopens a stream that ends or falls silent, with growing pauses.
        """
        loop, delay = asyncio.get_running_loop(), _RETRY_FIRST
        params = {
            "stream": "true",
            "filters": json.dumps({"type": ["container"], "event": list(_EVENTS)}),
        }
        while True:
            opened = loop.time()
            with suppress(
                OSError, TimeoutError, EngineRefused
            ):  # the next relist says what is wrong
                async with self._link.request("GET", "/events", params) as response:
                    lines = (await answered(response)).lines()
                    while (line := await _within(anext(lines, None))) is not None:
                        if (event := answers.event(line)) is not None:
                            yield event
            delay = (
                _RETRY_FIRST if loop.time() - opened > _RETRY_MOST else min(delay * 2, _RETRY_MOST)
            )
            await asyncio.sleep(delay)

    async def close(self) -> None:
        """Let the last connections close. None is held open between calls."""
        await asyncio.sleep(0)


async def _within(line: Awaitable[bytes | None]) -> bytes | None:
    """Wait for a line of a stream. Raises TimeoutError.

    `asyncio.wait_for` loses a cancellation that comes together with the line.
    """
    async with asyncio.timeout(STREAM_SECONDS):
        return await line
