"""The manager on D-Bus: one connection, calls with a timeout each, jobs, and signals.

The next call opens a lost connection again. Errors leave as `core.errors`. The module doesn't know
what a call is for.
"""

from __future__ import annotations

import errno
import os
import re
from collections import OrderedDict
from typing import Any, Final, Literal

import anyio
import sdbus

from harmony_agent.adapters.posix.listeners import Listeners
from harmony_agent.core.errors import ResourceError, Terminal, Transient

Scope = Literal["user", "system"]
SERVICE: Final = "org.freedesktop.systemd1"
ROOT: Final = "/org/freedesktop/systemd1"
MANAGER: Final = "org.freedesktop.systemd1.Manager"
PROPERTIES: Final = "org.freedesktop.DBus.Properties"
CALL_TIMEOUT: Final = 10.0
_BUS: Final = "org.freedesktop.DBus"
_REMEMBERED_JOBS: Final = 512
_ERRNO: Final = re.compile(r"returned error number: (\d+)")
_GONE: Final = frozenset(
    {errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE, errno.ESTALE, errno.EBADF, errno.ECHILD}
)
_LOST: Final = frozenset(
    {"NoReply", "Disconnected", "NameHasNoOwner", "ServiceUnknown", "NoServer"}
)
_DENIED: Final = frozenset({"AccessDenied", "InteractiveAuthorizationRequired", "AuthFailed"})


class NoSuchUnit(Transient):
    """The manager knows no such unit, or finds no such unit file."""

    def __init__(self, message: str) -> None:
        super().__init__("UnitNotFound", message, phase="Blocked")


