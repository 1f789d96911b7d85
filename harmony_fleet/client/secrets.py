"""Secrets of devices: sealed, listed, taken back. No value is kept or shown here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harmony_fleet.authority.device_keys import DeviceKeys
from harmony_fleet.context import Context
from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.manifests import sealing
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Device, choose_devices, list_deployments
from scores.canonical import NotCanonical, canonical, read
from scores.keys import SECRETS
from scores.manifest import InvalidManifest, validate
from scores.secrets import MAX_SEALED, MAX_VALUE, SealedSecret, Secret
from scores.status import SealingInfo


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret of a device. `version` is the time at which it was set, in milliseconds since 1970,
    or later; `trouble` is a code where no device would take what stands there.
    """

    device: str
    name: str
    version: int = 0
    removed: bool = False
    used_by: tuple[str, ...] = ()
    trouble: str = ""


class Secrets:
    """The bucket of secrets, over one connection."""

    def __init__(self, store: Store, context: Context) -> None:
        self._store, self._context = store, context
        self._signing: Signing = load_signing(context.home)

    async def set(
        self,
        name: str,
        value: bytes,
        devices: Sequence[str],
        labels: Mapping[str, str],
        *,
        accept_key: bool = False,
    ) -> list[SecretRow]:
        """Seal a value for each of these devices. Nothing is written before all keys are known to be
        good. Raises InvalidInput, Refused.
        """
        check_secret(name)
        if not 0 < len(value) <= MAX_VALUE:
            text = f"cannot seal {len(value)} bytes: a secret has 1 to {MAX_VALUE}"
            raise InvalidInput("ValueSize", text, "give it on standard input, or by --file")
        chosen = await choose_devices(self._store, devices, labels)
        keys = DeviceKeys(self._context.home)
        for device in chosen:
            if device.name not in devices:
                keys.check_labels(device.name, labels)
        publics = [
            (device, keys.accept(device.name, _told(device), by_hand=accept_key))
            for device in chosen
        ]
        await self._store.ensure_buckets(self._context.replicas)
        rows = []
        for device, public in publics:
            entry, version = await self._next(device.name, name)
            made = sealing.seal(public, device.name, name, version, value)
            rows.append(await self._put(made, entry))
        return rows

    async def all(self, devices: Sequence[str] = ()) -> list[SecretRow]:
        """Those of all devices, or of these, with the desired deployments that name each."""
        filters = [f"{device}.*" for device in devices] or [">"]
        users = await self._users()
        rows = []
        for key, entry in (await self._store.entries(SECRETS, filters)).items():
            device, _, name = key.partition(".")
            rows.append(self._row(device, name, entry, users.get((device, name), ())))
        return rows

    async def remove(
        self, name: str, devices: Sequence[str], labels: Mapping[str, str], *, force: bool = False
    ) -> list[SecretRow]:
        """Take it back from these devices. Raises Refused where a desired deployment names it."""
        check_secret(name)
        chosen = await choose_devices(self._store, devices, labels)
        users = await self._users()
        used = [place for device in chosen for place in users.get((device.name, name), ())]
        if used and not force:
            raise Refused(
                "SecretInUse",
                f"cannot take {name} back: {', '.join(used[:5])} names it",
                "with --force it is Blocked/SecretMissing there, and what runs goes on",
            )
        rows = []
        for device in chosen:
            entry, version = await self._next(device.name, name)
            if entry.value is None:
                raise InvalidInput(
                    "NotFound", f"there is no secret {name} of {device.name}", "harmony secret list"
                )
            made = SealedSecret(device=device.name, name=name, version=version, removed=True)
            rows.append(await self._put(made, entry))
        return rows

    async def _put(self, made: SealedSecret, entry: Entry) -> SecretRow:
        signed = sealing.sign(made, self._signing)
        key = f"{made.device}.{made.name}"
        await self._store.put(SECRETS, key, canonical(signed.wire()), entry.revision)
        return SecretRow(made.device, made.name, made.version, removed=made.removed)

    async def _next(self, device: str, name: str) -> tuple[Entry, int]:
        """What stands there, and the version that comes next: by the clock, so that it grows also
        where NATS has lost what stood there; and after what a key of this home signed.
        """
        entry = await self._store.get(SECRETS, f"{device}.{name}")
        found = self._read(entry)
        last = found.version if isinstance(found, SealedSecret) else 0
        return entry, max(int(time.time() * 1000), last + 1)

    def _read(self, entry: Entry) -> SealedSecret | str:
        """What stands there; a code where it isn't of this home, or no secret."""
        try:
            value: Any = read(entry.value or b"", MAX_SEALED * 2)
            found = validate(SealedSecret, value)
        except NotCanonical as error:
            return error.code
        except InvalidManifest as error:
            return error.code
        return found if sealing.is_ours(value, self._signing) else "SignatureUnknownKey"

    def _row(self, device: str, name: str, entry: Entry, users: tuple[str, ...]) -> SecretRow:
        found = self._read(entry)
        if isinstance(found, str):
            return SecretRow(device, name, used_by=users, trouble=found)
        return SecretRow(device, name, found.version, found.removed, users)

    async def _users(self) -> dict[tuple[str, str], tuple[str, ...]]:
        users: dict[tuple[str, str], tuple[str, ...]] = {}
        for item in await list_deployments(self._store, None, None):
            manifest = item.desired.manifest
            names = (
                {name for score in manifest.scores for name in score.secret_names()}
                if manifest
                else ()
            )
            for name in names:
                key = (item.key.device, name)
                place = f"{item.key.device}/{item.key.deployment}"
                users[key] = (*users.get(key, ()), place)
        return users


def _told(device: Device) -> SealingInfo | None:
    return device.info.sealing if device.info is not None else None


def check_secret(name: str) -> str:
    """The name, where it may be a secret's. Raises InvalidInput."""
    try:
        return validate(Secret, {"secret": name}).secret
    except InvalidManifest:
        raise InvalidInput(
            "InvalidName",
            "cannot use this as a secret's name",
            "1 to 63 of A-Z a-z 0-9 _ and -, as mqtt-password",
        ) from None
