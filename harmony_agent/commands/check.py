"""``harmony-agent check``: what is missing on this machine for what the configuration allows, and
how to mend it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from harmony_agent import app
from harmony_agent.adapters import accounts
from harmony_agent.adapters.ledger.ledger import LedgerUnreadable
from harmony_agent.adapters.ledger.snapshot import LedgerSnapshot
from harmony_agent.adapters.nats.api import Denied
from harmony_agent.core.errors import ResourceError
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.container.limits import remedy
from harmony_agent.settings import Settings
from harmony_agent.topology.control_plane import BucketMissing, Unreachable
from harmony_agent.topology.updater import UpdaterRefused
from scores.keys import ACTUAL, BUCKETS, DeploymentKey
from scores.secrets import key_id as sealing_id
from scores.secrets import read_key as read_sealing
from scores.signatures import key_id, read_key

_CONNECT_SECONDS = 4.0


class Finding(NamedTuple):
    """One line: what was looked at, whether it is well, and what was found or is to be done.

    A `note` is no fault of the device's, and yet somebody may want to know it.
    """

    what: str
    well: bool
    text: str
    note: bool = False


async def run(settings: Settings) -> int:
    """Print every finding; 0 all well, 4 only NATS is missing, 5 something on the device is."""
    findings = [_state_dir(settings), _trust(settings), _secrets(settings)]
    findings += [_root(root) for root in settings.files.roots if "File" in settings.agent.kinds]
    findings += [_single(path) for path in settings.files.paths if "File" in settings.agent.kinds]
    findings += _accounts(settings)
    findings += await _sandbox(settings)
    findings += [
        await _capability(settings, kind) for kind in settings.agent.kinds if kind != "File"
    ]
    findings += await _unmanaged(settings)
    findings += await _controllers(settings)
    device_well = all(finding.well for finding in findings)
    findings.append(await _nats(settings))
    for finding in findings:
        sign = "note" if finding.note else "ok" if finding.well else "MISSING"
        print(f"{sign:7}  {finding.what}: {finding.text}")
    if not device_well:
        return 5
    return 0 if findings[-1].well else 4


def _state_dir(settings: Settings) -> Finding:
    path = Path(settings.agent.state_dir)
    near = path if path.exists() else path.parent
    if os.access(near, os.W_OK | os.X_OK):
        return Finding("state directory", True, str(path))
    return Finding(
        "state directory",
        False,
        f"{path} can't be written: make it, owned by uid {os.getuid()}, mode 0700",
    )


def _trust(settings: Settings) -> Finding:
    keys = ", ".join(key_id(read_key(text)) for text in settings.trust.keys)
    if settings.trust.require:
        return Finding("manifests", True, f"only those signed by {keys} are believed")
    told = f"; only a wrong signature by {keys} is refused" if keys else ""
    return Finding(
        "manifests",
        True,
        f"whoever may write to NATS is believed{told}: see [trust] in the configuration",
    )


def _secrets(settings: Settings) -> Finding:
    told = app.secrets_of(settings).told("")
    if told is None:
        return Finding("secrets", False, "there is no key of its own: see secrets.key")
    return Finding("secrets", True, f"sealed for the key {sealing_id(read_sealing(told.key))}")


def _root(root: str) -> Finding:
    if not Path(root).is_dir():
        return Finding(
            "File root", False, f"{root} isn't there: make it, or take it out of files.roots"
        )
    if not os.access(root, os.W_OK | os.X_OK):
        return Finding(
            "File root",
            False,
            f"{root} can't be written by uid {os.getuid()}: chown it, or leave it out",
        )
    return Finding("File root", True, root)


def _single(path: str) -> Finding:
    folder = path.rpartition("/")[0] or "/"
    if not Path(folder).is_dir():
        return Finding("File path", False, f"{folder} isn't there: make it, for {path}")
    if not os.access(folder, os.W_OK | os.X_OK):
        text = (
            f"{folder} can't be written by uid {os.getuid()}, and a file is replaced as a whole: "
            f"use the system profile for {path}, or leave it out"
        )
        return Finding("File path", False, text)
    return Finding("File path", True, path)


def _accounts(settings: Settings) -> list[Finding]:
    """Look for the users and groups that the configuration names."""
    wanted = settings.accounts
    groups = (*wanted.groups, *wanted.member_of)
    found = [
        Finding("account", False, f"no user {name}: make it with useradd --system {name}")
        for name in accounts.missing_users(wanted.users)
    ]
    absent = accounts.missing_groups(tuple(dict.fromkeys(groups)))
    found += [
        Finding("account", False, f"no group {name}: make it with groupadd --system {name}")
        for name in absent
    ]
    me = accounts.user_name(os.getuid())
    joined = [name for name in wanted.member_of if name not in absent]
    found += [
        Finding(
            "account",
            False,
            f"{me} isn't in the group {name}: usermod -aG {name} {me}, and a reboot",
        )
        for name in accounts.not_joined(joined, os.getuid())
    ]
    if not found and (wanted.users or groups):
        found.append(Finding("accounts", True, ", ".join(dict.fromkeys((*wanted.users, *groups)))))
    return found


async def _sandbox(settings: Settings) -> list[Finding]:
    """Check which paths the package's service may write. systemd was told at the last
    daemon-reload.
    """
    argv = ["systemctl", "show", "--property=ProtectSystem,ReadWritePaths", "harmony-agent.service"]
    try:
        with anyio.fail_after(_CONNECT_SECONDS):
            shown = (await anyio.run_process(argv, check=False)).stdout.decode(errors="replace")
    except (OSError, TimeoutError):
        return []
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    if found.get("ProtectSystem") != "strict":
        return []
    # A path with a space is in quotes; the sign says that it may be missing.
    opened = [
        path.strip('"').removeprefix("-")
        for path in re.findall(r'"[^"]*"|\S+', found.get("ReadWritePaths", ""))
    ]
    folders = [path.rpartition("/")[0] for path in settings.files.paths]
    wanted = (*settings.files.roots, *folders) if "File" in settings.agent.kinds else ()
    closed = [
        root
        for root in wanted
        if not any(root == path or root.startswith(f"{path}/") for path in opened)
    ]
    remedy = "systemctl daemon-reload, then systemctl restart harmony-agent"
    return [
        Finding("sandbox", False, f"harmony-agent.service can't write {root} yet: {remedy}")
        for root in closed
    ]


async def _capability(settings: Settings, kind: str) -> Finding:
    ask, what, remedy = _questions(settings, kind)
    try:
        return Finding(what, True, await ask())
    except (ResourceError, UpdaterRefused) as error:
        return Finding(what, False, f"{error}. {remedy}")


def _questions(settings: Settings, kind: str) -> tuple[Callable[[], Awaitable[str]], str, str]:
    if kind == "SystemUpgrade":
        from harmony_agent.adapters.updater import SocketUpdater

        async def offers() -> str:
            return ", ".join(
                (await SocketUpdater(settings.updater.socket).capabilities()).operations
            )

        return (
            offers,
            "updater",
            "Install harmony-updater, or take SystemUpgrade out of agent.kinds",
        )
    made = _made(settings, kind, LedgerSnapshot())
    ask = made.version

    async def version() -> str:
        try:
            return await ask() if ask is not None else "there"
        finally:
            await KindInstance(made.reconciler).close()

    if kind == "SystemdUnit":
        user = f"loginctl enable-linger {os.getuid()}"
        return version, "systemd", f"For scope = user: {user}, and a login or reboot"
    if kind == "Session":
        return version, "tmux", "apt-get install tmux, or take Session out of agent.kinds"
    start = (
        "systemctl --user enable --now podman.socket"
        if settings.systemd.scope == "user"
        else ("systemctl enable --now podman.socket")
    )
    return (
        version,
        "podman",
        f"apt-get install podman; {start}; or take {kind} out of agent.kinds",
    )


def _made(settings: Settings, kind: str, ledger: LedgerSnapshot) -> app.ComposedKind:
    """The kind over what a ledger holds, with nothing wanted of it."""
    times = app.times()
    view = DeviceStateView(DeviceState(ledger, times.wire_now), kind)
    context = app.KindContext(
        settings, view, times.clock, app.control_plane(settings), app.secrets_of(settings)
    )
    return app.KINDS[kind](context)


_STRAYS: Final = {
    "Container": ("unmanaged containers", "with this device's labels, unknown to its ledger"),
    "Session": ("unmanaged sessions", "on the configured socket, unknown to the ledger"),
}


async def _unmanaged(settings: Settings) -> list[Finding]:
    """Containers with this device's labels, and sessions of the socket, that the ledger doesn't
    know: told, and no fault of the device's.
    """
    state_dir, found = Path(settings.agent.state_dir), []
    for kind in [kind for kind in _STRAYS if kind in settings.agent.kinds]:
        what, why = _STRAYS[kind]
        try:
            made = KindInstance(_made(settings, kind, LedgerSnapshot.read(state_dir)).reconciler)
            try:
                names = sorted(mark.name for mark in await made.marked() if not mark.known)
            finally:
                await made.close()
        except (ResourceError, LedgerUnreadable, OSError):
            continue  # that the capability or the ledger can't be asked is another finding
        if names:
            found.append(Finding(what, True, f"{', '.join(names[:20])}: {why}, and left alone"))
    return found


async def _controllers(settings: Settings) -> list[Finding]:
    """List limits that no container can have here; containers without them are as good as any."""
    if "Container" not in settings.agent.kinds:
        return []
    made = _made(settings, "Container", LedgerSnapshot())
    try:
        missing = await made.missing() if made.missing is not None else ()
    except ResourceError:
        return []  # that podman can't be asked is another finding
    finally:
        await KindInstance(made.reconciler).close()
    if not missing:
        return []
    text = f"{', '.join(missing)} missing: a Container that limits it is Blocked; {remedy(missing)}"
    return [Finding("cgroup controllers", True, text, note=True)]


async def _nats(settings: Settings) -> Finding:
    control = app.control_plane(settings)
    where = ", ".join(
        server.rpartition("@")[2] for server in settings.nats.servers
    )  # without a password
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(control.run)
        with anyio.move_on_after(_CONNECT_SECONDS):
            while not control.connected():  # noqa: ASYNC110  # connected() is all that a control plane offers
                await anyio.sleep(0.05)
        try:
            await control.get(ACTUAL, str(DeploymentKey(settings.agent.device_id, "check")))
            await control.look()
            found = Finding("NATS", True, where)
        except Denied as error:
            text = f"{where}: {error}: run harmony server push; is nats.credentials this device's own file?"
            found = Finding("NATS", False, text)
        except Unreachable:
            why = control.trouble or "is the server up, nats.servers right?"
            found = Finding("NATS", False, f"{where} doesn't answer: {why}")
        except BucketMissing:
            text = f"{where} answers but has no buckets ({', '.join(BUCKETS)}): the first harmony apply makes them"
            found = Finding("NATS", False, text)
        tasks.cancel_scope.cancel()
    return found
