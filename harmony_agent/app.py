"""Composition root: the one place where kinds, adapters and the engine meet. One line a kind.

Nothing is decided here. A kind's libraries are imported only where the configuration allows the
kind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import anyio

from harmony_agent import __version__
from harmony_agent.adapters import accounts, host, sd_notify, status_socket
from harmony_agent.adapters.host import SystemClock
from harmony_agent.adapters.ledger.ledger import SqliteLedger
from harmony_agent.adapters.nats.control_plane import NatsControl
from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.probing import LoopbackProber
from harmony_agent.adapters.process_guard import ProcessGuard
from harmony_agent.adapters.protected_paths import ProtectedPaths
from harmony_agent.adapters.secrets import LocalSecrets
from harmony_agent.core.frozen import frozen
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.signatures import Trust
from harmony_agent.device_info import DeviceDescription
from harmony_agent.engine.engine import Engine, Intervals
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import AnyReconciler
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.settings import Settings
from harmony_agent.topology import Clock, ObjectStore
from scores.base import Score
from scores.canonical import digest
from scores.container import Container
from scores.container_values import in_bytes
from scores.file import File
from scores.names import format_time
from scores.network import Network
from scores.package import Package
from scores.session import Session
from scores.signatures import key_id, read_key
from scores.system_upgrade import SystemUpgrade
from scores.systemd_unit import SystemdUnit
from scores.volume import Volume

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Score)

STOP_SECONDS: Final = 4.0
"""Within which the agent ends after a signal, come what may."""


@frozen()
class KindContext:
    """Everything that a kind is built from."""

    settings: Settings
    store: KindView[Score]
    clock: Clock
    objects: ObjectStore
    secrets: LocalSecrets

    def view(self, spec: type[S]) -> KindView[S]:
        """The store, typed: what it holds is of this kind alone."""
        del spec
        return cast("KindView[S]", self.store)

    def now(self) -> datetime:
        """The wall clock, as the kinds that show times want it."""
        return datetime.fromtimestamp(self.clock.now(), UTC)


@frozen()
class ComposedKind:
    """A kind, and how to ask its capability for a version and for the cgroup controllers that it
    lacks (None where it offers none).
    """

    reconciler: AnyReconciler
    version: Callable[[], Awaitable[str]] | None = None
    missing: Callable[[], Awaitable[Sequence[str]]] | None = None


def _file(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.files.local_files import LocalFiles
    from harmony_agent.kinds.file import FileReconciler

    settings = parts.settings
    roots = settings.files.roots
    # Whoever owns a directory can rename what is in it, also what is root's.
    owner = (0, 0) if settings.systemd.scope == "system" else (None, None)
    singles = settings.files.paths
    files = LocalFiles(
        roots,
        settings.agent.state_dir,
        parts.clock,
        singles=singles,
        parents_owner=owner,
        keyed=parts.secrets.hasher,
    )
    forbidden, allow_setuid = protected_paths(settings).files, settings.files.setuid
    return ComposedKind(
        FileReconciler(
            files,
            parts.view(File),
            parts.objects,
            secrets=parts.secrets,
            roots=roots,
            singles=singles,
            forbidden=forbidden,
            allow_setuid=allow_setuid,
        )
    )


def _systemd_unit(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.systemd.units import SystemdUnits
    from harmony_agent.kinds.systemd_unit import UnitReconciler

    settings = parts.settings
    keep = f"{settings.agent.state_dir}/units"
    units = SystemdUnits(settings.systemd.scope, unit_dir(settings), keep)
    return ComposedKind(
        UnitReconciler(
            units,
            parts.view(SystemdUnit),
            settings.systemd.units,
            for_user=settings.systemd.scope == "user",
        ),
        units.version,
    )


def _container(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.device_nodes import LocalDeviceNodes
    from harmony_agent.adapters.env_files import LocalEnvFiles
    from harmony_agent.adapters.ledger.images_file import ImagesFile
    from harmony_agent.adapters.podman.client import Podman
    from harmony_agent.adapters.podman.images import PodmanImages
    from harmony_agent.adapters.secret_files import TmpfsSecretFiles
    from harmony_agent.adapters.timezones import SystemTimezones
    from harmony_agent.kinds.container import ContainerReconciler, ImageBounds, ImagePuller

    settings = parts.settings
    podman = Podman(podman_socket(settings))
    puller = ImagePuller(
        podman,
        PodmanImages(podman_socket(settings)),
        ImagesFile(Path(settings.agent.state_dir)),
        parts.view(Container),
        now=parts.now,
        local=lambda: datetime.fromtimestamp(parts.clock.now()).astimezone(),
        bounds=ImageBounds(in_bytes(settings.images.min_free), settings.images.keep_seconds),
        secrets=parts.secrets,
    )
    roots, closed = settings.files.roots, protected_paths(settings)
    rootless = podman_is_rootless(settings)
    reconciler = ContainerReconciler(
        podman,
        LocalEnvFiles(roots),
        LocalDeviceNodes(rootless=rootless),
        SystemTimezones(),
        parts.view(Container),
        secrets=parts.secrets,
        secret_files=TmpfsSecretFiles(secret_folder()),
        device=settings.agent.device_id,
        boot_id=host.boot_id(),
        env_roots=roots,
        closed_files=closed.files,
        closed_mounts=closed.mounts,
        allowed=settings.podman.allow,
        rootless=rootless,
        subordinates=accounts.subordinates(podman_user(rootless=rootless)),
        now=parts.now,
        puller=puller,
    )
    return ComposedKind(reconciler, podman.version, reconciler.missing_controllers)


def _system_upgrade(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.updater import SocketUpdater
    from harmony_agent.kinds.system_upgrade import SystemUpgradeReconciler

    settings = parts.settings
    updater = SocketUpdater(settings.updater.socket)
    return ComposedKind(
        SystemUpgradeReconciler(
            updater, parts.view(SystemUpgrade), parts.clock, settings.agent.device_id
        )
    )


def _session(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.env_files import LocalEnvFiles
    from harmony_agent.adapters.tmux.holder import SystemdHolder
    from harmony_agent.adapters.tmux.sessions import TmuxSessions
    from harmony_agent.kinds.session import SessionReconciler

    settings = parts.settings
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(Path.home())}
    env["XDG_RUNTIME_DIR"] = runtime_dir()
    holder = SystemdHolder("system" if os.getuid() == 0 else "user", _manager_dir(), env)
    sessions = TmuxSessions(session_socket(settings), holder, env)
    reconciler = SessionReconciler(
        sessions,
        LocalEnvFiles(settings.files.roots),
        parts.view(Session),
        parts.clock,
        installation=digest(installation(settings).encode()).removeprefix("sha256:")[:32],
        boot_id=host.boot_id(),
        new_token=lambda: secrets.token_hex(16),
        env_roots=settings.files.roots,
        closed_files=protected_paths(settings).files,
    )
    return ComposedKind(reconciler, sessions.version)


def _volume(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.podman.volumes import PodmanVolumes
    from harmony_agent.kinds.volume import VolumeReconciler

    volumes = PodmanVolumes(podman_socket(parts.settings))
    device = parts.settings.agent.device_id
    return ComposedKind(
        VolumeReconciler(volumes, parts.view(Volume), device=device), volumes.version
    )


def _network(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.podman.networks import PodmanNetworks
    from harmony_agent.kinds.network import NetworkReconciler

    networks = PodmanNetworks(podman_socket(parts.settings))
    reconciler = NetworkReconciler(
        networks,
        parts.view(Network),
        device=parts.settings.agent.device_id,
        rootless=podman_is_rootless(parts.settings),
    )
    return ComposedKind(reconciler, networks.version)


def _package(parts: KindContext) -> ComposedKind:
    from harmony_agent.adapters.dpkg import DpkgPackages
    from harmony_agent.kinds.package import PackageReconciler

    return ComposedKind(PackageReconciler(DpkgPackages(), parts.view(Package)))


KINDS: Final[Mapping[str, Callable[[KindContext], ComposedKind]]] = {
    "File": _file,
    "SystemdUnit": _systemd_unit,
    "Container": _container,
    "SystemUpgrade": _system_upgrade,
    "Session": _session,
    "Volume": _volume,
    "Network": _network,
    "Package": _package,
}


def runtime_dir() -> str:
    """The user's runtime directory. A service without a login has none in its environment."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"


