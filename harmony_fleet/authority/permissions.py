"""Subjects of devices, and how they cross from the devices' account to the fleet's. Data only.

There are two accounts: the fleet's has the streams, the devices' has the devices. With one account
a device could name any subject for its answer, also a neighbour's key, and the server would write
there with its own rights. An answer that crosses goes to a subject of the devices' account, where
nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scores.jetstream import API, kv_stream, kv_subject, object_stream
from scores.keys import (
    ACTUAL,
    DESIRED,
    DEVICE_API,
    DEVICE_WRITES,
    HEARTBEAT,
    INDEX,
    INFO,
    SECRETS,
    command_subject,
    device_inbox,
    device_reader,
    heartbeat_key,
    info_key,
    news_subject,
)

_ME: Final = "{{name()}}"
"""The server puts the name of the user's JWT here, which is the device's."""
_INSPECTED: Final = tuple(map(kv_stream, (DESIRED, INDEX, SECRETS, *DEVICE_WRITES)))
"""There is no such consumer; but the refusal tells whether there is a stream."""
MAX_PAYLOAD: Final = 1024 * 1024
MAX_SUBSCRIPTIONS: Final = 32
RESPONSE_SECONDS: Final = 120


def _own(me: str) -> list[tuple[str, str]]:
    """Bucket and key (or keys) that belong to the device alone, for writing."""
    return [(ACTUAL, f"{me}.*"), (INFO, info_key(me)), (HEARTBEAT, heartbeat_key(me))]


def publish(objects: Sequence[str], me: str = _ME) -> list[str]:
    """Subjects that a device may publish to.

    No body of these requests can name more than its subject.
    """
    own = _own(me)
    read = [(DESIRED, f"{me}.*"), (SECRETS, f"{me}.*"), *own]
    return [
        *(kv_subject(bucket, key) for bucket, key in own),
        *(
            f"{DEVICE_API}.DIRECT.GET.{kv_stream(bucket)}.{kv_subject(bucket, key)}"
            for bucket, key in read
        ),
        *(f"{DEVICE_API}.CONSUMER.INFO.{stream}.{device_reader(me)}" for stream in _INSPECTED),
        f"{DEVICE_API}.DIRECT.GET.{kv_stream(INDEX)}.{news_subject(me)}",
        *(f"{DEVICE_API}.STREAM.MSG.GET.{object_stream(bucket)}" for bucket in objects),
    ]


def subscribe(me: str = _ME) -> list[str]:
    """Subjects that a device may subscribe to."""
    return [
        f"{device_inbox(me)}.>",
        command_subject(me, "*"),
        kv_subject(DESIRED, f"{me}.*"),
        kv_subject(SECRETS, f"{me}.*"),
        news_subject(me),
    ]


def device_role(objects: Sequence[str]) -> dict[str, Any]:
    """The template by which the server limits every user that the devices' signing key signed."""
    return {
        "pub": {"allow": publish(objects)},
        "sub": {"allow": subscribe()},
        "resp": {"max": 1, "ttl": RESPONSE_SECONDS * 1_000_000_000},
        "subs": MAX_SUBSCRIPTIONS,
        "data": -1,
        "payload": MAX_PAYLOAD,
        "allowed_connection_types": ["STANDARD"],
    }


_ASKED: Final = {
    "DIRECT.GET.*.>": "Singleton",
    "CONSUMER.INFO.*.*": "Singleton",
    "STREAM.MSG.GET.*": "Singleton",
}
"""Of JetStream's API."""


_TOLD: Final = {
    "desired": kv_subject(DESIRED, "*.*"),
    "secrets": kv_subject(SECRETS, "*.*"),
    "news": news_subject("*"),
}
"""What devices hear of: that somebody writes, and what was stored."""


def fleet_exports() -> list[dict[str, Any]]:
    """Exports of the fleet's account for the devices' account."""
    return [
        *(_service(kv_subject(bucket, ">"), "Singleton") for bucket in DEVICE_WRITES),
        *(_service(f"{API}.{call}", form) for call, form in _ASKED.items()),
        *({"name": name, "subject": subject, "type": "stream"} for name, subject in _TOLD.items()),
    ]


def device_imports(fleet: str) -> list[dict[str, Any]]:
    """The other side of `fleet_exports`. JetStream's API has another name there: each account
    answers its own.
    """
    imports = [
        *(
            _import(kv_subject(bucket, ">"), kv_subject(bucket, ">"), fleet)
            for bucket in DEVICE_WRITES
        ),
        *(_import(f"{API}.{call}", f"{DEVICE_API}.{call}", fleet) for call in _ASKED),
    ]
    told = (
        {"name": name, "subject": subject, "account": fleet, "type": "stream"}
        for name, subject in _TOLD.items()
    )
    return [*imports, *told]


def device_exports() -> list[dict[str, Any]]:
    """Commands go the other way: devices answer them."""
    return [_service(command_subject("*", "*"), "Singleton")]


def fleet_imports(devices: str) -> list[dict[str, Any]]:
    """The other side of `device_exports`."""
    return [_import(command_subject("*", "*"), command_subject("*", "*"), devices)]


def _service(subject: str, form: str) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "type": "service", "response_type": form}


def _import(subject: str, local: str, account: str) -> dict[str, Any]:
    found = {"name": subject, "subject": subject, "account": account, "type": "service"}
    return found if local == subject else {**found, "local_subject": _numbered(local)}


def _numbered(subject: str) -> str:
    """A local subject names the wildcards by their number: ``a.*.*`` is ``a.$1.$2``."""
    parts = subject.split("*")
    return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], start=1))
