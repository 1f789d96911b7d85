"""``harmony-agent plan``: what would be done on this device, resource by resource. Looks, and does nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from harmony_agent import app
from harmony_agent.adapters.ledger import read_only
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.reconcile import Act, Converged, Desired, Facts, Key, Record, Wait
from harmony_agent.engine.wanted import desired_of
from harmony_agent.settings import Settings
from harmony_agent.topology.control import Stored
from scores.manifest import InvalidManifest, WireManifest, decode, validate
from scores.names import MAX_GENERATION


class _Looked:
    """`core.reconcile.Store` over what was read; nothing is ever noted."""

    def __init__(self, kind: str, desired: Mapping[Key, Desired[Any]], records: Mapping[Key, Record]) -> None:
        self._kind = kind
        self._desired = desired
        self._records = records

    def desired(self, name: str) -> Desired[Any] | None:
        return self._desired.get(Key(self._kind, name))

    def record(self, name: str) -> Record | None:
        return self._records.get(Key(self._kind, name))

    def names(self) -> Collection[str]:
        return [key.name for key in self._desired.keys() | self._records.keys() if key.kind == self._kind]

    async def note(self, name: str, facts: Facts) -> None:
        raise AssertionError(f"a plan notes nothing: {name}, {list(facts)}")


async def run(settings: Settings, path: str | None) -> int:
    """Print the plan; 0 where nothing would be done, 1 where something would, 2 where the manifest isn't valid."""
    state_dir = Path(settings.agent.state_dir)
    stored, found = read_only(state_dir) if (state_dir / "ledger.db").exists() else ([], [])
    records = {record.key: record for record in found}
    try:
        manifests = _accepted(settings, stored) if path is None else [_read(settings, path)]
    except InvalidManifest as error:
        print(f"harmony-agent: the manifest is not valid ({error.code}): {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"harmony-agent: cannot read {path}: {error.strerror}", file=sys.stderr)
        return 2
    desired: dict[Key, Desired[Any]] = {}
    for manifest in manifests:
        desired |= desired_of(manifest, {})
    names = {manifest.deployment for manifest in manifests}
    stale = [key for key, record in records.items() if record.deployment in names and key not in desired]
    return await _show(settings, desired, records, stale)


def _accepted(settings: Settings, stored: list[Stored]) -> list[WireManifest]:
    return [decode(one.data, device=settings.agent.device_id, deployment=one.deployment) for one in stored]


def _read(settings: Settings, path: str) -> WireManifest:
    """A manifest in JSON; what the control plane adds (device, lineage, generation) may be left out."""
    try:
        value = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidManifest("NotJson", (), f"{path} is no JSON: {error}") from None
    if isinstance(value, dict):
        unbound = {"lineage": "00000000-0000-0000-0000-000000000000", "generation": MAX_GENERATION}
        value = {"api": "harmony/v1", "device": settings.agent.device_id, **unbound, **value}
    return validate(WireManifest, value)


async def _show(
    settings: Settings, desired: Mapping[Key, Desired[Any]], records: Mapping[Key, Record], stale: list[Key]
) -> int:
    moments = app.times()
    control = app.control_plane(settings)
    reconcilers: dict[str, Any] = {}
    changes = 0
    for key in [*desired, *stale]:
        if key.kind not in settings.agent.kinds:
            print(f"{key}: the kind is not allowed here")
            changes += 1
            continue
        if key.kind not in reconcilers:
            parts = app.Parts(settings, _Looked(key.kind, desired, records), moments.clock, control)
            reconcilers[key.kind] = app.KINDS[key.kind](parts).reconciler
        changes += await _show_one(reconcilers[key.kind], key, desired.get(key), records.get(key))
    for reconciler in reconcilers.values():
        await reconciler.close()
    print(f"{changes} of {len(desired) + len(stale)} resources would change" if changes else "nothing would change")
    return 1 if changes else 0


async def _show_one(reconciler: Any, key: Key, desired: Desired[Any] | None, record: Record | None) -> bool:
    """Print one; whether anything would be done."""
    if desired is None and record is not None and record.on_remove == "orphan":
        print(f"{key}: let go of, and left as it is")
        return True
    if desired is not None and (errors := list(reconciler.admit(desired.spec))):
        print(f"{key}: refused by this device: " + ", ".join(f"{error.field}: {error.code}" for error in errors))
        return True
    try:
        plan = reconciler.plan(key.name, desired, await reconciler.observe(key.name))
    except ResourceError as error:
        print(f"{key}: cannot be looked at: {error.reason}: {error}")
        return True
    if isinstance(plan, Converged):
        return False
    if isinstance(plan, Wait):
        print(f"{key}: would wait: {plan.reason} {plan.message}".rstrip())
        return True
    assert isinstance(plan, Act)  # noqa: S101  # the union has three members
    owned = record is not None and (desired is None or reconciler.claims(desired.spec) <= record.claims)
    adopts = desired is None or desired.spec.adopt
    if not owned and not adopts and any(action.disturbs for action in plan.actions):
        print(f"{key}: OwnershipConflict: exists, differs and isn't ours; set adopt: true to take it over")
    for action in plan.actions:
        print(f"{key}: {type(action).__name__}: {action.reason}")
    return True
