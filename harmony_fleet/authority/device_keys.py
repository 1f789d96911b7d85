"""The keys that secrets are sealed for, and who vouches for each.

A device tells its key over NATS, whose owner could tell another one. So a key counts if the
device's NATS identity signed it, which the operator gave to that device; and it is remembered, so
that no later one takes its place unseen.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harmony_fleet.authority import authority_store
from harmony_fleet.authority.authority_store import Authority, Issued
from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.storage import durable
from harmony_fleet.storage.lock import LOCK_SECONDS, alone
from harmony_fleet.storage.regular import read_regular
from scores.secrets import key_id, proof, read_key
from scores.status import SealingInfo

_FILE: Final = "device-keys.json"
_COMPARE: Final = "compare it with harmony-agent check on the device, then: --accept-key"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A key as it was accepted, and the identity that vouched for it; "" for a person."""

    key: str
    user: str


class DeviceKeys:
    """The keys that this home has accepted."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "fleet"
        self._issued: Mapping[str, Issued] = (
            Authority.load(home).state.devices if authority_store.exists(home) else {}
        )

    def check_labels(self, device: str, labels: Mapping[str, str]) -> None:
        """Refuse a device that was chosen by labels which only it itself tells. Raises Refused."""
        issued = self._issued.get(device)
        given = issued.settings.labels if issued is not None and issued.settings else None
        if self._issued and not labels.items() <= (given or {}).items():
            raise Refused(
                "LabelsUnproven",
                f"cannot seal for {device}: its labels are its own word, and it wasn't enrolled with them",
                f"name it: --device {device}",
            )

    def accept(self, device: str, told: SealingInfo | None, *, by_hand: bool) -> bytes:
        """The key of `device`, remembered. `by_hand`: somebody compared it. Raises Refused."""
        if told is None:
            raise Refused(
                "DeviceKeyMissing",
                f"cannot seal for {device}: it tells no key",
                "is its agent older than this command? See harmony devices, and harmony-agent check there",
            )
        try:
            public = read_key(told.key)
        except ValueError:
            raise Refused(
                "DeviceKeyInvalid", f"cannot seal for {device}: what it tells is no key", _COMPARE
            ) from None
        pinned = self._pins().get(device)
        if pinned is None or pinned.key != told.key:
            self._check_new(device, told, pinned, by_hand=by_hand)
            self._pin(device, Pinned(told.key, "" if by_hand else told.user))
        return public

    def _check_new(
        self, device: str, told: SealingInfo, pinned: Pinned | None, *, by_hand: bool
    ) -> None:
        issued, name = self._issued.get(device), key_id(read_key(told.key))
        vouched = issued is not None and told.user == issued.user and _is_signed(device, told)
        if by_hand or (vouched and (pinned is None or pinned.user != told.user)):
            return
        if pinned is not None:
            raise Refused(
                "DeviceKeyChanged",
                f"cannot seal for {device}: its key was {key_id(read_key(pinned.key))}, and now it tells {name}",
                f"a wiped device gets new credentials: harmony device rotate {device}; or {_COMPARE}",
            )
        raise Refused(
            "DeviceKeyUnproven",
            f"cannot seal for {device}: nothing vouches for its key {name}",
            f"it joins with the credentials of this home; or {_COMPARE}",
        )

    def _pins(self) -> dict[str, Pinned]:
        path = self._folder / _FILE
        try:
            value = json.loads(read_regular(path))
            return {device: Pinned(**one) for device, one in value.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError):
            raise InvalidInput(
                "DeviceKeysUnreadable",
                f"cannot read {path}",
                "restore it from a backup; or remove it, and compare each key anew",
            ) from None

    def _pin(self, device: str, pinned: Pinned) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with alone(self._folder, LOCK_SECONDS, _busy()) as lock:
            pins = {**self._pins(), device: pinned}
            told = {name: {"key": one.key, "user": one.user} for name, one in pins.items()}
            text = json.dumps(told, indent=2, sort_keys=True) + "\n"
            durable.replace(str(self._folder / _FILE), text.encode(), keep=[lock])


def _is_signed(device: str, told: SealingInfo) -> bool:
    """Return whether the identity that it names signed its key for this device."""
    from nacl.exceptions import CryptoError  # noqa: PLC0415 - only where something is sealed
    from nacl.signing import VerifyKey  # noqa: PLC0415

    try:
        identity = base64.b32decode(told.user + "=" * (-len(told.user) % 8))[1:33]
        signature = base64.b64decode(told.signature, validate=True)
        VerifyKey(identity).verify(proof(device, read_key(told.key)), signature)
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def _busy() -> Conflict:
    return Conflict(
        "KeysBusy", "cannot lock the devices' keys: another command holds them", "try again"
    )
