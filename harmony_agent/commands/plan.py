"""``harmony-agent plan``: what would be done on this device, resource by resource. Observes, and
changes nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from harmony_agent import app
from harmony_agent.adapters.ledger.snapshot import LedgerSnapshot
from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.decide import Now
from harmony_agent.core.steps import Execute, Hold, Release, Report
from harmony_agent.engine.desired.enforcing import enforce_if_accepted
from harmony_agent.engine.desired.secrets import state_of
from harmony_agent.engine.reconcile.rehearse import Foreseen, Rehearsal
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.settings import Settings
from scores.canonical import NotCanonical, read
from scores.manifest import MAX_MANIFEST, InvalidManifest, WireManifest, decode, validate
from scores.names import MAX_GENERATION

_CONVERGED: Final = 0
_WOULD_CHANGE: Final = 1
_INVALID: Final = 2
_FENCED: Final = 3
_REFUSED: Final = 5
_SOME_LINEAGE: Final = "00000000-0000-0000-0000-000000000000"


async def run(settings: Settings, path: str | None) -> int:
    """Print the plan.

    Returns 0 where all is as wanted, 1 where it isn't, 2 where the manifest isn't valid, 3 where
    the fence and 5 where a guard or the configuration would refuse it.
    """
    ledger, times = LedgerSnapshot.read(Path(settings.agent.state_dir)), app.times()
    book = DeviceState(ledger, times.wire_now)
    book.pauses.begin(times.moment())
    control, own = app.control_plane(settings), app.secrets_of(settings)
    for secret, sealed in own.load().items():
        book.note_secret(state_of(secret, sealed))
    kinds: dict[str, KindInstance] = {
        name: KindInstance(
            app.KINDS[name](
                app.KindContext(settings, DeviceStateView(book, name), times.clock, control, own)
            ).reconciler
        )
        for name in settings.agent.kinds
    }
    try:
        for stored in ledger.manifests():
            accepted = decode(
                stored.data,
                device=settings.agent.device_id,
                deployment=stored.deployment,
                accepted=True,
            )
            book.enforce(stored, accepted)
        if path is not None:
            candidate = _read(settings, book, path)
            refusal = enforce_if_accepted(book, kinds, candidate)
            if refusal is not None:
                return _say_refused(candidate, refusal)
        found = await Rehearsal(
            book, kinds, lambda: Now(times.clock.monotonic(), times.wire_now()), times.moment
        ).run()
        return _show(found)
    except InvalidManifest as error:
        print(f"harmony-agent: the manifest is not valid ({error.code}): {error}", file=sys.stderr)
        return _INVALID
    except OSError as error:
        print(f"harmony-agent: cannot read {path}: {error.strerror}", file=sys.stderr)
        return _INVALID
    finally:
        for reconciler in kinds.values():
            await reconciler.close()


def _read(settings: Settings, book: DeviceState, path: str) -> WireManifest:
    """A manifest in JSON; what the control plane adds (device, lineage, generation) may be left
    out.
    """
    try:
        value = read(Path(path).read_bytes(), MAX_MANIFEST)
    except NotCanonical as error:
        raise InvalidManifest(error.code, (), f"{path}: {error}") from None
    if isinstance(value, dict):
        known = book.deployments.get(str(value.get("deployment")))
        last = known.last if known is not None else None
        generation = min(last.generation + 1, MAX_GENERATION) if last is not None else 1
        written = {
            "lineage": last.lineage if last is not None else _SOME_LINEAGE,
            "generation": generation,
        }
        value = {"api": "harmony/v1", "device": settings.agent.device_id, **written, **value}
    return validate(WireManifest, value)


def _say_refused(manifest: WireManifest, refusal: NotAccepted) -> int:
    print(
        f"{manifest.deployment}: would be refused: {refusal.phase}/{refusal.reason}: {refusal.message}"
    )
    print("nothing would change")
    return _FENCED if refusal.phase == "Fenced" else _REFUSED


def _show(found: list[Foreseen]) -> int:
    """Print each resource of which there is something to say, and the sum."""
    for one in found:
        for line in _lines(one):
            after = f" (after {', '.join(one.after)})" if one.after else ""
            print(f"{one.key}: {line}{after}")
    changes = sum(isinstance(one.step, Execute | Release) for one in found)
    others = sum(isinstance(one.step, Hold | Report) for one in found)
    told = (
        f"{changes} of {len(found)} resources would change" if changes else "nothing would change"
    )
    print(
        told
        + (f"; {others} can't be as wanted now and would be left as they are" if others else "")
    )
    return _WOULD_CHANGE if changes or others else _CONVERGED


def _lines(one: Foreseen) -> list[str]:
    match one.step:
        case Execute(plan=plan):
            return [f"{type(action).__name__}: {action.reason}" for action in plan.actions]
        case Report(message=message):
            return [f"DriftReported: {message}; it is left as it is"]
        case Hold(phase=phase, reason=reason, message=message):
            return [f"{phase}/{reason}: {message}" if message else f"{phase}/{reason}"]
        case Release():
            return ["released: it stays as it is and is ours no more"]
        case _:
            return []