def secret_folder() -> str:
    """Where containers' secrets are, in memory: below the service's own runtime directory."""
    own = os.environ.get("RUNTIME_DIRECTORY") or f"{runtime_dir()}/harmony-agent"
    return f"{own}/secrets"


def unit_dir(settings: Settings) -> str:
    """Directory from which the scope's manager reads the units that the agent writes."""
    if settings.systemd.scope == "system":
        return "/etc/systemd/system"
    return f"{os.environ.get('XDG_CONFIG_HOME') or Path.home() / '.config'}/systemd/user"


def podman_socket(settings: Settings) -> str:
    """Podman's API socket: as configured, else by the scope."""
    if settings.podman.socket:
        return settings.podman.socket
    return (
        "/run/podman/podman.sock"
        if settings.systemd.scope == "system"
        else f"{runtime_dir()}/podman/podman.sock"
    )


def podman_user(*, rootless: bool) -> str:
    """The name by which podman looks up subordinate ids for containers of their own users."""
    return accounts.user_name(os.getuid()) if rootless else "containers"


def podman_is_rootless(settings: Settings) -> bool:
    """Tell by the socket's owner whose podman it is; by the scope while there is no socket."""
    try:
        return Path(podman_socket(settings)).stat().st_uid != 0
    except OSError:
        return settings.systemd.scope == "user"


