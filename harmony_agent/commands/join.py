"""``harmony-agent join BUNDLE``, as root: what the bundle gives becomes the configuration, and the
agent starts.

All is checked before anything is written, and each file is replaced whole, so that it may be run
again, also after it was cut short. What the bundle doesn't speak of stays as it is configured.
Never prints what stands in a bundle.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harmony_agent.adapters import status_socket
from harmony_agent.adapters.posix.atomic import AtomicWrite, in_directory
from harmony_agent.adapters.secrets import KEY as DEVICE_KEY
from harmony_agent.adapters.secrets import read_key_file
from harmony_agent.core.frozen import frozen
from harmony_agent.settings import DEFAULT_PATH, Settings
from scores.bundle import MAX_BYTES, Bundle, InvalidBundle, decode
from scores.secrets import KEY_BYTES
from scores.toml import read_toml

OK: Final = 0
FAILED: Final = 1
INVALID: Final = 2
UNREACHABLE: Final = 4
REFUSED: Final = 5

CONFIG: Final = Path(DEFAULT_PATH)
FOLDER: Final = CONFIG.parent
CREDENTIALS: Final = FOLDER / "nats.creds"
CA: Final = FOLDER / "ca.pem"
KEY: Final = FOLDER / "device.key"
UPDATER: Final = FOLDER / "updater.toml"
STATE_DIR: Final = "/var/lib/harmony-agent"
_GROUP: Final = "harmony-agent"
_UNIT: Final = "harmony-agent.service"
_UPDATER_UNIT: Final = "harmony-updater"
_MODE: Final = 0o640
_STEP_SECONDS: Final = 60
_LOOK_SECONDS: Final = 0.2


class Cannot(Exception):
    """Failure of a join: the cause, the next step, the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@frozen()
class File:
    """Desired content of a file of the configuration."""

    path: Path
    data: bytes


def run(path: str, *, seconds: float, replace: bool) -> int:
    """Join; returns the exit code. Waits at most `seconds` for the connection."""
    try:
        join(path, seconds, replace=replace)
    except Cannot as error:
        print(f"harmony-agent: cannot join: {error}", file=sys.stderr)
        return error.code
    return OK


def join(path: str, seconds: float, *, replace: bool) -> None:
    """Raises Cannot."""
    if os.geteuid() != 0:
        raise Cannot(
            REFUSED, f"it writes {FOLDER} and starts a service: run it as root, as with sudo"
        )
    bundle = _read(path)
    group = _group()
    files = _files(bundle, _configured(bundle, replace=replace))
    other_updater = any(file.path == UPDATER and file.data != _bytes(UPDATER) for file in files)
    try:
        for file in files:
            put(file, group)
    except OSError as error:
        raise Cannot(
            FAILED,
            f"{error.filename or FOLDER} can't be written: {error.strerror}; then run it again",
        ) from None
    print(f"{FOLDER} says that this is {bundle.device}")
    _start(other_updater=other_updater)
    state_dir = Path(read_toml(CONFIG.read_bytes())["agent"].get("state_dir", STATE_DIR))
    _await(lambda: _trouble(state_dir), seconds, bundle)
    print(f"{bundle.device} has joined: connected to {', '.join(bundle.servers)}")
    print(f"remove the bundle, for whoever has it is {bundle.device}: rm {path}")


def _read(path: str) -> Bundle:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Cannot(
                    INVALID, f"{path} is no file: name the bundle that harmony device enroll wrote"
                )
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Cannot(INVALID, f"{path} can't be read: {error.strerror}") from None
    try:
        return decode(data)
    except InvalidBundle as error:
        told = ", ".join(f"{one.field or 'the bundle'}: {one.code}" for one in error.errors)
        raise Cannot(
            INVALID, f"{path} is no bundle ({told}): have it made anew by harmony device rotate"
        ) from None


def _group() -> int:
    try:
        return grp.getgrnam(_GROUP).gr_gid
    except KeyError:
        raise Cannot(
            REFUSED, f"there is no group {_GROUP}: install the package harmony-agent first"
        ) from None


def _configured(bundle: Bundle, *, replace: bool) -> dict[str, Any]:
    """Read the present configuration.

    Empty if there is none. Refuses another device's, unless `replace`.
    """
    found = _toml(CONFIG)
    agent = found.get("agent")
    device = agent.get("device_id") if isinstance(agent, dict) else None
    if device not in (None, bundle.device) and not replace:
        raise Cannot(
            REFUSED,
            f"this is {device} already, and the bundle is {bundle.device}'s: what {device} owns here would be "
            f"{bundle.device}'s; harmony-agent join --replace does it all the same",
        )
    return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _toml(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):  # a TOML error repeats the line
        raise Cannot(
            INVALID, f"{path} stands there and can't be read: mend it, or move it away"
        ) from None


