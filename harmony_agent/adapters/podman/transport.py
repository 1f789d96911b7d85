"""The link to podman's socket: each call on a connection of its own, bounded in time and number.

At most `QUICK` short calls and `SLOW` long ones (stop, pull) run at once. A call without an answer
is followed by a ping. While the ping fails no other call is tried, because the service hangs. Each
ping waits longer than the one before: on a slow device the service takes a while to start, and ends
again before a later ping. Must not log: what goes through here holds values of `env`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, TypeVar

from harmony_agent.adapters import http1
from harmony_agent.core.errors import Transient
from harmony_agent.topology.containers import EngineRefused

T = TypeVar("T")

CALL_SECONDS: Final = 10.0
PING_SECONDS: Final = 2.0
PING_MOST: Final = 30.0
"""The longest that a ping waits."""
QUICK: Final = 4
SLOW: Final = 16
LIBPOD_API: Final = "/v4.0.0/libpod"
"""The oldest API that podman 5 speaks, and the newest that both have."""
DOCKER_API: Final = "/v1.40"
_WORDS: Final = 1000


class NoService(OSError):
    """Nothing could be connected to."""


class Link:
    """One podman service, by the path of its socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._slots = {False: asyncio.Semaphore(QUICK), True: asyncio.Semaphore(SLOW)}
        self._silent = False
        self._patience = PING_SECONDS
        self._pinging = asyncio.Lock()

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        *,
        api: str = LIBPOD_API,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[http1.Response]:
        """One exchange, unbounded: for use within `call`, and for the event stream."""
        data = None if body is None else json.dumps(body).encode()
        return http1.exchange(
            self._connected(), method, f"{api}{path}", params=params, body=data, headers=headers
        )

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_unix_connection(self.path)
        except OSError as error:
            raise NoService(error.errno, error.strerror or str(error)) from error

    async def call(
        self,
        what: str,
        work: Callable[[], Awaitable[T]],
        seconds: float | None = None,
        *,
        slow: bool = False,
    ) -> T:
        """Do `work`, which makes requests. `what` is a phrase for errors, as ``to list``.

        Raises EngineRefused as `work` does. Raises Transient if podman isn't there or doesn't
        answer within `seconds`.
        """
        seconds = CALL_SECONDS if seconds is None else seconds
        if self._silent:
            await self._ping(what)
        try:
            async with self._slots[slow]:
                if not self._silent:  # it may have fallen silent while this waited
                    return await self._bounded(what, work, seconds)
        except TimeoutError:
            self._silent = True
        await self._ping(what)
        text = f"podman did not answer {what} within {seconds:g} s"
        raise Transient("Timeout", text, phase="Degraded" if slow else "Unknown")

    async def _ping(self, what: str) -> None:
        """Return when podman answers. Only one ping goes out at a time, for all that wait."""
        asked = self._pinging.locked()
        async with self._pinging:
            if not self._silent:
                return
            waited = self._patience
            if not asked:
                with suppress(TimeoutError):
                    await self._bounded("for a ping", self._get_ping, waited)
                    self._silent, self._patience = False, PING_SECONDS
                    return
                self._patience = min(2 * waited, PING_MOST)
        text = f"podman does not answer ({what}; a ping got nothing within {waited:g} s): look at podman.service"
        raise Transient("PodmanUnreachable", text, phase="Unknown")

    async def _get_ping(self) -> None:
        async with self.request("GET", "/_ping"):
            pass

    async def _bounded(self, what: str, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await work()
        except TimeoutError:
            raise
        except NoService as error:
            text = f"cannot reach podman at {self.path} ({os.strerror(error.errno or 0)}): enable podman.socket"
            raise Transient("PodmanUnavailable", text, phase="Blocked", delay=5.0) from error
        except (OSError, ValueError):
            text = f"podman hung up, or answered no sense, when it was asked {what}"
            # Not chained: what can't be parsed may hold values of env.
            raise Transient("PodmanUnreachable", text, phase="Unknown") from None


async def answered(response: http1.Response, *, missing: bool = False) -> http1.Response:
    """Return the response if it is a success (or, with `missing`, a 404).

    Raises EngineRefused with podman's words.
    """
    status = response.status
    if status < 400 or (missing and status == 404):
        return response
    text = (await response.read()).decode("utf-8", "replace")
    try:
        text = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        text = text[:_WORDS]
    raise EngineRefused(status, text)