class Bus:
    """The connection to the manager of `scope`."""

    def __init__(self, scope: Scope) -> None:
        self._scope: Scope = scope
        self._bus: sdbus.SdBus | None = None
        self._slots: list[Any] = []
        self._lock = anyio.Lock()
        self._results: OrderedDict[str, str] = OrderedDict()
        self._waiting: dict[str, anyio.Event] = {}
        self.unit_changed = Listeners[str]()
        """Told a unit's object path when its properties changed."""
        self.reloading = Listeners[bool]()
        """Told True when the manager begins to load all unit files, False when it has ended."""
        self.connections = 0
        """Count of connections opened. A higher number means that signals may have been missed."""
        self.lost = anyio.Event()
        """Set when the connection that is open now is lost."""

    async def call(
        self,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        *args: Any,
        within: float = CALL_TIMEOUT,
    ) -> Any:
        """Call a method and return its answer: one value as such, several as a tuple.

        Raises NoSuchUnit, Transient or Terminal.
        """
        bus = await self.connect()
        return await self._call(bus, path, interface, member, signature, *args, within=within)

    async def manager(
        self, member: str, signature: str = "", *args: Any, within: float = CALL_TIMEOUT
    ) -> Any:
        """Call a method of the manager itself."""
        return await self.call(ROOT, MANAGER, member, signature, *args, within=within)

    async def job(self, member: str, name: str, patience: float) -> str:
        """Ask for a job of unit `name` and return its result; "" if there is none in time.

        `patience` is in seconds.
        """
        path = str(await self.manager(member, "ss", name, "replace"))
        if path not in self._results:
            event = self._waiting.setdefault(path, anyio.Event())
            with anyio.move_on_after(patience):
                await event.wait()
            self._waiting.pop(path, None)
        return self._results.pop(path, "")

    async def _call(
        self,
        bus: sdbus.SdBus,
        path: str,
        interface: str,
        member: str,
        signature: str,
        *args: Any,
        within: float,
    ) -> Any:
        service = _BUS if interface == _BUS else SERVICE
        try:
            message = bus.new_method_call_message(service, path, interface, member)
            if signature:
                message.append_data(signature, *args)
            with anyio.fail_after(within):
                reply = await bus.call_async(message)
        except TimeoutError as error:
            text = f"cannot reach systemd: no answer to {member} within {within:g} s"
            raise Transient("SystemdTimeout", text, phase="Unknown") from error
        except sdbus.SdBusBaseError as error:
            raise self._translated(bus, member, error) from error
        return reply.get_contents()

    def _translated(self, bus: sdbus.SdBus, member: str, error: sdbus.SdBusBaseError) -> Exception:
        name, text = _named(error)
        if name in _LOST:
            if bus is self._bus:
                self._drop()
            return Transient("SystemdUnreachable", f"cannot reach systemd: {text}", phase="Unknown")
        if name in ("NoSuchUnit", "FileNotFound", "NoSuchUnitFile"):
            return NoSuchUnit(text)
        return _refusal(member, name, text)

    async def connect(self) -> sdbus.SdBus:
        """Return the open connection; open one if needed. Raises Transient."""
        if self._bus is not None:
            return self._bus
        async with self._lock:
            if self._bus is None:
                try:
                    bus = self._open()
                    await self._listen(bus)
                except sdbus.SdBusBaseError as error:
                    text = f"cannot reach the {self._scope} manager of systemd: {_named(error)[1]}"
                    raise Transient("SystemdUnreachable", text, phase="Unknown") from error
                self._bus = bus
                self.connections += 1
                self.lost = anyio.Event()
            return self._bus

    def _open(self) -> sdbus.SdBus:
        if self._scope == "system":
            return sdbus.sd_bus_open_system()
        if "DBUS_SESSION_BUS_ADDRESS" not in os.environ:
            os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        return sdbus.sd_bus_open_user()

    async def _listen(self, bus: sdbus.SdBus) -> None:
        """Match the signals before subscribing to them: else the first ones are missed."""
        matches = (
            (SERVICE, PROPERTIES, "PropertiesChanged", self._unit_changed),
            (SERVICE, MANAGER, "JobRemoved", self._job_removed),
            (SERVICE, MANAGER, "Reloading", self._reloading),
        )
        slots = []
        try:
            with anyio.fail_after(CALL_TIMEOUT):
                for sender, interface, member, callback in matches:
                    slots.append(
                        await bus.match_signal_async(sender, None, interface, member, callback)
                    )
            await self._call(bus, ROOT, MANAGER, "Subscribe", "", within=CALL_TIMEOUT)
        except TimeoutError as error:
            bus.close()
            text = f"cannot reach systemd: no answer to AddMatch within {CALL_TIMEOUT:g} s"
            raise Transient("SystemdTimeout", text, phase="Unknown") from error
        except (sdbus.SdBusBaseError, ResourceError):
            bus.close()
            raise
        self._slots = slots

    def _unit_changed(self, message: Any) -> None:
        if message.path:
            self.unit_changed.tell(message.path)

    def _reloading(self, message: Any) -> None:
        self.reloading.tell(bool(message.get_contents()))

    def _job_removed(self, message: Any) -> None:
        _, path, _, result = message.get_contents()
        self._results[path] = result
        while len(self._results) > _REMEMBERED_JOBS:
            self._results.popitem(last=False)
        if path in self._waiting:
            self._waiting[path].set()

    def _drop(self) -> None:
        bus, self._bus = self._bus, None
        for slot in self._slots:
            slot.close()
        self._slots = []
        self._results.clear()
        if bus is not None:
            bus.close()
        self.lost.set()

    def close(self) -> None:
        """Close the connection."""
        self._drop()


def _named(error: sdbus.SdBusBaseError) -> tuple[str, str]:
    """The last part of a D-Bus error's name, and its text."""
    if isinstance(error, sdbus.SdBusUnmappedMessageError):
        return str(error.args[0]).rpartition(".")[2], str(error.args[1])
    if isinstance(error, sdbus.SdBusLibraryError):
        found = _ERRNO.search(str(error))
        number = int(found[1]) if found else 0
        return ("Disconnected" if number in _GONE else "Library"), os.strerror(number)
    name = str(getattr(error, "dbus_error_name", "")).rpartition(".")[2]
    return name, str(error.args[0]) if error.args else name


def _refusal(member: str, name: str, text: str) -> ResourceError:
    if name in _DENIED:
        return Transient("AccessDenied", f"systemd refuses {member}: {text}", phase="Blocked")
    if name == "UnitMasked":
        return Transient("UnitMasked", f"systemd refuses {member}: {text}", phase="Blocked")
    if name in ("BadUnitSetting", "LoadFailed", "UnitError"):
        return Transient("UnitInvalid", f"systemd refuses {member}: {text}")
    if name == "OnlyByDependency":
        return Terminal("OnlyByDependency", f"systemd refuses {member}: {text}")
    if name in ("Timeout", "TimedOut"):
        return Transient("SystemdTimeout", f"cannot reach systemd: {text}", phase="Unknown")
    return Transient("SystemdRefused", f"systemd refuses {member}: {text} ({name})")
