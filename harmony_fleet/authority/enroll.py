"""A device's credentials: given, replaced, withdrawn. They are changed on disk first, and then at
the servers.

At the servers, `revoke` cuts every connection with the credentials at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harmony_fleet.authority.authority_store import FOREVER, Authority, Issued
from harmony_fleet.authority.enrolled import Enrolled, EnrollOptions, changed
from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.manifests import signing_keys
from harmony_fleet.storage import durable
from scores.bundle import Bundle
from scores.canonical import canonical
from scores.manifest import InvalidManifest, validate
from scores.names import format_time, is_name


def enroll(authority: Authority, home: Path, device: str, asked: EnrollOptions) -> Bundle:
    """A new device's bundle. Raises Refused where it has credentials already."""
    _must_be_name(device)
    if device in authority.state.devices:
        raise Refused(
            "AlreadyEnrolled",
            f"cannot enroll {device}: it has credentials",
            f"give it new ones with harmony device rotate {device}",
        )
    return _issue(authority, home, device, asked, before=())


def rotate(
    authority: Authority, home: Path, device: str, asked: EnrollOptions, *, at_once: bool
) -> Bundle:
    """New credentials, with the settings of before where nothing else is asked for; the
    credentials before hold until `settle`, or are withdrawn at once.
    """
    issued = known(authority, device)
    before = (*issued.before, issued.user)
    if at_once:
        return _issue(authority, home, device, asked, before=(), **_withdrawn(authority, before))
    return _issue(authority, home, device, asked, before=before)


def settle(authority: Authority, device: str, user: str) -> int:
    """Withdraw what `user`, which is in use, replaced; how many credentials that were.

    Raises Conflict where `user` was replaced in turn: to withdraw it would cut the device off.
    """
    issued = known(authority, device)
    if issued.user != user:
        raise Conflict(
            "RotatedMeanwhile",
            f"cannot finish: {device} was given newer credentials meanwhile, which it doesn't use yet",
            f"join it with the newest bundle, then: harmony device finish {device}",
        )
    settled = issued.model_copy(update={"before": ()})
    devices = {**authority.state.devices, device: settled}
    authority.save(devices=devices, **_withdrawn(authority, issued.before))
    return len(issued.before)


def revoke(authority: Authority, device: str) -> None:
    """Withdraw all that the device has. It may be enrolled again."""
    issued = known(authority, device)
    devices = {name: one for name, one in authority.state.devices.items() if name != device}
    authority.save(devices=devices, **_withdrawn(authority, (*issued.before, issued.user)))


def allow_objects(authority: Authority, buckets: Sequence[str]) -> None:
    """Let devices read these object stores, too."""
    if not all(map(is_bucket, buckets)):
        raise InvalidInput(
            "InvalidName", "cannot use this as an object store's name", "A-Z a-z 0-9 _ and -"
        )
    known = tuple(sorted({*authority.state.objects, *buckets}))
    authority.save(objects=known, stamp=authority.next_stamp())


def is_bucket(name: str) -> bool:
    """Return whether `name` may be an object store's."""
    return re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name) is not None


def write_bundle(bundle: Bundle, path: Path) -> None:
    """Write a bundle that its owner alone can read. Raises InvalidInput; nobody then knows the
    device's credentials.
    """
    try:
        durable.replace(str(path.absolute()), canonical(bundle.wire()) + b"\n", secret=True)
    except OSError as error:
        hint = f"make another one elsewhere: harmony device rotate {bundle.device} -o FILE"
        raise InvalidInput("NotWritable", f"cannot write {path}: {error.strerror}", hint) from None


def _must_be_name(device: str) -> None:
    if not is_name(device):
        raise InvalidInput(
            "InvalidName",
            "cannot use this as a device's name",
            "1 to 63 of a-z 0-9 and -, as pi-01",
        )


def known(authority: Authority, device: str) -> Issued:
    """The credentials of a device. Raises InvalidInput where it has no credentials."""
    _must_be_name(device)
    issued = authority.state.devices.get(device)
    if issued is None:
        raise InvalidInput(
            "NotEnrolled", f"{device} has no credentials", f"harmony device enroll {device}"
        )
    return issued


def _withdrawn(authority: Authority, users: Sequence[str]) -> dict[str, Any]:
    """Values to save that withdraw users, with the stamp by which the servers accept it."""
    revoked = {**authority.state.revoked, **dict.fromkeys(users, FOREVER)}
    return {"revoked": revoked, "stamp": authority.next_stamp()}


def _trusted(home: Path) -> list[str]:
    """Return the keys that sign. Raises Refused if none does: a device without trusted keys
    believes whoever writes to its NATS.
    """
    keys = signing_keys.trusted_keys(home)
    if not keys:
        raise Refused(
            "NoSigningKey",
            f"cannot make the bundle: there is no signing key in {signing_keys.keys_folder(home)}",
            "restore it from a backup, or make one: harmony fleet key new",
        )
    return keys


def _issue(
    authority: Authority,
    home: Path,
    device: str,
    asked: EnrollOptions,
    *,
    before: tuple[str, ...],
    **changes: Any,
) -> Bundle:
    """Save nothing, and withdraw nothing (`changes`), before the bundle is known to be good."""
    public, text = authority.device(device)
    issued = authority.state.devices.get(device)
    settings = changed(device, issued.settings if issued is not None else Enrolled(), asked)
    fields: dict[str, Any] = {
        "api": "harmony/v1",
        "type": "DeviceBundle",
        "device": device,
        "issued": format_time(datetime.fromtimestamp(time.time(), UTC)),
        "servers": list(authority.state.servers),
        "tls_ca": authority.ca(),
        "credentials": text,
        "trusted_keys": _trusted(home),
        **(settings.said() if settings is not None else {}),
    }
    try:
        bundle = validate(Bundle, fields)
    except InvalidManifest as error:
        hint = "mend the option of that name; see harmony device enroll --help"
        raise InvalidInput(
            error.code, f"cannot make the bundle: {error}", hint, error.errors
        ) from None
    now = Issued(user=public, before=before, settings=settings)
    authority.save(devices={**authority.state.devices, device: now}, **changes)
    return bundle
