"""Make the streams behind the buckets, bring older ones to their present form, and bound them.

The bounds leave room for the operator. A stream with one key for each device is bounded by the size
of its values. In ``actual-state`` a device may name any key of its own, so that stream gets a share
of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from harmony_fleet.errors import Unreachable
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.connection import Connection, NoResponders
from scores.jetstream import NO_ROOM, NO_STREAM, STREAM_EXISTS, ApiError, kv_stream, kv_subject
from scores.keys import (
    ACTUAL,
    BUCKETS,
    DESIRED,
    DEVICE_WRITES,
    HEARTBEAT,
    HISTORY,
    INDEX,
    INFO,
    SECRETS,
    TASK_RUNS,
    DeploymentKey,
    heartbeat_key,
    info_key,
    news_source,
    news_subject,
    parse_deployment_key,
)

_VALUE_BYTES: Final = {INFO: 64 * 1024, HEARTBEAT: 1024}
"""Of a message with its headers; the server's own bound where a bucket isn't named."""
_SHARE: Final = 3
_ROOMS: Final = tuple(size * 1024 * 1024 for size in (1024, 256, 64, 16, 4))
"""Bytes of ``actual-state``: the first of which the server would promise _SHARE times as much."""
_MAX_STATUSES: Final = 1_000_000
"""The server remembers each key: some 150 bytes."""
_LATER: Final = "see the server's log; harmony server push makes up for it"


def config(bucket: str, replicas: int) -> dict[str, Any]:
    """A bucket's stream: on disk, nothing expires, old revisions up to its history."""
    found: dict[str, Any] = {
        "name": kv_stream(bucket),
        "subjects": [kv_subject(bucket, ">")],
        "max_msgs_per_subject": HISTORY.get(bucket, 1),
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": bucket
        not in DEVICE_WRITES,  # one device's write could purge all other keys with it
        "deny_delete": True,
        "max_age": 0,
        "max_bytes": -1,
        "max_consumers": -1,
        "max_msgs": _MAX_STATUSES if bucket == ACTUAL else -1,
        "max_msg_size": _VALUE_BYTES.get(bucket, -1),
        "duplicate_window": 120_000_000_000,
    }
    if bucket == DESIRED:
        found["republish"] = news_source()
    if bucket == HEARTBEAT:  # the next one comes in seconds: none is worth a wait for the disk
        found |= {"persist_mode": "async"} if replicas == 1 else {"storage": "memory"}
    return found


async def ensure(connection: Connection, replicas: int) -> None:
    """Make the buckets that are missing; one that exists stays as it is."""
    others = [bucket for bucket in BUCKETS if bucket != ACTUAL]
    await asyncio.gather(*(_make(connection, bucket, replicas) for bucket in others))
    await _make(connection, ACTUAL, replicas)  # for a moment it is promised more than it gets


async def _make(connection: Connection, bucket: str, replicas: int) -> None:
    try:
        await _bounded(connection, "CREATE", config(bucket, replicas))
    except ApiError as error:
        if error.code != STREAM_EXISTS:
            hint = "see the server's limits and replicas"
            raise Unreachable(
                "BucketNotMade", f"cannot make the bucket {bucket}: {error}", hint
            ) from None


async def _bounded(
    connection: Connection, verb: str, wanted: dict[str, Any], used: int = 0
) -> None:
    """Create or update; ``actual-state`` with its share of what the server would promise. Raises
    ApiError.
    """
    name = wanted["name"]
    if name != kv_stream(ACTUAL) or wanted["max_bytes"] != -1:
        await connection.api(f"STREAM.{verb}.{name}", wanted)
        return
    for room in _ROOMS:
        try:
            await connection.api(f"STREAM.{verb}.{name}", {**wanted, "max_bytes": _SHARE * room})
        except ApiError as error:
            if error.code not in NO_ROOM or room == _ROOMS[-1]:
                raise
        else:
            if used < room:
                await connection.api(f"STREAM.UPDATE.{name}", {**wanted, "max_bytes": room})
            return


async def renew(connection: Connection) -> None:
    """Bring buckets that exist up to what they would be made like today, as far as that can be
    changed.
    """
    for bucket in BUCKETS:
        stream = kv_stream(bucket)
        try:
            info = await connection.api(f"STREAM.INFO.{stream}")
            found: dict[str, Any] = info["config"]
            wanted = {**found, **_renewed(bucket, found)}
            if wanted != found or (bucket == ACTUAL and found["max_bytes"] == -1):
                await _bounded(connection, "UPDATE", wanted, int(info["state"]["bytes"]))
        except ApiError as error:
            if error.code != NO_STREAM:
                raise Unreachable(
                    "BucketNotMade", f"cannot renew the bucket {bucket}: {error}", _LATER
                ) from None


def _renewed(bucket: str, found: dict[str, Any]) -> dict[str, Any]:
    """List what differs. A bound that somebody chose stays."""
    made = config(bucket, int(found["num_replicas"]))
    changes: dict[str, Any] = (
        {"allow_rollup_hdrs": False}
        if bucket in DEVICE_WRITES and found.get("allow_rollup_hdrs")
        else {}
    )
    changes |= {
        name: made[name] for name in ("max_msgs", "max_msg_size") if found.get(name, -1) == -1
    }
    if bucket == DESIRED:
        changes |= {"republish": made["republish"], "allow_direct": True}
    return {name: value for name, value in changes.items() if (found.get(name) or False) != value}


# -- the index of a device's deployments


async def index(connection: Connection, keys: Iterable[str]) -> None:
    """Put `keys` into the index that were stored before the stream did so by itself."""
    await gather_bounded(
        lambda key: _tell(connection, key), filter(None, map(parse_deployment_key, keys))
    )


async def _tell(connection: Connection, key: DeploymentKey) -> None:
    try:
        await connection.request(news_subject(*key), b"")
    except NoResponders:
        raise Unreachable(
            "IndexMissing", f"cannot note {key} for its device: there is no index", _LATER
        ) from None


# -- the keys of a device


async def forget(connection: Connection, device: str) -> None:
    """Remove all that the device wrote, under any key. Raises Unreachable."""
    told = ((ACTUAL, f"{device}.>"), (INFO, info_key(device)), (HEARTBEAT, heartbeat_key(device)))
    await _purge(connection, device, told)


async def forget_wholly(connection: Connection, device: str) -> None:
    """Remove all keys of the device, those that operators wrote as well. Raises Unreachable.

    Its own word goes first: without that nobody takes what is desired for something to remove.
    """
    await forget(connection, device)
    rest = ((DESIRED, f"{device}.>"), (INDEX, f"{device}.>"), (SECRETS, f"{device}.>"))
    await _purge(connection, device, (*rest, (TASK_RUNS, f"device.{device}")))


async def _purge(connection: Connection, device: str, keys: Iterable[tuple[str, str]]) -> None:
    for bucket, key in keys:
        try:
            await connection.api(
                f"STREAM.PURGE.{kv_stream(bucket)}", {"filter": kv_subject(bucket, key)}
            )
        except ApiError as error:
            if error.code != NO_STREAM:
                text = f"cannot take the keys of {device} out of {bucket}: {error}"
                raise Unreachable("NotForgotten", text, _LATER) from None