def installation(settings: Settings) -> str:
    """Tell this agent from another one, on this machine or of the same id."""
    return f"{host.machine_id()}:{settings.agent.state_dir}"


def session_socket(settings: Settings) -> str:
    """The socket of the sessions: as configured, else where their holder makes it."""
    if settings.sessions.socket:
        return settings.sessions.socket
    return f"{_manager_dir()}/harmony-sessions/tmux.sock"


def _manager_dir() -> str:
    """The runtime directory of the manager that holds the sessions."""
    return "/run" if os.getuid() == 0 else runtime_dir()


def protected_paths(settings: Settings) -> ProtectedPaths:
    """Collect the paths that no Score may reach."""
    own = [
        settings.agent.state_dir,
        unit_dir(settings),
        podman_socket(settings),
        settings.updater.socket,
        session_socket(settings),
        secret_folder(),
    ]
    return ProtectedPaths(
        [*own, settings.nats.credentials, settings.nats.tls_ca, settings.secrets.key],
        str(Path.home()),
        settings.files.roots,
    )


def control_plane(settings: Settings, known: Callable[[], Collection[str]] = tuple) -> NatsControl:
    """NATS, as configured; the state directory tells this installation from another of the same id.

    `known` names the deployments that the device has anyway.
    """
    nats = settings.nats
    return NatsControl(
        settings.agent.device_id,
        installation(settings),
        nats.servers,
        credentials=nats.credentials,
        tls_ca=nats.tls_ca,
        insecure=nats.insecure,
        poll=settings.intervals.poll,
        known=known,
    )


def trust(settings: Settings) -> Trust:
    """Build the policy for signatures. Loads the library only if keys are configured."""
    keys = [read_key(text) for text in settings.trust.keys]
    if not keys:
        return Trust()
    from harmony_agent.adapters import ed25519

    return Trust(settings.trust.require, {key_id(key): key for key in keys}, ed25519.valid)


