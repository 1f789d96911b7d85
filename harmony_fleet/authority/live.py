"""What the running servers have to be told: accounts as they are now, and each device's consumer, by which it reads.

A push goes as the system account's user, the rest as the operator. Both only say again what stands on disk or in the
contract, so each may be repeated.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

from harmony_fleet import secret
from harmony_fleet.authority.keep import FOLDER, Authority, exists
from harmony_fleet.connection import ApiError, Connection, NoResponders
from harmony_fleet.context import ANEW, Context
from harmony_fleet.errors import Unreachable
from scores.keys import DESIRED, DEVICE_WRITES, device_reader, kv_stream, kv_subject, reader_config

_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_SERVER_SECONDS: Final = 0.5
"""Of silence, after which no further server is taken to answer."""
_LATER: Final = "see the server's log; harmony server push makes up for it"
_NO_STREAM: Final = 10059
_NO_CONSUMER: Final = 10014


def enrolled(home: Path) -> frozenset[str]:
    """The devices that have credentials; none where this home is no authority. Raises InvalidInput."""
    return frozenset(Authority.load(home).state.devices) if exists(home) else frozenset()


async def push(authority: Authority, context: Context) -> None:
    """Give every account to the servers. Raises Unreachable; then they go on with what they had."""
    async with Connection(as_system(context)) as connection:
        for token in authority.accounts().values():
            try:
                answer = json.loads(await connection.request(_UPDATE, token.encode()))
            except NoResponders:
                answer = {"error": {"description": "it keeps no accounts"}}
            if "error" in answer or answer.get("data", {}).get("code", 200) != 200:
                why = (answer.get("error") or {}).get("description", "it refused them")
                raise Unreachable(
                    "AccountsRefused",
                    f"cannot change the accounts of the server at {context.place()}: {why}",
                    "is it run with the configuration that harmony server init wrote?",
                )


def as_system(context: Context) -> Context:
    """Where `context` connects, as the system account's user."""
    creds = context.home / FOLDER / "system.creds"
    secret.check(creds, ANEW)
    return dataclasses.replace(context, creds=creds)


async def harden(connection: Connection) -> None:
    """Take from the buckets that devices write what would let one device's write purge the others' keys.

    A message with the header Nats-Rollup purges what was before it, of the whole stream if it says so.
    """
    for bucket in DEVICE_WRITES:
        stream = kv_stream(bucket)
        try:
            config: dict[str, Any] = (await connection.api(f"STREAM.INFO.{stream}"))["config"]
            if config.get("allow_rollup_hdrs"):
                await connection.api(f"STREAM.UPDATE.{stream}", {**config, "allow_rollup_hdrs": False})
        except ApiError as error:
            if error.code != _NO_STREAM:
                raise Unreachable("BucketNotMade", f"cannot harden the bucket {bucket}: {error}", _LATER) from None


async def connected(authority: Authority, context: Context) -> set[str]:
    """The public keys of the devices' credentials by which there are connections now, on any server."""
    account = authority.key("devices").public
    async with Connection(as_system(context)) as connection:
        inbox = await connection.inbox()
        request = {"auth": True, "acc": account, "limit": 65_536}
        await connection.publish("$SYS.REQ.SERVER.PING.CONNZ", json.dumps(request).encode(), reply=inbox.subject)
        found: set[str] = set()
        while (message := await inbox.next(_SERVER_SECONDS)) is not None:
            connections = json.loads(message.data).get("data", {}).get("connections") or ()
            found |= {str(one.get("nkey") or one.get("authorized_user")) for one in connections}
        await inbox.close()
        return found


async def make_readers(connection: Connection, devices: Iterable[str]) -> None:
    """The consumer of each device; one that is there stays as it is."""
    stream = kv_stream(DESIRED)
    for device in devices:
        config = reader_config(device)
        call = f"CONSUMER.CREATE.{stream}.{device_reader(device)}.{kv_subject(DESIRED, f'{device}.*')}"
        try:
            await connection.api(call, {"stream_name": stream, "config": config})
        except ApiError as error:
            raise Unreachable(
                "ReaderNotMade", f"cannot make the consumer of {device}: {error}", "see the server's log"
            ) from None


async def drop_readers(connection: Connection, devices: Collection[str]) -> None:
    """Take away what a revocation couldn't while the servers were away; only of these, whom nobody enrolled again."""
    found = list[str]()
    while devices:
        page = await connection.api(f"CONSUMER.NAMES.{kv_stream(DESIRED)}", {"offset": len(found)})
        found += page.get("consumers") or ()
        if not page.get("consumers") or len(found) >= int(page["total"]):
            break
    for device in sorted(device for device in devices if device_reader(device) in found):
        await drop_reader(connection, device)


async def drop_reader(connection: Connection, device: str) -> None:
    """Take the consumer away; none is as well."""
    try:
        await connection.api(f"CONSUMER.DELETE.{kv_stream(DESIRED)}.{device_reader(device)}")
    except ApiError as error:
        if error.code not in (_NO_STREAM, _NO_CONSUMER):
            raise Unreachable("ReaderNotDropped", f"cannot drop the consumer of {device}: {error}", _LATER) from None
