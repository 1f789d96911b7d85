"""The link to podman's socket: podman-py in threads of its own, none of which can hold the agent up.

podman-py blocks, so each call runs in a daemon thread; a call that isn't back in time has its socket shut down, which
ends its thread. At most `QUICK` short calls and `SLOW` long ones (stop, pull) run at once. After a call that wasn't
answered the service is asked with a ping: while that fails, no other call tries. Must not be imported before a
container is wanted: it costs 10 MB.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from podman.api import uds
from podman.api.client import APIClient
from podman.errors import APIError
from requests.exceptions import Timeout as RequestTimeout
from urllib3.exceptions import TimeoutError as PoolTimeout

from harmony_agent.core.errors import Transient
from harmony_agent.topology.containers import Refused

T = TypeVar("T")

CALL_SECONDS: Final = 10.0
PING_SECONDS: Final = 2.0
QUICK: Final = 4
SLOW: Final = 16
_SLOT_SECONDS: Final = 30.0


class Line:
    """What one call uses, so that it can be cut from outside its thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._cut = False

    def use(self, connected: socket.socket) -> None:
        """Remember a socket of this call."""
        with self._lock:
            self._sockets.append(connected)
            if self._cut:
                _shut(connected)

    def cut(self) -> None:
        """Shut down what the call uses: a thread that waits for it wakes up."""
        with self._lock:
            self._cut = True
            for connected in self._sockets:
                _shut(connected)


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):  # closed already
        connected.shutdown(socket.SHUT_RDWR)


_here = threading.local()
"""`line`: the call that this thread is."""


class _Connection(uds.UDSConnection):
    """A connection that closes its socket when it can't connect, and is known to its call."""

    path = ""

    def connect(self) -> None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(self.timeout)
            opened.connect(self.path)
        except BaseException:
            opened.close()
            raise
        _here.line.use(opened)
        self.sock = opened


def _client(path: str) -> APIClient:
    """A client that opens one connection a call: kept ones would die with the service, which stops when idle."""
    connection = type("_To", (_Connection,), {"path": path})
    pool = type("_Pool", (uds.UDSConnectionPool,), {"ConnectionCls": connection})
    client = APIClient(base_url=f"unix://{path}", timeout=CALL_SECONDS, num_pools=1)
    adapter: Any = client.get_adapter("http://podman")
    adapter.poolmanager.pool_classes_by_scheme = {"http": pool}
    client.headers["Connection"] = "close"
    return client


class Link:
    """Calls podman's API. `call` gets a function that is run in a thread with the client."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._client = _client(path)
        self._slots = {False: asyncio.Semaphore(QUICK), True: asyncio.Semaphore(SLOW)}
        self._silent = False
        self._pinging = asyncio.Lock()
        self._open: set[Line] = set()

    async def call(
        self, what: str, work: Callable[[APIClient], T], seconds: float | None = None, *, slow: bool = False
    ) -> T:
        """Run `work` and return what it does. `what` is a phrase for errors, as ``to list containers``.

        Raises Refused as `work` does, and Transient when podman isn't there or doesn't answer within `seconds`.
        """
        seconds = CALL_SECONDS if seconds is None else seconds
        if self._silent:
            await self._ping(what)
        try:
            return await self._in_turn(what, work, seconds, self._slots[slow])
        except TimeoutError:
            pass
        self._silent = True
        await self._ping(what)
        raise Transient(
            "Timeout", f"podman did not answer {what} within {seconds:g} s", phase="Degraded" if slow else "Unknown"
        )

    async def _ping(self, what: str) -> None:
        """Return when podman answers; only one ping goes out at a time, and who waited takes its result."""
        asked = self._pinging.locked()
        async with self._pinging:
            if not self._silent:
                return
            if not asked:
                with suppress(TimeoutError):
                    await self._guarded("a ping", _get_ping, PING_SECONDS, None)
                    self._silent = False
                    return
        text = f"podman does not answer ({what}; a ping got nothing within {PING_SECONDS:g} s): look at podman.service"
        raise Transient("PodmanUnreachable", text, phase="Unknown")

    async def _in_turn(
        self, what: str, work: Callable[[APIClient], T], seconds: float, slots: asyncio.Semaphore
    ) -> T:  # fmt: skip
        """Wait for a slot; TimeoutError at once where podman fell silent meanwhile."""
        await asyncio.wait_for(slots.acquire(), _SLOT_SECONDS)
        if self._silent:
            slots.release()
            raise TimeoutError
        return await self._guarded(what, work, seconds, slots)

    async def _guarded(
        self, what: str, work: Callable[[APIClient], T], seconds: float, slots: asyncio.Semaphore | None
    ) -> T:  # fmt: skip
        try:
            return await self._in_thread(work, seconds, slots)
        except _Silence:
            raise TimeoutError from None
        except APIError as error:
            # Not chained: the library keeps the request, and with it what it carried.
            raise self._not_there(what, error) from None

    def _not_there(self, what: str, error: BaseException) -> Transient:
        """Podman could not be reached, or hung up."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, FileNotFoundError | ConnectionRefusedError | PermissionError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            return Transient("PodmanUnreachable", f"podman hung up while it was asked {what}", phase="Unknown")
        text = f"cannot reach podman at {self.path} ({os.strerror(cause.errno or 0)}): enable podman.socket"
        return Transient("PodmanUnavailable", text, phase="Blocked", delay=5.0)

    async def _in_thread(
        self, work: Callable[[APIClient], T], seconds: float, slots: asyncio.Semaphore | None
    ) -> T:  # fmt: skip
        """Run `work` in a thread, which gives back its slot when it ends, however late."""
        loop, line = asyncio.get_running_loop(), Line()
        future: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            if slots is not None:
                slots.release()
            self._open.discard(line)
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # a result where there is no error

        def run() -> None:
            result, error = None, None
            _here.line = line
            try:
                result = work(self._client)
            except BaseException as caught:  # it is the caller's
                error = _told(caught)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(finish, result, error)

        self._open.add(line)
        threading.Thread(target=run, name="podman", daemon=True).start()
        try:
            return await asyncio.wait_for(future, seconds + 1.0)
        finally:
            if not future.done() or future.cancelled():
                line.cut()

    def stream(self, work: Callable[[APIClient], None]) -> Line:
        """Run `work` in a thread of its own until it returns or is cut; its errors end it silently."""
        line = Line()

        def run() -> None:
            _here.line = line
            with suppress(APIError, OSError, Refused, ValueError, RuntimeError):
                work(self._client)
            self._open.discard(line)

        self._open.add(line)
        threading.Thread(target=run, name="podman-events", daemon=True).start()
        return line

    def close(self) -> None:
        """Cut every call."""
        for line in list(self._open):
            line.cut()
        self._client.close()


class _Silence(Exception):
    """Nothing came within the time."""


def _told(error: BaseException) -> BaseException:
    """A timeout of the library, however it is wrapped, as `_Silence`; any other error as it is."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RequestTimeout | PoolTimeout | TimeoutError):
            return _Silence()
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, OSError) and not isinstance(error, APIError):
        wrapped = APIError("podman's answer broke off")
        wrapped.__cause__ = error
        return wrapped
    return error


def _get_ping(client: APIClient) -> None:
    client.get("/_ping", timeout=PING_SECONDS).close()