def secrets_of(settings: Settings) -> LocalSecrets:
    """The device's own key, and the secrets that were sealed for it."""
    agent = settings.agent
    return LocalSecrets(agent.device_id, agent.state_dir, settings.secrets.key)


def times() -> Times:
    """The kernel's clocks and chance, and the boot."""
    clock = SystemClock()
    return Times(
        clock,
        lambda: format_time(datetime.fromtimestamp(clock.now(), UTC)),
        random.random,
        host.boot_id(),
    )


async def run(settings: Settings) -> None:
    """Run the agent until SIGTERM or SIGINT. Raises AlreadyRunning, LedgerUnreadable."""
    syscalls.set_dumpable(dumpable=False)  # who shares the user changes nothing below /proc/PID
    state_dir = Path(settings.agent.state_dir)
    held = host.StateLock(state_dir)
    guard = ProcessGuard(state_dir, host.boot_id())
    ledger = SqliteLedger(state_dir, held.renew)
    anew, moments = asyncio.Event(), times()
    state = DeviceState(ledger, moments.wire_now)
    control = control_plane(settings, lambda: list(state.deployments))
    own = secrets_of(settings)
    made: dict[str, ComposedKind] = {
        kind: KINDS[kind](
            KindContext(settings, DeviceStateView(state, kind), moments.clock, control, own)
        )
        for kind in settings.agent.kinds
    }
    engine = Engine(
        device=settings.agent.device_id,
        state=state,
        kinds={kind: part.reconciler for kind, part in made.items()},
        control=control,
        prober=LoopbackProber(),
        times=moments,
        intervals=Intervals(settings.intervals.heartbeat, settings.intervals.relist),
        describe=DeviceDescription(
            settings, made, guard.disturbed, lambda: own.told(settings.nats.credentials)
        ),
        refresh=control.refresh,
        agent_version=__version__,
        say=lambda sentence: sd_notify.notify(f"STATUS={sentence}"),
        rebuilt=anew.set,
        trust=trust(settings),
        secrets=own,
    )
    try:
        await _serve(control, engine, guard, state_dir, anew)
    finally:
        with anyio.move_on_after(2, shield=True):
            await engine.close()
        ledger.close()
        held.close()


async def _serve(
    control: NatsControl,
    engine: Engine,
    guard: ProcessGuard,
    state_dir: Path,
    anew: asyncio.Event,
) -> None:
    """All loops, until a signal says to stop."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(control.run)
        tasks.start_soon(status_socket.serve, state_dir, lambda: _told(control, engine), anew)
        tasks.start_soon(engine.run, lambda: sd_notify.notify("READY=1"))
        tasks.start_soon(guard.run, lambda: os.kill(os.getpid(), signal.SIGTERM))
        tasks.start_soon(sd_notify.feed_watchdog, engine.progress.stalled)
        await _until_signal()
        sd_notify.notify("STOPPING=1\nSTATUS=stopping; what runs goes on")
        _bound_the_stop()
        tasks.cancel_scope.cancel()


def _told(control: NatsControl, engine: Engine) -> dict[str, Any]:
    """Answer of the status socket."""
    lost = engine.intake.lost
    return {
        "connected": control.connected(),
        "trouble": control.trouble,
        "lost": f"{lost.reason}: {lost.message}" if lost else "",
        "statuses": [status.wire() for status in engine.statuses()],
    }


def _bound_the_stop() -> None:
    """End the process after a while, though a thread hangs in the kernel, as on a dead disk.

    Nothing is lost: what has to outlive the agent is durable before the agent acts on it.
    """

    def end() -> None:
        log.warning(
            "something still hangs after %g s: stopping without it",
            STOP_SECONDS,
            extra={"reason": "Hangs"},
        )
        os._exit(0)

    last = threading.Timer(STOP_SECONDS, end)
    last.daemon = True
    last.start()


async def _until_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return
