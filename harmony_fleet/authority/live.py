"""Talk to the running servers as the system account's user: tell them the accounts, ask who is
connected.

A push only repeats what stands on disk, so it may be done again.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Final

from harmony_fleet.authority.authority_store import FOLDER, Authority
from harmony_fleet.context import ANEW, Context
from harmony_fleet.errors import Unreachable
from harmony_fleet.nats.connection import Connection, NoResponders
from harmony_fleet.storage import secret
from scores.jetstream import NO_CONSUMER, NO_STREAM, ApiError, kv_stream
from scores.keys import DESIRED, device_reader

_UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
_SERVER_SECONDS: Final = 0.5
"""Of silence, after which no further server is taken to answer."""
_LATER: Final = "see the server's log; harmony server push makes up for it"


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
    """Context of a connection as the system account's user."""
    creds = context.home / FOLDER / "system.creds"
    secret.check(creds, ANEW)
    return dataclasses.replace(context, creds=creds)


async def connected(authority: Authority, context: Context) -> set[str]:
    """The public keys of the devices' credentials by which there are connections now, on any
    server.
    """
    account = authority.key("devices").public
    async with Connection(as_system(context)) as connection:
        inbox = await connection.inbox()
        request = {"auth": True, "acc": account, "limit": 65_536}
        await connection.publish(
            "$SYS.REQ.SERVER.PING.CONNZ", json.dumps(request).encode(), reply=inbox.subject
        )
        found: set[str] = set()
        while (message := await inbox.next(_SERVER_SECONDS)) is not None:
            connections = json.loads(message.data).get("data", {}).get("connections") or ()
            found |= {str(one.get("nkey") or one.get("authorized_user")) for one in connections}
        await inbox.close()
        return found


async def drop_readers(connection: Connection) -> None:
    """Take away the consumers that devices once had: a stream may have only so many."""
    found: list[str] = []
    while True:
        page = await connection.api(f"CONSUMER.NAMES.{kv_stream(DESIRED)}", {"offset": len(found)})
        found += page.get("consumers") or ()
        if not page.get("consumers") or len(found) >= int(page["total"]):
            break
    for name in sorted(name for name in found if name.startswith(device_reader(""))):
        try:
            await connection.api(f"CONSUMER.DELETE.{kv_stream(DESIRED)}.{name}")
        except ApiError as error:
            if error.code not in (NO_STREAM, NO_CONSUMER):
                raise Unreachable(
                    "ReaderNotDropped", f"cannot drop the consumer {name}: {error}", _LATER
                ) from None
