"""`topology.containers.Containers` over podman's API on its socket, by podman-py.

Asks the API's own paths, since podman-py's objects render a creation differently for each version. Podman-py is
imported when the first call is made, in a thread. Must not log: what goes through here holds values of `env`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from harmony_agent.adapters import podman_answers as answers
from harmony_agent.topology.containers import ContainerEvent, ContainerState, Image, Listed, Refused

if TYPE_CHECKING:
    from podman.api.client import APIClient

    from harmony_agent.adapters.podman_link import Link

CHANGE_SECONDS: Final = 60.0
"""For a step that changes a container, besides the grace of a stop."""
STREAM_SECONDS: Final = 300.0
"""An event stream in which nothing came for so long is opened anew: its service may have gone and left it open."""
LOG_BYTES: Final = 512 * 1024
_CHUNK: Final = 64 * 1024
_QUEUE: Final = 1000
_RETRY_FIRST, _RETRY_MOST = 1.0, 30.0
_ID: Final = re.compile(r"[0-9a-f]{64}")
_EVENTS: Final = (
    *("create", "init", "start", "restart", "died", "exited", "stop", "kill", "remove", "rename", "pause", "unpause"),
    *("update", "health_status"),
)
_NO_CONTENT: Final = (204, 304)


class Podman:
    """Containers of the podman service that listens on the socket `path`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._link: Link | None = None
        self._linking = asyncio.Lock()

    async def _ready(self) -> Link:
        async with self._linking:
            if self._link is None:
                module = await asyncio.to_thread(import_module, "harmony_agent.adapters.podman_link")
                self._link = module.Link(self.path)
            return self._link

    async def _json(self, what: str, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """A GET; None where there is no such thing."""

        def work(client: APIClient) -> Any:
            response = answers.answered(client.get(path, params=params), missing=True)
            return None if response.status_code == 404 else response.json()

        return await (await self._ready()).call(what, work)

    async def _change(
        self, what: str, path: str, params: Mapping[str, Any] | None = None, *, body: Any = None,
        method: str = "post", seconds: float = CHANGE_SECONDS, missing: bool = False,
    ) -> Any:  # fmt: skip
        """A POST or DELETE; what it answers, None where that is nothing."""

        def work(client: APIClient) -> Any:
            extra = {} if body is None else {"data": json.dumps(body), "headers": {"Content-Type": "application/json"}}
            response = getattr(client, method)(path, params=params, timeout=seconds, **extra)
            response = answers.answered(response, missing=missing)
            return None if response.status_code in (*_NO_CONTENT, 404) else response.json()

        return await (await self._ready()).call(what, work, seconds, slow=True)

    # Looking.

    async def version(self) -> str:
        """The service's version."""
        return str((await self._json("for its version", "/version"))["Version"])

    async def list(self, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Every container that has all of these labels."""
        return await self._list({"label": [f"{name}={value}" for name, value in labels.items()]})

    async def _list(self, filters: Mapping[str, Sequence[str]]) -> Sequence[Listed]:
        params = {"all": "true", "filters": json.dumps(filters)}
        entries = await self._json("to list containers", "/containers/json", params)
        return [answers.listed(entry) for entry in entries or []]

    async def inspect(self, ref: str) -> ContainerState | None:
        """One container. A name is looked up in a list: asked for directly, podman takes it for the start of an id."""
        ident = ref
        if not _ID.fullmatch(ref):
            found = await self._list({"name": [f"^{re.escape(ref)}$"]})
            ident = next((one.id for one in found if one.name == ref), "")
        body = await self._json(f"to inspect {ref}", f"/containers/{ident}/json") if ident else None
        return None if body is None else answers.container(body)

    async def image(self, ref: str) -> Image | None:
        """An image that is here."""
        body = await self._json(f"to inspect the image {ref}", f"/images/{ref}/json")
        return None if body is None else answers.image(body)

    async def logs(self, ident: str, lines: int) -> Sequence[str]:
        """The last lines, at most `LOG_BYTES` of them."""

        def work(client: APIClient) -> Sequence[str]:
            params = {"stdout": "true", "stderr": "true", "follow": "false", "tail": str(lines)}
            response = answers.answered(client.get(f"/containers/{ident}/logs", params=params, stream=True))
            try:
                return answers.log_lines(response.iter_content(_CHUNK), lines, LOG_BYTES)
            finally:
                response.close()

        return await (await self._ready()).call("for logs", work)

    # Changing.

    async def pull(self, ref: str, timeout: float) -> None:
        """Fetch an image. The answer is always 200: errors come in the stream."""

        def work(client: APIClient) -> None:
            params = {"reference": ref, "policy": "always"}
            response = answers.answered(client.post("/images/pull", params=params, stream=True, timeout=timeout))
            try:
                for line in response.iter_lines():
                    if (error := answers.pull_error(line)) is not None:
                        raise Refused(0, error)
            finally:
                response.close()

        await (await self._ready()).call(f"to pull {ref}", work, timeout, slow=True)

    async def create(self, payload: Mapping[str, Any]) -> str:
        """Create a container; its id."""
        return str((await self._change("to create a container", "/containers/create", body=payload))["Id"])

    async def clear_storage(self, ident: str) -> None:
        """A removal by id looks in the storage first, where it finds what the service itself doesn't know."""
        await self.remove(ident)

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
        params = {"force": "true", "v": "true", "ignore": "true", "timeout": 0}
        path = f"/containers/{ident}"
        await self._change("to remove a container", path, params, method="delete", missing=True)

    async def exec(self, ident: str, argv: Sequence[str], timeout: float) -> int:
        """Run a command in it; what it writes is read and dropped, so that it doesn't wait for a reader."""

        def work(client: APIClient) -> int:
            json_type = {"Content-Type": "application/json"}
            made = json.dumps({"Cmd": list(argv), "AttachStdout": True, "AttachStderr": True})
            path = f"/containers/{ident}/exec"
            session = answers.answered(client.post(path, data=made, headers=json_type, timeout=timeout)).json()["Id"]
            run = json.dumps({"Detach": False, "Tty": False})
            path = f"/exec/{session}/start"
            response = client.post(path, data=run, headers=json_type, timeout=timeout, stream=True)
            _drain(answers.answered(response))
            return int(answers.answered(client.get(f"/exec/{session}/json", timeout=timeout)).json()["ExitCode"])

        return await (await self._ready()).call("to run a probe", work, timeout, slow=True)

    # Events.

    async def events(self) -> AsyncIterator[ContainerEvent]:
        """What happens, for ever; a stream that ends or falls silent is opened anew, ever more slowly."""
        loop, delay = asyncio.get_running_loop(), _RETRY_FIRST
        while True:
            link = await self._ready()
            queue: asyncio.Queue[ContainerEvent | None] = asyncio.Queue()
            opened = loop.time()
            line = link.stream(_Reader(loop, queue))
            try:
                while (event := await queue.get()) is not None:
                    yield event
            finally:
                line.cut()
            delay = _RETRY_FIRST if loop.time() - opened > _RETRY_MOST else min(delay * 2, _RETRY_MOST)
            await asyncio.sleep(delay)

    async def close(self) -> None:
        """Cut every call and the event stream."""
        if self._link is not None:
            self._link.close()


class _Reader:
    """Reads the event stream in its thread and hands events to the loop; None at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[ContainerEvent | None]) -> None:
        self._loop, self._queue = loop, queue

    def __call__(self, client: APIClient) -> None:
        try:
            params = {"stream": "true", "filters": json.dumps({"type": ["container"], "event": list(_EVENTS)})}
            response = answers.answered(client.get("/events", params=params, stream=True, timeout=STREAM_SECONDS))
            for line in response.iter_lines():
                if (event := answers.event(line)) is not None and self._queue.qsize() < _QUEUE:
                    self._loop.call_soon_threadsafe(self._queue.put_nowait, event)
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._queue.put_nowait, None)


def _drain(response: Any) -> None:
    """Read a stream to its end and keep nothing."""
    try:
        for _ in response.iter_content(_CHUNK):
            pass
    finally:
        response.close()
