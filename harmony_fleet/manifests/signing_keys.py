"""The signing keys of a home, in ``$HARMONY_HOME/fleet/keys``: made, read, retired.

A key's file has its private half, and is read by its owner alone.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.manifests.signing import Key, Signing, State
from harmony_fleet.storage import durable, secret
from harmony_fleet.storage.lock import LOCK_SECONDS, alone
from scores.signatures import (
    KEY_BYTES,
    MAX_SIGNATURES,
    is_key_id,
    key_id,
    strict_base64,
)

FOLDER: Final = "keys"


_RESTORE: Final = (
    "restore it from a backup; or remove it, make another, and put that into each device's trust"
)
_PREFIX: Final = "ed25519-private:"


_ENDS: Final[dict[State, str]] = {"active": ".key", "retired": ".retired"}


def keys_folder(home: Path) -> Path:
    """Folder of a home's keys."""
    return home / "fleet" / FOLDER


def load(home: Path) -> Signing:
    """The active keys. Raises InvalidInput where one can't be used: nothing goes out unsigned by
    mistake.
    """
    found = all_keys(home)
    return Signing(
        tuple(key for key in found if key.state == "active"),
        tuple(key for key in found if key.state == "retired"),
    )


def trusted_keys(home: Path) -> list[str]:
    """Public halves of the active keys, as ``ed25519:<base64>``, for the home's devices."""
    return [key.spelt for key in load(home).keys]


def all_keys(home: Path) -> list[Key]:
    """Every key of the home, by id."""
    folder = keys_folder(home)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise secret.unreadable(folder, error, _RESTORE) from None
    return [
        _read(folder / name, name.removesuffix(end), state)
        for name in names
        for state, end in _ENDS.items()
        if name.endswith(end) and not name.startswith(".")
    ]


def new(home: Path) -> Key:
    """Make a key. It signs from now on. Raises Refused where as many sign as a manifest may
    carry.
    """
    from nacl.signing import SigningKey  # noqa: PLC0415 - only where there are keys

    folder = keys_folder(home)
    with _told(folder):
        _make_folder(folder)
        with alone(
            folder, LOCK_SECONDS, _busy()
        ) as lock:  # of several at once each would see room for itself
            if len(load(home).keys) >= MAX_SIGNATURES:
                raise Refused(
                    "TooManyKeys",
                    f"cannot make a key: {MAX_SIGNATURES} sign already, as many as a manifest may carry",
                    "retire one: harmony fleet key retire ID",
                )
            private = SigningKey.generate()
            name = key_id(bytes(private.verify_key))
            text = _PREFIX + base64.b64encode(bytes(private)).decode("ascii") + "\n"
            path = str(folder / f"{name}{_ENDS['active']}")
            durable.replace(path, text.encode("ascii"), keep=[lock], secret=True)
    return Key(name, bytes(private.verify_key), "active", private)


def _busy() -> Conflict:
    return Conflict(
        "KeysBusy",
        "cannot lock the keys: another command holds them",
        "try again when that has ended",
    )


def turn(home: Path, name: str, state: State) -> bool:
    """Have a key sign no more (``retired``), or again (``active``); whether it changed. The file
    stays: a mistake can be undone. Raises InvalidInput, Refused.
    """
    folder = keys_folder(home)
    if not folder.exists():
        raise _unknown(name)
    with (
        _told(folder),
        alone(folder, LOCK_SECONDS, _busy()),
    ):  # two that retire a key each would leave none
        return _turn(home, name, state)


def _turn(home: Path, name: str, state: State) -> bool:
    found = {key.id: key for key in all_keys(home)}
    key = found.get(name)
    if key is None:
        raise _unknown(name)
    if key.state == state:
        return False
    active = sum(1 for other in found.values() if other.state == "active")
    if state == "retired" and active == 1:
        raise Refused(
            "LastKey",
            f"cannot retire {name}: no other key signs, and devices that require signatures would believe nothing",
            "make its successor first: harmony fleet key new",
        )
    if state == "active" and active >= MAX_SIGNATURES:
        raise Refused(
            "TooManyKeys",
            f"cannot take {name} up again: {active} sign already",
            "retire one of them",
        )
    folder = keys_folder(home)
    old, new_path = (folder / f"{name}{_ENDS[which]}" for which in (key.state, state))
    os.rename(old, new_path)
    durable.sync_folder(str(folder))
    return True


def _unknown(name: str) -> InvalidInput:
    return InvalidInput(
        "NotFound", f"cannot find the key {name[:64]!r}", "see: harmony fleet key list"
    )


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            "KeyUnwritable",
            f"cannot change the keys in {folder}: {error.strerror or error}",
            "make the folder writable",
        ) from None


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        durable.sync_folder(str(folder.parent))


def _read(path: Path, name: str, state: State) -> Key:
    """Read a key's file. Nobody else may have access to it, and its name must be its key's."""
    from nacl.signing import SigningKey  # noqa: PLC0415 - only where there are keys

    text = secret.read(path, _RESTORE, "make another: harmony fleet key new").decode(
        "ascii", "replace"
    )
    seed = strict_base64(text.removeprefix(_PREFIX).removesuffix("\n"), KEY_BYTES)
    private = SigningKey(seed) if seed is not None else None
    if private is None or not is_key_id(name) or key_id(bytes(private.verify_key)) != name:
        raise InvalidInput(
            "KeyInvalid", f"cannot use {path}: it isn't the key that its name says", _RESTORE
        )
    return Key(name, bytes(private.verify_key), state, private)
