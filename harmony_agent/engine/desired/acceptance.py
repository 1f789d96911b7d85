"""Decides on what desired-state shows of a deployment: judge, persist, enforce, queue what changed.

Whatever isn't an accepted manifest leaves the last accepted one enforced: a lost, emptied or
re-created bucket says nothing about what should be taken away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from harmony_agent.core.admission import (
    Accept,
    KindRules,
    NotAccepted,
    Unchanged,
    admit_manifest,
    held_while_paused,
    rejected,
)
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.manifests import (
    digests_of,
    fingerprints,
    generations_of,
    reuse_validated,
)
from harmony_agent.core.resources import Key
from harmony_agent.core.signatures import Trust
from harmony_agent.core.unverified import (
    claimed_generation,
    enforced_from_status,
    identity,
    is_enforced,
)
from harmony_agent.engine.desired.enforcing import restore, view_of
from harmony_agent.engine.desired.remains import Remains
from harmony_agent.engine.desired.reverting import Reverting
from harmony_agent.engine.loops import Signal, defect
from harmony_agent.engine.state.deployment import Deployment
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.topology.control_plane import (
    BucketMissing,
    ControlPlane,
    StoredManifest,
    Unreachable,
)
from scores.base import Score
from scores.keys import ACTUAL, DeploymentKey
from scores.manifest import InvalidManifest, WireManifest, bound, parse
from scores.names import is_name

log = logging.getLogger(__name__)

_MISSING: Final = NotAccepted(
    "Held",
    "DesiredStateMissing",
    "the key is gone from desired-state: the last accepted manifest stays enforced; write it again, or delete the "
    "deployment with removed: true",
)
_NEVER: Final = NotAccepted(
    "Held",
    "DesiredStateMissing",
    "the key is gone from desired-state, and nothing of it was accepted",
)
_OWNED: Final = "OwnedByAnotherDeployment"


class Acceptance:
    """The one way by which a manifest comes to be enforced."""

    def __init__(
        self,
        device: str,
        state: DeviceState,
        control: ControlPlane,
        *,
        kinds: Mapping[str, KindRules],
        queue: Callable[[Collection[Key]], None],
        trust: Trust,
        remains: Remains,
        reverting: Reverting,
    ) -> None:
        """`queue` takes the keys that a newly accepted manifest changes.

        `trust` says whose manifests are believed. `remains` knows of what an earlier life of this
        device left, `reverting` of generations that are tried.
        """
        self._device = device
        self._state = state
        self._control = control
        self._kinds = kinds
        self._queue = queue
        self._trust = trust
        self._remains = remains
        self._reverting = reverting
        self.doubtful = Signal()
        """rings while something is undecided"""
        self._known: dict[str, dict[bytes, Score]] = {}
        """by deployment: the enforced Scores by what they looked like on the wire"""
        self.owned: dict[str, bytes] = {}
        """refused, for another deployment owns what they want: to be judged again when something is
        released
        """
        self.paused: dict[str, bytes] = {}
        """would be accepted, if the deployment weren't paused: to be judged again when that ends"""
        self.tried = reverting.began
        """rings when a generation is tried"""
        self._searched = False
        self.undecided: dict[str, bytes] = {}
        """couldn't be judged or persisted now: to be tried again every few seconds"""

    def restore(self) -> None:
        """Enforce what was accepted before this start; NATS isn't needed.

        Also what the keys of today wouldn't admit: it was admitted, and what runs goes on. That is
        told, at once.
        """
        for stored in self._state.ledger.manifests():
            restored = restore(self._state, self._device, self._reverting.restored(stored))
            if restored is None:
                continue
            value, keys = restored
            self._queue(keys)
            if refused := self._reverting.refused(stored.deployment):
                self._state.set_not_accepted(stored.deployment, refused)
            distrusted = self._trust.verify(value, stored.generation)
            if distrusted is not None:
                self._keep(stored.deployment, distrusted)

    async def judge_trials(self) -> float | None:
        """Go back where a generation isn't Converged in its time; seconds until the next look."""
        return await self._reverting.look()

    def names(self) -> set[str]:
        """Every deployment of which something is known."""
        return {*self._state.deployments, *self.owned, *self.undecided, *self.paused}

    async def judge_again(self, refused: Mapping[str, bytes]) -> None:
        """Decide anew on `owned` or `undecided`: nobody writes them again."""
        for name, data in list(refused.items()):
            await self.judge(name, data)

    async def find_forgotten(self, seen: Collection[str]) -> None:
        """Tell of deployments that this device forgot and desired-state doesn't have any more.

        Their names stand in ``actual-state``, on marks, and among the deleted keys (`seen`). Once in
        a life that began with an empty ledger.
        """
        if self._searched or not self._remains.fresh:
            return
        try:
            names = {*seen, *filter(is_name, await self._control.told())}
            names |= {mark.deployment for mark in await self._remains.marks()}
            for name in sorted(names - self.names()):
                await self._find_floor(name)
                if self._state.lost.of(name):
                    self._keep(name, _NEVER)
        except Unreachable as error:
            log.debug("cannot look for what was forgotten: %s", error)
            self.doubtful.notify()
            return
        except BucketMissing:
            return  # whoever makes it makes a snapshot come, too
        self._searched = True

    def missing(self, name: str) -> None:
        """The key isn't there. Of what was never accepted nothing is enforced; what was removed
        stays removed.
        """
        self._forget_refused(name)
        deployment = self._state.deployments.get(name)
        if deployment is None:
            return
        if deployment.stored is None:
            self._keep(name, _NEVER)
        elif deployment.removed:
            self._state.set_not_accepted(name, None)
        elif refused := self._reverting.refused(name):
            self._keep(name, refused)
        else:
            self._keep(name, _MISSING)

    def _forget_refused(self, name: str) -> None:
        self.owned.pop(name, None)
        self.undecided.pop(name, None)
        self.paused.pop(name, None)

    async def judge(self, name: str, data: bytes) -> None:
        """Decide on a value of desired-state, and act on it. Whatever goes wrong, the old one stays
        enforced.
        """
        self._forget_refused(name)
        try:
            await self._decide(name, data)
        except Unreachable as error:
            log.warning(
                "%s: cannot judge what arrived, for actual-state can't be read: %s", name, error
            )
            self.undecided[name] = data
        except ResourceError as error:
            self._keep(name, NotAccepted("Held", error.reason, str(error)))
            self.undecided[name] = data
        except Exception as error:  # the other deployments go on
            message = f"a defect of the agent ({defect(name, error)}): see its log"
            self._keep(name, NotAccepted("Rejected", "InternalError", message))
        if self.undecided:
            self.doubtful.notify()

    async def _decide(self, name: str, data: bytes) -> None:
        await self._find_floor(name)
        try:
            value = parse(data)
            distrusted = self._trust.verify(value, data=data)
            if distrusted is not None:  # nothing else that it says is looked at
                self._keep(name, replace(distrusted, generation=claimed_generation(data)))
                return
            prints = fingerprints(value)
            manifest = self._read(name, value, data, prints)
        except InvalidManifest as error:
            self._keep(name, rejected(error, claimed_generation(data)))
            return
        deployment = self._state.deployment(name)
        found = identity(deployment.last, value, data)
        known = self._known.get(name, {})
        admitted = {at for at, one in enumerate(prints) if one in known}
        reserved = self._reverting.reserved(name)
        view = replace(view_of(self._state, self._kinds, name, reserved), admitted=admitted)
        verdict = admit_manifest(deployment.last, manifest, found, view)
        if isinstance(verdict, Unchanged) and (deployment.stored is None or deployment.behind):
            verdict = admit_manifest(
                None, manifest, found, view
            )  # an earlier life accepted it: whether this device still may
        if isinstance(verdict, NotAccepted):
            self._keep(name, verdict)
            if any(error.code == _OWNED for error in verdict.errors):
                self.owned[name] = data
        elif isinstance(verdict, Accept) and (until := self._state.pauses.until(name)):
            self._keep(name, held_while_paused(manifest.generation, until))
            self.paused[name] = data
        elif isinstance(verdict, Accept):
            await self._accept(name, manifest, data, found)
            specs = [
                self._state.desired[Key(score.kind, score.name)].spec for score in manifest.scores
            ]
            self._known[name] = dict(zip(prints, specs, strict=True))
        else:
            await self._renew(deployment, data)
            self._state.set_not_accepted(name, self._reverting.refused(name))

    def _read(self, name: str, value: Any, data: bytes, prints: Sequence[bytes]) -> WireManifest:
        """Raises InvalidManifest, but not for rules that came after this very generation was
        accepted.
        """
        read = partial(bound, device=self._device, deployment=name)
        try:
            return read(reuse_validated(value, prints, self._known.get(name, {})))
        except InvalidManifest:
            if not is_enforced(self._state.deployment(name).last, value, data):
                raise
            return read(value, accepted=True)

    async def _renew(self, deployment: Deployment, data: bytes) -> None:
        """Persist the same generation with other signatures, where the persisted ones aren't
        believed any more.
        """
        stored = deployment.stored
        if (
            stored is not None
            and stored.data != data
            and self._trust.verify(parse(stored.data)) is not None
        ):
            await self._state.accept(replace(stored, data=data))

    def _keep(self, name: str, not_accepted: NotAccepted) -> None:
        if self._state.deployment(name).not_accepted != not_accepted:
            log.warning(
                "%s: keeps what is enforced: %s/%s: %s",
                name,
                not_accepted.phase,
                not_accepted.reason,
                not_accepted.message,
                extra={
                    "deployment": name,
                    "reason": not_accepted.reason,
                    "generation": not_accepted.generation,
                },
            )
        self._state.set_not_accepted(name, not_accepted)

    async def _accept(self, name: str, manifest: WireManifest, data: bytes, found: str) -> None:
        """Persist first, then enforce."""
        digests = digests_of(manifest.scores, self._state.desired)
        generations = generations_of(digests, manifest.generation, self._state.desired)
        taken = await self._remains.take_back(manifest)
        stored = StoredManifest(
            name, manifest.lineage, manifest.generation, found, data, generations
        )
        await self._reverting.begin(manifest, stored)
        await self._state.accept(stored)
        log.info(
            "%s: accepted generation %d",
            name,
            stored.generation,
            extra={"deployment": name, "generation": stored.generation},
        )
        self._queue(self._state.enforce(stored, manifest, digests, taken))

    async def _find_floor(self, name: str) -> None:
        """Read ``actual-state`` for versions that this device doesn't know, so that it never goes
        back behind them.

        Raises Unreachable.
        """
        known = self._state.deployments.get(name)
        if known is not None and known.last is not None and self._remains.recalled(name):
            return
        try:
            entry = await self._control.get(ACTUAL, str(DeploymentKey(self._device, name)))
        except BucketMissing:
            return
        told = entry.data if entry is not None else None
        self._remains.recall(name, told)
        await self._remains.look(name)
        self._state.deployment(name).last_known_version = enforced_from_status(told)
