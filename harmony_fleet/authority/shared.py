"""Decisions about devices by all copies of one home. They are read from the servers before each
push.

They stand in two places. The devices' account at the servers has the withdrawn credentials and the
open object stores. The bucket ``fleet-authority`` has, at ``device.<name>``, the credentials that
hold, signed by the authority. Both only grow. An ignorant home lets no withdrawn device in again,
and forgets no device that another copy enrolled.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.authority.authority_store import FOREVER, Authority, Issued
from harmony_fleet.authority.claims import Identity
from harmony_fleet.authority.enrolled import Enrolled
from harmony_fleet.authority.live import as_system
from harmony_fleet.context import Context
from harmony_fleet.errors import Conflict, Unreachable
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.connection import Connection, NoResponders
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from scores.base import Model
from scores.canonical import NotCanonical, canonical, read
from scores.jetstream import object_stream
from scores.keys import FLEET
from scores.manifest import MAX_MANIFEST, InvalidManifest, validate
from scores.names import DeviceName

_LOOKUP: Final = "$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP"
_OBJECTS: Final = f".STREAM.MSG.GET.{object_stream('')}"
_TRIES: Final = 5


class Record(Model):
    """A device's credentials by their public keys: those that hold, and all that were withdrawn;
    and what it was enrolled with. One that was `forgotten` stays withdrawn, and is shown no more.
    """

    device: DeviceName
    user: str | None = None
    before: Sequence[str] = ()
    revoked: Sequence[str] = ()
    settings: Enrolled | None = None
    forgotten: bool = False

    @property
    def issued(self) -> Issued | None:
        """Return the decision that holds. None if there is none."""
        if self.user is None:
            return None
        return Issued(user=self.user, before=tuple(self.before), settings=self.settings)

    def value(self) -> dict[str, Any]:
        """The JSON value. A field that came later is left out where it says nothing, so that
        signatures of before hold.
        """
        value = self.model_dump(mode="json", exclude={"settings", "forgotten"})
        if self.forgotten:
            value["forgotten"] = True
        if self.settings is not None:
            value["settings"] = self.settings.said()
        return value


@dataclass(frozen=True, slots=True)
class Told:
    """Content of the servers' account of devices. `token` is empty where they have none."""

    token: str = ""
    stamp: int = 0
    revoked: Mapping[str, int] | None = None
    objects: Sequence[str] = ()


def merged(
    device: str, local: Issued | None, record: Record | None, revoked: Collection[str]
) -> Record:
    """The one record of both: what either withdrew is withdrawn, and of two that hold the later one
    is in use.
    """
    there = record.issued if record is not None else None
    known = [
        one
        for issued in (there, local)
        if issued is not None
        for one in (issued.user, *issued.before)
    ]
    holding = [one for one in dict.fromkeys(known) if one not in revoked]
    ended = {
        *(record.revoked if record is not None else ()),
        *(one for one in known if one in revoked),
    }
    user = next(iter(holding), None)
    if (
        there is not None
        and local is not None
        and there.user in local.before
        and local.user in holding
    ):
        user = local.user
    before = [one for one in holding if one != user]
    return Record(
        device=device,
        user=user,
        before=before,
        revoked=sorted(ended),
        settings=_settings(user, local, there),
        forgotten=user is None and record is not None and record.forgotten,
    )


def _settings(user: str | None, *sides: Issued | None) -> Enrolled | None:
    """The settings that go with the credentials in use."""
    known = (one.settings for one in sides if one is not None and one.user == user)
    return next((settings for settings in known if settings is not None), None)


async def agree(authority: Authority, store: Store, told: Told) -> None:
    """Take in what others decided, save it, and tell what this home knows. The caller holds the
    authority's lock.

    Raises Unreachable. The disk then stands as it is, and nothing was told.
    """
    for _ in range(_TRIES):
        entries = await store.entries(FLEET, ["device.*"])
        records = {
            key.partition(".")[2]: _decode(authority.key("operator"), entry)
            for key, entry in entries.items()
        }
        known = {name: record for name, record in records.items() if record is not None}
        revoked = _revoked(authority, told, known.values())
        names = sorted({*authority.state.devices, *known})
        whole = {
            name: merged(name, authority.state.devices.get(name), known.get(name), revoked)
            for name in names
        }
        _save(authority, told, revoked, whole)
        if await _write(authority, store, entries, known, whole):
            return
    raise Unreachable(
        "Conflict", "cannot tell the servers: others tell them all the time", "try again"
    )


def _revoked(authority: Authority, told: Told, records: Iterable[Record]) -> dict[str, int]:
    found = {
        **authority.state.revoked,
        **dict.fromkeys((one for record in records for one in record.revoked), FOREVER),
    }
    for user, until in (told.revoked or {}).items():
        found[user] = max(until, found.get(user, 0))
    return found


