"""Bring this home's authority and the servers to agree: learn what other copies of the home decided,
then push all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harmony_fleet.authority import live, shared
from harmony_fleet.authority.authority_store import Authority
from harmony_fleet.authority.shared import Told
from harmony_fleet.context import Context
from harmony_fleet.errors import Unreachable
from harmony_fleet.nats import buckets as buckets_of
from harmony_fleet.nats.connection import Connection
from harmony_fleet.nats.kv import Store
from scores.keys import DESIRED

_TRIES: Final = 5


async def push(authority: Authority, context: Context, *, buckets: bool = False) -> None:
    """Learn what other copies of this home decided, then tell all of it. Decisions that another
    copy tells meanwhile stay.
    """
    told = await shared.account(authority, context)
    async with Store(context) as store:
        await store.ensure_buckets(context.replicas)
        await _agreed(authority, context, store, told)
        gone = await shared.gone(authority, store) if buckets else []
    if buckets:
        async with Store(context) as store, Connection(context) as connection:
            await buckets_of.renew(connection)
            await buckets_of.index(connection, await store.entries(DESIRED))
            await live.drop_readers(connection)
            for device in gone:
                await buckets_of.forget(connection, device)


async def _agreed(authority: Authority, context: Context, store: Store, told: Told) -> None:
    for _ in range(_TRIES):
        await shared.agree(authority, store, told)
        await live.push(authority, context)
        told = await shared.account(authority, context)
        if shared.holds(authority, told):
            return
    raise Unreachable(
        "AccountsRefused",
        "cannot change the accounts: another copy keeps changing them",
        "try again",
    )


async def learn(authority: Authority, context: Context) -> None:
    """Learn what other copies of this home decided, and tell them what was decided here."""
    told = await shared.account(authority, context)
    async with Store(context) as store:
        await store.ensure_buckets(context.replicas)
        await shared.agree(authority, store, told)


async def ready(authority: Authority, context: Context) -> None:
    """Do the same, and bring the buckets to the form of this version."""
    await learn(authority, context)
    async with Connection(context) as connection:
        await buckets_of.renew(connection)


async def revoked(authority: Authority, context: Context, device: str) -> None:
    """Push, and take away what the device wrote."""
    await push(authority, context)
    async with Connection(context) as connection:
        await buckets_of.forget(connection, device)


def told(work: Callable[[], None], *, needed: bool = True) -> bool:
    """Tell the servers. If they can't be told now, say so, and say what has to be done later."""
    try:
        work()
    except Unreachable as error:
        if needed:
            raise Unreachable(
                error.code,
                f"decided, but the servers don't know it yet: {error.message}",
                "harmony server push",
            ) from None
        return False
    return True