def _files(bundle: Bundle, found: Mapping[str, Any]) -> list[File]:
    """All that is written, the configuration that names the others last."""
    given: dict[str, dict[str, Any]] = {
        "agent": {"device_id": bundle.device},
        "nats": {"servers": list(bundle.servers), "credentials": str(CREDENTIALS)},
    }
    said = bundle.model_fields_set
    if "profile" in said:
        given["systemd"] = {"scope": bundle.profile}
    if "labels" in said:
        given["labels"] = dict(bundle.labels)
    for name, section in (("kinds", "agent"), ("roots", "files"), ("units", "systemd")):
        if name in said:
            given.setdefault(section, {})[name] = list(getattr(bundle, name))
    given["secrets"] = {"key": str(KEY)}
    files = [File(CREDENTIALS, bundle.credentials.encode()), File(KEY, _device_key(found))]
    if bundle.tls_ca is not None:
        given["nats"]["tls_ca"] = str(CA)
        files.append(File(CA, bundle.tls_ca.encode()))
    if bundle.trusted_keys:
        given["trust"] = {"require": True, "keys": list(bundle.trusted_keys)}
    merged = {
        section: dict(values) for section, values in found.items() if isinstance(values, dict)
    }
    for section, values in given.items():
        merged[section] = values if section == "labels" else merged.get(section, {}) | values
    try:
        Settings.model_validate(merged)
    except ValidationError as error:
        places = ", ".join(
            ".".join(map(str, one["loc"]))
            for one in error.errors(include_url=False, include_input=False)
        )
        raise Cannot(
            INVALID, f"{CONFIG} couldn't be used with what stands in it already: see {places}"
        ) from None
    if _has_updater():
        files.append(
            File(UPDATER, to_toml({"": _toml(UPDATER) | {"device_id": bundle.device}}).encode())
        )
    return [*files, File(CONFIG, to_toml(merged).encode())]


def _device_key(found: Mapping[str, Any]) -> bytes:
    """The device's own key: the one that it has, else a new one. No bundle and no operator has it."""
    state_dir = found.get("agent", {}).get("state_dir", STATE_DIR)
    configured = found.get("secrets", {}).get("key") or f"{state_dir}/{DEVICE_KEY}"
    for path in (str(KEY), configured):
        with contextlib.suppress(OSError):
            return read_key_file(path)
    return os.urandom(KEY_BYTES)


def _has_updater() -> bool:
    return any(
        Path(place, f"{_UPDATER_UNIT}.socket").exists()
        for place in ("/usr/lib/systemd/system", "/etc/systemd/system")
    )


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """TOML of tables of text, numbers, booleans and lists of them, which it spells as JSON does; ""
    is the top.
    """
    lines = ["# Written by harmony-agent join. What it doesn't know stays through the next one."]
    for table, values in tables.items():
        lines += ["", f"[{table}]"] if table else []
        lines += [f"{_spelt(key)} = {_spelt(value)}" for key, value in values.items()]
    return "\n".join([*lines, ""])


def _spelt(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def put(file: File, group: int) -> None:
    """Write it atomically, with its owner. Raises OSError."""
    FOLDER.mkdir(mode=0o750, exist_ok=True)
    with (
        in_directory(str(FOLDER.parent)) as above,
        in_directory(FOLDER.name, above) as folder,
        AtomicWrite(folder, file.path.name) as new,
    ):
        new.write(file.data)
        os.fchown(new.fd, 0, group)
        os.fchmod(new.fd, _MODE)
        new.replace()


def _start(*, other_updater: bool) -> None:
    """The generator reads the configuration with the reload: the sandbox is opened for the File
    roots.
    """
    _systemctl("daemon-reload")
    if _has_updater():
        _systemctl("enable", "--now", f"{_UPDATER_UNIT}.socket")
        _systemctl("restart" if other_updater else "start", f"{_UPDATER_UNIT}.service")
    _systemctl("enable", _UNIT)
    _systemctl("restart", _UNIT)


def _systemctl(*words: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603  # a fixed program and words of ours
            ["/usr/bin/systemctl", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Cannot(FAILED, f"systemctl {' '.join(words)}: {error}") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise Cannot(
            FAILED,
            f"systemctl {' '.join(words)}: {said}; see journalctl -u {_UNIT}, then run it again",
        )


def _trouble(state_dir: Path) -> str | None:
    """Tell why the agent has no connection, as far as it says; None when it has one."""
    try:
        told = status_socket.ask(state_dir)
        return None if told["connected"] else str(told.get("trouble", ""))
    except (OSError, LookupError, TypeError, AttributeError):
        return ""


def _await(trouble: Callable[[], str | None], seconds: float, bundle: Bundle) -> None:
    until = time.monotonic() + seconds
    while (why := trouble()) is not None:
        if time.monotonic() > until:
            raise Cannot(
                UNREACHABLE,
                f"the configuration is written, and the agent goes on trying, but in {seconds:g} s it hasn't connected "
                f"to {', '.join(bundle.servers)}: {why or 'no answer'}. Does this device reach it, and are its "
                f"credentials still good? "
                f"See journalctl -u {_UNIT}",
            )
        time.sleep(_LOOK_SECONDS)
