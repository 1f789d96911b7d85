"""`topology.images.Images` over the API of podman's service (4.3 to 5.4), on its socket.

Must not log: a request holds a login.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from harmony_agent.adapters.podman.progress import Layers, error_of
from harmony_agent.adapters.podman.transport import DOCKER_API, LIBPOD_API, Link, answered
from harmony_agent.adapters.posix.thread_pool import ThreadPool
from harmony_agent.core.errors import Transient
from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.images import Login, PullProgress, PullRequest, StoredImage
from scores.container_values import registry_of

SILENT_SECONDS: Final = 300.0
"""A pull of which nothing is heard for so long has stopped. A layer is unpacked in silence."""
_LOOK_SECONDS: Final = 1.0
_REMOVE_SECONDS: Final = 60.0


class PodmanImages:
    """Images of the podman service that listens on the socket `path`."""

    def __init__(self, path: str) -> None:
        self._link = Link(path)
        self._threads = ThreadPool(1)
        self._root = ""

    async def list(self) -> Sequence[StoredImage]:
        """Implement `Images.list`."""
        found: list[dict[str, Any]] = await self._get("to list images", "/images/json?all=true")
        return [
            StoredImage(
                one["Id"].removeprefix("sha256:"),
                tuple(one.get("Names") or ()),
                str(one.get("ParentId") or "").removeprefix("sha256:"),
            )
            for one in found or []
        ]

    async def _get(self, what: str, path: str) -> Any:
        async def work() -> Any:
            async with self._link.request("GET", path) as response:
                return await (await answered(response)).json()

        return await self._link.call(what, work)

    async def pull(self, request: PullRequest, told: Callable[[PullProgress], None]) -> None:
        """Implement `Images.pull`. The answer is nearly always 200: errors come in the stream.

        Docker's path alone tells of bytes, but makes docker.io of a name without a registry.
        """
        ref = request.ref
        if registry_of(ref):
            path, params, api = "/images/create", {"fromImage": ref}, DOCKER_API
        else:
            path, params, api = "/images/pull", {"reference": ref, "policy": "always"}, LIBPOD_API

        async def work() -> None:
            async with self._link.request(
                "POST", path, params, api=api, headers=_header(request.login)
            ) as response:
                lines = (await answered(response)).lines()
                layers, looked = Layers(), 0.0
                while (line := await _heard(anext(lines, None), ref)) is not None:
                    if (error := error_of(line)) is not None:
                        raise EngineRefused(0, error)
                    if layers.add(line):
                        told(layers.progress())
                    if (now := asyncio.get_running_loop().time()) - looked > _LOOK_SECONDS:
                        looked = now
                        await self._must_have_room(request)

        await self._link.call(f"to pull {ref}", work, request.seconds, slow=True)

    async def _must_have_room(self, request: PullRequest) -> None:
        if request.reserve and (free := await self.free()) < request.reserve:
            raise Transient(
                "NoSpace",
                f"cannot pull {request.ref}: {free >> 20} MiB are free where podman keeps images, and "
                f"{request.reserve >> 20} MiB are to stay so: free some space; what runs goes on",
            )

    async def remove(self, name: str) -> None:
        """Implement `Images.remove`."""

        async def work() -> None:
            async with self._link.request("DELETE", f"/images/{name}") as response:
                await answered(response, missing=True)

        await self._link.call(f"to remove the image {name}", work, _REMOVE_SECONDS, slow=True)

    async def free(self) -> int:
        """Implement `Images.free`."""
        if not self._root:
            store = (await self._get("where images are", "/info"))["store"]
            self._root = str(store["graphRoot"])
        return await self._threads.start(lambda: _free(self._root))


def _free(path: str) -> int:
    """Bytes free for everybody at `path`, or at the nearest folder above it that may be asked."""
    while True:
        try:
            found = os.statvfs(path)
        except (PermissionError, FileNotFoundError):
            path = os.path.dirname(path)
        else:
            return found.f_bavail * found.f_frsize


def _header(login: Login | None) -> dict[str, str]:
    if login is None:
        return {}
    value = json.dumps({"username": login.user, "password": login.password}).encode()
    return {"X-Registry-Auth": base64.urlsafe_b64encode(value).decode("ascii")}


async def _heard(line: Awaitable[bytes | None], ref: str) -> bytes | None:
    """Wait for a line of the stream."""
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            return await line
    except TimeoutError:
        text = f"cannot pull {ref}: nothing came for {SILENT_SECONDS:g} s; it goes on from the layers that are finished"
        raise Transient("PullFailed", text) from None
