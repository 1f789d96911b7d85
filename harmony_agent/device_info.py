"""Description of the device for DeviceInfo: system, kinds, versions, trusted keys.

Changes nothing. A capability that doesn't answer is no error here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from harmony_agent import __version__
from harmony_agent.adapters import host
from harmony_agent.core.errors import ResourceError, Transient
from harmony_agent.settings import Settings
from harmony_agent.topology.updater import UpdaterRefused
from scores.signatures import key_id, read_key
from scores.status import Capabilities, DeviceInfo, SealingInfo, TrustInfo, UpdaterInfo


class Versioned(Protocol):
    """A kind, as far as it is asked here."""

    @property
    def version(self) -> Callable[[], Awaitable[str]] | None:
        """Ask its capability for a version; None where it offers none."""
        ...

    @property
    def missing(self) -> Callable[[], Awaitable[Sequence[str]]] | None:
        """Ask for the cgroup controllers that aren't there; None where it needs none."""
        ...


class DeviceDescription:
    """Makes the DeviceInfo. What hangs or is busy now keeps what it told before: it is there."""

    def __init__(
        self,
        settings: Settings,
        made: Mapping[str, Versioned],
        disturbed: Callable[[], Sequence[str]] = tuple,
        sealing: Callable[[], SealingInfo | None] = lambda: None,
    ) -> None:
        """`disturbed` names what others changed of the agent's own process; `sealing` tells the key
        for secrets.
        """
        self._settings = settings
        self._made = made
        self._disturbed = disturbed
        self._sealing = sealing
        self._os = host.os_info()
        self._boot_id = host.boot_id()
        self._told: dict[str, str] = {}
        self._offered: UpdaterInfo | None = None
        self._missing: Sequence[str] | None = None

    async def __call__(self) -> DeviceInfo:
        """Ask each capability."""
        return DeviceInfo(
            device=self._settings.agent.device_id,
            labels=dict(self._settings.labels),
            agent_version=__version__,
            boot_id=self._boot_id,
            os=self._os,
            kinds=sorted(self._made),
            capabilities=Capabilities(
                systemd=await self._version("SystemdUnit"),
                podman=await self._podman(),
                tmux=await self._version("Session"),
                updater=await self._updater(),
            ),
            trust=self._trust(),
            disturbed=self._disturbed(),
            missing_controllers=await self._missing_controllers(),
            sealing=self._sealing(),
        )

    async def _missing_controllers(self) -> Sequence[str]:
        """Ask once: only a reboot changes it."""
        ask = self._made["Container"].missing if "Container" in self._made else None
        if self._missing is None and ask is not None:
            try:
                self._missing = await ask()
            except ResourceError:
                return ()
        return self._missing or ()

    async def _podman(self) -> str | None:
        """Ask once, by whichever kind stands on it."""
        kinds = (kind for kind in ("Container", "Volume", "Network") if kind in self._made)
        kind = next(kinds, None)
        return None if kind is None else await self._version(kind)

    async def _version(self, kind: str) -> str | None:
        ask = self._made[kind].version if kind in self._made else None
        if ask is None:
            return None
        try:
            self._told[kind] = await ask()
        except ResourceError as error:
            if not (isinstance(error, Transient) and error.phase == "Unknown"):
                self._told.pop(kind, None)
        return self._told.get(kind)

    def _trust(self) -> TrustInfo | None:
        told = self._settings.trust
        keys = sorted(key_id(read_key(text)) for text in told.keys)
        return TrustInfo(require=told.require, keys=keys) if keys else None

    async def _updater(self) -> UpdaterInfo | None:
        if "SystemUpgrade" not in self._made:
            return None
        from harmony_agent.adapters.updater import SocketUpdater

        try:
            offer = await SocketUpdater(self._settings.updater.socket).capabilities()
        except UpdaterRefused as refused:
            self._offered = self._offered if refused.code == "busy" else None
        except ResourceError:
            self._offered = None
        else:
            operations = list(offer.operations)
            self._offered = UpdaterInfo(protocol=offer.protocol, operations=operations)
        return self._offered
