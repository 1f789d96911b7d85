"""Typed content of the buckets: desired and actual state, devices, heartbeats; and the choice of
devices.

Reads only. A value that can't be read is kept as a `problem`, so that one bad key hides no other.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, assert_never

from pydantic import TypeAdapter, ValidationError

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.shared import decode_shared
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from scores.canonical import NotCanonical, canonical, read
from scores.keys import (
    ACTUAL,
    DESIRED,
    HEARTBEAT,
    INFO,
    DeploymentKey,
    heartbeat_key,
    info_key,
    parse_deployment_key,
)
from scores.manifest import MAX_MANIFEST, InvalidManifest, WireManifest, validate
from scores.names import DeviceName
from scores.status import DeploymentStatus, DeviceInfo, Heartbeat

MAX_STATUS: Final = 8 * MAX_MANIFEST
STALE_AFTER: Final = timedelta(seconds=30)
"""Three heartbeats at their default interval."""

_NAME: Final = TypeAdapter(DeviceName)

M = TypeVar("M", DeploymentStatus, DeviceInfo, Heartbeat)


@dataclass(frozen=True, slots=True)
class Desired:
    """Value of a key in ``desired-state``.

    `manifest` is None if there is none or it can't be read (`problem`).
    """

    manifest: WireManifest | None = None
    revision: int = 0
    created: datetime | None = None
    problem: str = ""
    claimed: int = 0
    """The generation that an unreadable manifest claims; 0 if it claims no generation."""
    raw: Any = None
    """An unreadable manifest as far as it is JSON."""
    note: str = ""
    """What a roster noted when it wrote this."""

    def generation(self) -> int:
        """The one that stands, or that what can't be read claims; 0 for none."""
        return max(self.claimed, self.manifest.generation if self.manifest is not None else 0)


@dataclass(frozen=True, slots=True)
class Actual:
    """Value of a key in ``actual-state``."""

    status: DeploymentStatus | None = None
    revision: int = 0
    created: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment as the buckets show it."""

    key: DeploymentKey
    desired: Desired
    actual: Actual

    def generation(self) -> int:
        """The highest generation that either bucket shows, refused ones too; 0 where none was ever
        seen.
        """
        known = [self.desired.generation()]
        status = self.actual.status
        if status is not None:
            known.append(status.generation or 0)
            if status.rejected is not None and not status.rejected.reason.startswith(
                "Signature"
            ):  # nobody's word
                known.append(status.rejected.generation or 0)
        return max(known)


def is_silent(heard: datetime | None, now: datetime) -> bool:
    """Return whether the last heartbeat is too old. Both are the server's times."""
    return heard is None or now - heard > STALE_AFTER


@dataclass(frozen=True, slots=True)
class Device:
    """A device as it tells of itself. `heard` is JetStream's time of the last heartbeat.

    `revoked`: it had credentials, and all of them are withdrawn.
    """

    name: str
    info: DeviceInfo | None
    heard: datetime | None = None
    problem: str = ""
    revoked: bool = False

    def silent(self, now: datetime) -> bool:
        """Return whether no heartbeat came lately. `now` is the server's time."""
        return is_silent(self.heard, now)


def to_desired(entry: Entry) -> Desired:
    """Decode an entry of ``desired-state``."""
    if entry.value is None:
        return Desired(revision=entry.revision, created=entry.created)
    device, _, deployment = entry.key.partition(".")
    try:
        manifest = decode_shared(entry.value, device, deployment)
    except InvalidManifest as error:
        raw = _raw(entry.value)
        told = {"problem": error.code, "claimed": _claimed(raw), "raw": raw}
        return Desired(revision=entry.revision, created=entry.created, **told)
    return Desired(manifest, entry.revision, entry.created, note=entry.note)


def _raw(data: bytes) -> Any:
    try:
        return read(data, MAX_MANIFEST)
    except NotCanonical:
        return None


def _claimed(value: Any) -> int:
    generation: Any = value.get("generation") if isinstance(value, dict) else None
    return generation if type(generation) is int and generation > 0 else 0


def to_actual(entry: Entry) -> Actual:
    """Decode an entry of ``actual-state``."""
    status, problem = decode(DeploymentStatus, entry)
    return Actual(status, entry.revision, entry.created, problem)


def decode(model: type[M], entry: Entry) -> tuple[M | None, str]:
    """Decode an entry that a device wrote; else the code of the problem."""
    if entry.value is None:
        return None, ""
    try:
        found = validate(model, told(entry.value, MAX_STATUS))
    except (InvalidManifest, NotCanonical) as error:
        return None, error.code
    return (found, "") if _own_key(found) == entry.key else (None, "KeyMismatch")


def _own_key(value: DeploymentStatus | DeviceInfo | Heartbeat) -> str:
    """The key at which a device writes this."""
    match value:
        case DeploymentStatus():
            return str(DeploymentKey(value.device, value.deployment))
        case DeviceInfo():
            return info_key(value.device)
        case Heartbeat():
            return heartbeat_key(value.device)
        case _:
            assert_never(value)