def _save(
    authority: Authority, told: Told, revoked: Mapping[str, int], whole: Mapping[str, Record]
) -> None:
    """Save only what is new."""
    state = authority.state
    devices = {name: record.issued for name, record in whole.items() if record.issued is not None}
    objects = tuple(sorted({*state.objects, *told.objects}))
    changes: dict[str, Any] = {"devices": devices, "revoked": dict(revoked), "objects": objects}
    changes = {name: value for name, value in changes.items() if getattr(state, name) != value}
    news = set(revoked) - set(told.revoked or {}) or set(objects) - set(told.objects)
    if (
        told.stamp > state.stamp
        or (news and told.stamp == state.stamp)
        or {"revoked", "objects"} & changes.keys()
    ):
        changes["stamp"] = max(authority.next_stamp(), told.stamp + 1)
    if changes:
        authority.save(**changes)


async def _write(
    authority: Authority,
    store: Store,
    entries: Mapping[str, Entry],
    known: Mapping[str, Record],
    whole: Mapping[str, Record],
) -> bool:
    """Return whether every record stands as it should; False where another copy wrote meanwhile."""
    operator = authority.key("operator")

    async def one(record: Record) -> bool:
        key = f"device.{record.device}"
        entry = entries.get(key) or await store.get(FLEET, key)
        try:
            await store.put(FLEET, key, _encode(operator, record), entry.revision)
        except Conflict:
            return False
        return True

    return all(
        await gather_bounded(
            one, [record for name, record in whole.items() if record != known.get(name)]
        )
    )


def _encode(operator: Identity, record: Record) -> bytes:
    return canonical({"record": record.value(), "signature": operator.signed(_said(record))})


def _said(record: Record) -> bytes:
    return b"harmony/v1/device-record\n" + canonical(record.value())


def _decode(operator: Identity, entry: Entry) -> Record | None:
    """None for what this authority didn't sign: it is written over."""
    try:
        value = read(entry.value or b"", MAX_MANIFEST)
        record = validate(Record, value["record"])
        genuine = operator.genuine(_said(record), value["signature"])
    except (NotCanonical, InvalidManifest, KeyError, TypeError):
        return None
    return record if genuine and f"device.{record.device}" == entry.key else None


async def gone(authority: Authority, store: Store, *, forgotten: bool = True) -> list[str]:
    """The devices that had credentials and have none any more. `forgotten`: also those."""
    return [
        name
        for name, record in (await _records(authority, store)).items()
        if _holds_nothing(authority, record) and (forgotten or not record.forgotten)
    ]


def _holds_nothing(authority: Authority, record: Record) -> bool:
    state = authority.state
    revoked = {*state.revoked, *record.revoked}
    return merged(record.device, state.devices.get(record.device), record, revoked).user is None


async def _records(authority: Authority, store: Store) -> dict[str, Record]:
    """Each record that this authority signed, by device."""
    operator = authority.key("operator")
    entries = (await store.entries(FLEET, ["device.*"])).values()
    found = (_decode(operator, entry) for entry in entries)
    return {record.device: record for record in found if record is not None}


async def bury(authority: Authority, store: Store, device: str) -> bool:
    """Note that a device without credentials is forgotten; whether it ever had any. One that was
    enrolled anew meanwhile stays. May be repeated. Raises Unreachable.
    """
    operator, key = authority.key("operator"), f"device.{device}"
    for _ in range(_TRIES):
        entry = await store.get(FLEET, key)
        record = _decode(operator, entry) if entry.value is not None else None
        if record is None or record.user is not None or record.forgotten:
            return record is not None
        after = record.model_copy(update={"forgotten": True})
        try:
            await store.put(FLEET, key, _encode(operator, after), entry.revision)
        except Conflict:
            continue
        return True
    raise Unreachable(
        "Conflict", f"cannot forget {device}: others write its record all the time", "try again"
    )


def holds(authority: Authority, told: Told) -> bool:
    """Return whether the servers refuse all that this home withdrew: another copy may have pushed
    at the same time.
    """
    return not authority.state.revoked.keys() - (told.revoked or {}).keys()


async def account(authority: Authority, context: Context) -> Told:
    """Read the devices' account from the servers. Empty if this authority didn't sign it."""
    async with Connection(as_system(context)) as connection:
        try:
            data = await connection.request(_LOOKUP.format(authority.key("devices").public))
        except NoResponders:
            return Told()
    token = data.decode("ascii", "replace").strip()
    try:
        signed, _, signature = token.rpartition(".")
        claims = json.loads(_decoded(signed.partition(".")[2]))
        genuine = authority.key("operator").genuine(
            signed.encode(), base64.b64encode(_decoded(signature)).decode()
        )
        account = claims["nats"]
        revoked = {str(user): int(until) for user, until in account.get("revocations", {}).items()}
        allowed = [
            subject
            for key in account["signing_keys"]
            for subject in key["template"]["pub"]["allow"]
        ]
        stamp = int(claims["iat"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return Told()
    if not genuine:
        return Told()
    objects = sorted(subject.partition(_OBJECTS)[2] for subject in allowed if _OBJECTS in subject)
    return Told(token, stamp, revoked, objects)


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
