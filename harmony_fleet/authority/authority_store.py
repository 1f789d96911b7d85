"""The operator's authority on disk, below ``$HARMONY_HOME/authority``: seeds (0600), and what was
issued with them.

There is one writer at a time: a lock that goes with its holder. Each file is replaced whole. The
servers shall know what is written here; the next push makes up for one that failed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from harmony_fleet.authority import permissions
from harmony_fleet.authority.claims import (
    ACCOUNT,
    NO_LIMIT,
    OPERATOR,
    STORAGE,
    USER,
    Identity,
    credentials,
)
from harmony_fleet.authority.enrolled import Enrolled
from harmony_fleet.context import ANEW, AUTHORITY
from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.storage import durable, secret
from harmony_fleet.storage.lock import alone
from harmony_fleet.storage.regular import read_regular
from scores.base import Model
from scores.keys import DEVICE_TAG
from scores.names import DeviceName

FOLDER: Final = AUTHORITY
FOREVER: Final = 2**53 - 1
"""A key is given once, so it stays withdrawn. A time would depend on a clock that may have gone ahead."""
_STATE: Final = "authority.json"
_VERSION: Final = 2
_READ: Final = (1, 2)
"""Version 1 remembers nothing of what a device was enrolled with."""
_RESTORE: Final = "restore it from a backup"
_SEEDS: Final = {
    "operator": OPERATOR,
    "system": ACCOUNT,
    "fleet": ACCOUNT,
    "devices": ACCOUNT,
    "device-signer": ACCOUNT,
}


class Issued(Model):
    """A device's present credentials, by their public key, the ones before that still hold, and
    the settings that it was enrolled with (None: by a version that didn't remember them).
    """

    user: str
    before: tuple[str, ...] = ()
    settings: Enrolled | None = None


class State(Model):
    """Decisions, and users that were issued. Holds no secret."""

    version: Literal[1, 2] = _VERSION
    name: str
    servers: Annotated[tuple[str, ...], Field(min_length=1)]
    replicas: int = 1
    objects: tuple[str, ...] = ()
    devices: Mapping[DeviceName, Issued] = {}
    revoked: Mapping[str, int] = {}
    """public key -> until when (seconds of the epoch) what was issued to it is void; `FOREVER` of
    each
    """
    stamp: int = 0
    """when the accounts were signed last: each signature is later than the one before"""


def has_keys(home: Path) -> bool:
    """Return whether there are keys of an authority, whole or not."""
    return any(any((home / FOLDER).glob(names)) for names in ("*.seed", "*.creds", "*-key.pem"))


def exists(home: Path) -> bool:
    """Return whether this home is an authority."""
    return (home / FOLDER / _STATE).exists()


def busy() -> Refused:
    """Error for a command while another one holds the lock."""
    return Refused(
        "AuthorityBusy", "another command works with this authority", "try again when it has ended"
    )


def _must_be_known(path: Path, data: bytes) -> None:
    """Of another version than this program's it may have fields that must not be lost. Raises
    InvalidInput.
    """
    try:
        value = json.loads(data)
    except ValueError:
        return  # no version at all: the model says so
    version = value.get("version", _VERSION) if isinstance(value, dict) else _VERSION
    if version not in _READ or isinstance(version, bool):
        raise InvalidInput(
            "AuthorityVersion",
            f"cannot use {path}: it is of version {version!r:.20}, and this program knows {_VERSION}",
            "use the harmony that wrote it, or a newer one; or restore the file from a backup",
        )


@dataclass(slots=True)
class Authority:
    """The keys and the state; `save` writes the state."""

    folder: Path
    state: State
    _keys: dict[str, Identity] = field(default_factory=dict)
    _lock: tuple[int, ...] = ()

    @classmethod
    def make(cls, home: Path, state: State, locks: Sequence[int]) -> Authority:
        """New keys, which mean nothing before `save`. `locks`: those that the caller holds, the
        folder's with them.
        """
        folder = home / FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        made = cls(folder, state, _lock=tuple(locks))
        for name, kind in _SEEDS.items():
            made._keys[name] = Identity.make(kind)
            made.put(f"{name}.seed", made._keys[name].seed)
        return made

    @classmethod
    def load(cls, home: Path) -> Authority:
        """Read the authority. Raises InvalidInput if there is none or it can't be read."""
        folder = home / FOLDER
        try:
            data = read_regular(folder / _STATE)
            _must_be_known(folder / _STATE, data)
            state = State.model_validate_json(data)
        except FileNotFoundError:
            hint = _RESTORE if has_keys(home) else "make one with harmony server init"
            raise InvalidInput("NoAuthority", f"there is no authority in {folder}", hint) from None
        except (OSError, ValidationError) as error:
            why = (
                error.strerror if isinstance(error, OSError) else "it isn't what this program wrote"
            )
            raise InvalidInput(
                "AuthorityUnreadable", f"cannot read {folder / _STATE}: {why}", _RESTORE
            ) from None
        return cls(folder, state)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone, with the state as it is now. Raises Refused where another command works on it."""
        with alone(self.folder, 0, busy()) as lock:
            self.state, self._lock = Authority.load(self.folder.parent).state, (lock,)
            try:
                yield
            finally:
                self._lock = ()

    def key(self, name: str) -> Identity:
        """One of the authority's own."""
        if name not in self._keys:
            path = self.folder / f"{name}.seed"
            seed = secret.read(path, _RESTORE, ANEW).strip()
            try:
                self._keys[name] = Identity(seed)
            except Exception:  # the library's many errors: none of them may repeat the seed
                raise InvalidInput(
                    "AuthorityUnreadable", f"cannot use {path}: it is no key", _RESTORE
                ) from None
        return self._keys[name]

    def ca(self) -> str:
        """The certificate of the fleet's own certificate authority, as PEM."""
        path = self.folder / "ca.pem"
        try:
            return read_regular(path).decode("ascii")
        except (OSError, UnicodeDecodeError):
            raise InvalidInput("AuthorityUnreadable", f"cannot read {path}", _RESTORE) from None

    def put(self, name: str, data: bytes) -> None:
        """Write a file of the folder, whole, for its owner's eyes alone. Raises InvalidInput."""
        path = self.folder / name
        try:
            durable.replace(str(path), data, keep=self._lock, secret=True)
        except OSError as error:
            raise InvalidInput(
                "AuthorityUnwritable",
                f"cannot write {path}: {error.strerror}",
                "see the folder's permissions and space",
            ) from None

    def save(self, **changes: Any) -> None:
        """Write the state, changed."""
        self.state = self.state.model_copy(update={**changes, "version": _VERSION})
        whole = self.state.model_dump_json(indent=2).encode() + b"\n"
        self.put(_STATE, whole)

    # -- what is signed

    def next_stamp(self) -> int:
        """Now, but later than the last: of two accounts with the same key the servers keep the
        later one.
        """
        return max(int(time.time()), self.state.stamp + 1)

    def accounts(self) -> dict[str, str]:
        """The accounts' JWTs by public key, the system's first."""
        now, operator = self.state.stamp, self.key("operator")
        fleet, devices = self.key("fleet").public, self.key("devices").public
        role = {
            "kind": "user_scope",
            "key": self.key("device-signer").public,
            "role": "device",
            "template": permissions.device_role(self.state.objects),
        }
        claims: dict[str, dict[str, Any]] = {
            "system": {"limits": NO_LIMIT},
            "fleet": {
                "limits": NO_LIMIT | STORAGE,
                "exports": permissions.fleet_exports(),
                "imports": permissions.fleet_imports(devices),
            },
            "devices": {
                "limits": NO_LIMIT,
                "exports": permissions.device_exports(),
                "imports": permissions.device_imports(fleet),
                "signing_keys": [role],
                "revocations": dict(self.state.revoked),
            },
        }
        return {
            self.key(name).public: operator.sign(
                self.key(name).public, name, {"type": "account", **one}, now
            )
            for name, one in claims.items()
        }

    def operator_token(self) -> str:
        """The operator's own JWT."""
        operator = self.key("operator")
        claims = {"type": "operator", "system_account": self.key("system").public}
        return operator.sign(operator.public, self.state.name, claims, self.state.stamp)

    def user(self, account: str, name: str) -> str:
        """The .creds text of a new user with an account's full rights: the operator's own, for
        commands.
        """
        user = Identity.make(USER)
        claims = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
        return credentials(
            self.key(account).sign(user.public, name, claims, int(time.time())), user
        )

    def device(self, name: str) -> tuple[str, str]:
        """New credentials of a device: public key, .creds text. What it may do stands with its
        account.
        """
        user = Identity.make(USER)
        claims = {
            "type": "user",
            "issuer_account": self.key("devices").public,
            "pub": {},
            "sub": {},
        }
        claims |= {"tags": [DEVICE_TAG]}
        token = self.key("device-signer").sign(user.public, name, claims, int(time.time()))
        return user.public, credentials(token, user)
