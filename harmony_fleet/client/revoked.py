"""Devices whose credentials this home's authority has withdrawn, and not forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harmony_fleet.authority.authority_store import Authority, exists
from harmony_fleet.authority.shared import gone
from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Device


async def with_revoked(context: Context, store: Store, found: Sequence[Device]) -> list[Device]:
    """Those of `found`, and the revoked ones. A home without an authority knows of none.

    Raises HarmonyError where the authority can't be read.
    """
    if not exists(context.home):
        return list(found)
    known = {device.name: device for device in found}
    for name in await gone(Authority.load(context.home), store, forgotten=False):
        known[name] = replace(known.get(name) or Device(name, None), revoked=True)
    return [device for _, device in sorted(known.items())]