def told(data: bytes, limit: int) -> Any:
    """Decode the JSON that a device wrote. Raises NotCanonical, also for text that has no UTF-8
    form.
    """
    value = read(data, limit)
    if b"\\u" in data:
        try:
            canonical(value)
        except ValueError:
            raise NotCanonical("NotUnicode", "half of a surrogate pair") from None
    return value


async def read_deployment(store: Store, key: DeploymentKey) -> Deployment:
    """Both sides of one deployment."""
    desired, actual = await asyncio.gather(
        store.get(DESIRED, str(key)), store.get(ACTUAL, str(key))
    )
    return Deployment(key, to_desired(desired), to_actual(actual))


async def read_deployments(store: Store, keys: Iterable[DeploymentKey]) -> list[Deployment]:
    """Several, a bounded number at a time."""
    return await gather_bounded(functools.partial(read_deployment, store), keys)


async def list_deployments(
    store: Store, device: str | None, deployment: str | None
) -> list[Deployment]:
    """All deployments of the buckets, or those of one device or name; sorted."""
    if device and deployment:
        found = await read_deployment(store, DeploymentKey(device, deployment))
        absent = found.desired.created is None and found.actual.created is None
        return [] if absent else [found]
    filters = [f"{device or '*'}.{deployment or '*'}"]
    desired, actual = await asyncio.gather(
        store.entries(DESIRED, filters), store.entries(ACTUAL, filters)
    )
    none = Entry("", "", None, 0, None)
    return [
        Deployment(
            key, to_desired(desired.get(str(key), none)), to_actual(actual.get(str(key), none))
        )
        for key in sorted(filter(None, map(parse_deployment_key, {*desired, *actual})))
    ]


async def list_devices(store: Store, labels: Mapping[str, str] | None = None) -> list[Device]:
    """Devices that ever told of themselves or sent a heartbeat; with `labels`, those that carry all
    of them.
    """
    infos, beats = await asyncio.gather(store.entries(INFO), store.entries(HEARTBEAT))
    names = {key.partition(".")[2] for key in (*infos, *beats)}
    devices = [
        _device(name, infos.get(info_key(name)), beats.get(heartbeat_key(name)))
        for name in sorted(names)
    ]
    return [device for device in devices if _carries(device, labels or {})]


async def read_device(store: Store, name: str) -> Device:
    """One device; `info` and `heard` are None where it never told."""
    return _device(
        name,
        *await asyncio.gather(
            store.get(INFO, info_key(name)), store.get(HEARTBEAT, heartbeat_key(name))
        ),
    )


def _device(name: str, info: Entry | None, beat: Entry | None) -> Device:
    told, problem = decode(DeviceInfo, info) if info is not None else (None, "")
    heard = beat.created if beat is not None and beat.value is not None else None
    return Device(name, told, heard, problem)


def _carries(device: Device, labels: Mapping[str, str]) -> bool:
    told = device.info.labels if device.info else {}
    return all(told.get(name) == value for name, value in labels.items())


def check_name(what: str, name: str) -> str:
    """Check the name of a device or deployment. Raises InvalidInput."""
    try:
        return _NAME.validate_python(name)
    except ValidationError as error:
        raise InvalidInput(
            "InvalidName",
            f"cannot use the {what}'s name: it {error.errors()[0]['msg']}",
            "check the spelling",
        ) from None


def check_place(place: str) -> DeploymentKey:
    """``pi-01/web`` as a key. Raises InvalidInput."""
    key = parse_deployment_key(place.replace("/", ".", 1))
    if key is None:
        raise InvalidInput("InvalidName", f"cannot read {place}", "write it as DEVICE/DEPLOYMENT")
    check_name("device", key.device)
    check_name("deployment", key.deployment)
    return key


def parse_selectors(selectors: Sequence[str]) -> dict[str, str]:
    """``["site=home", "a=b"]``: all must hold."""
    labels: dict[str, str] = {}
    for selector in selectors:
        name, equals, value = selector.partition("=")
        if not equals or not name or labels.get(name, value) != value:
            raise InvalidInput(
                "SelectorInvalid",
                "cannot read a --select",
                "write it as label=value, each label once",
            )
        labels[name] = value
    return labels


async def choose_devices(
    store: Store, names: Sequence[str], labels: Mapping[str, str]
) -> list[Device]:
    """Choose the named devices and those that carry the labels. A named device may be unknown."""
    for name in names:
        check_name("device", name)
    chosen = {name: await read_device(store, name) for name in dict.fromkeys(names)}
    if labels:
        chosen |= {device.name: device for device in await list_devices(store, labels)}
    if not chosen:
        what = (
            "no device carries these labels"
            if labels
            else "neither --device nor --select was given"
        )
        raise InvalidInput(
            "NoDevice", f"cannot choose a device: {what}", "see them with: harmony devices"
        )
    return [chosen[name] for name in sorted(chosen)]
