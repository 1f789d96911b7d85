"""Goes back to the last generation that was Converged, where one with `revert_after` isn't in its time.

Needs no control plane. The order makes it safe to cut at any point: what is remembered is written first, then the manifest
is accepted again, then it is enforced. An agent that starts in between goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from harmony_agent.core.admission import DELETES_DATA, NotAccepted, reverted
from harmony_agent.core.changes import Moment
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.manifests import StoredManifest
from harmony_agent.core.resources import Key
from harmony_agent.core.reverts import KEEP_SECONDS, Fallback, judge
from harmony_agent.core.status import deployment_phase, deployment_status
from harmony_agent.engine.loops import AGAIN, Signal
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.fallbacks import Fallbacks
from scores.base import Score
from scores.manifest import InvalidManifest, WireManifest, bound, parse
from scores.status import DeploymentPhase

log = logging.getLogger(__name__)


class Reverting:
    """Trials of this device's deployments. Whoever calls `look` lets nobody accept meanwhile."""

    def __init__(
        self,
        device: str,
        state: DeviceState,
        moment: Callable[[], Moment],
        queue: Callable[[Collection[Key]], None],
        refresh: Callable[[], None],
    ) -> None:
        """`queue` takes the keys that change when a manifest is enforced again. `refresh` has desired
        state read anew: what was refused beside the failed generation may be accepted now.
        """
        self._device, self._state = device, state
        self._queue, self._refresh = queue, refresh
        self._fallbacks: Fallbacks = state.fallbacks
        self._moment = moment
        self._unfinished: list[StoredManifest] = []
        self.began = Signal()
        """rings when there is something to look at"""

    # -- at the start

    def start(self) -> None:
        """Count what is left from now on, when an agent starts."""
        now = self._moment()
        self._fallbacks.begin(
            lambda one: one if one.trial is None else replace(one, trial=one.trial.started(now))
        )

    def restored(self, stored: StoredManifest) -> StoredManifest:
        """The manifest to enforce at the start: another one where going back was cut."""
        good = self._fallbacks.of(stored.deployment).back_from(stored)
        manifest = self._read(good) if good is not None else None
        if good is None or manifest is None:
            return stored
        self._unfinished.append(good)
        self._spare_data(manifest)
        return good

    # -- a newer manifest

    async def begin(self, manifest: WireManifest, stored: StoredManifest) -> None:
        """Remember what to go back to, before `stored` is accepted. Raises Transient."""
        found = self._fallbacks.of(stored.deployment)
        if not manifest.revert_seconds and found == Fallback(stored.deployment):
            return
        before = self._good(stored.deployment)
        found = found.accepting(before, stored, manifest.revert_seconds, self._moment())
        if manifest.removed:
            found = Fallback(stored.deployment)
        await self._fallbacks.put(found)
        if found.trial is not None:
            self.began.notify()
        elif manifest.revert_seconds:
            log.warning(
                "%s: generation %d has nothing to go back to: no generation before was Converged",
                stored.deployment,
                stored.generation,
                extra={"deployment": stored.deployment, "reason": "NothingToRevertTo"},
            )

    def _good(self, name: str) -> StoredManifest | None:
        """The enforced manifest, if it was Converged."""
        entry = self._state.deployments.get(name)
        stored = entry.stored if entry is not None else None
        if entry is None or stored is None or entry.removed or entry.behind:
            return None
        if self._phase(name) == "Converged":
            return stored
        tried = self._fallbacks.of(name).tried(stored)
        return stored if tried is None and self._reached(entry.keys) else None

    def _phase(self, name: str) -> DeploymentPhase:
        entry, state = self._state.deployments[name], self._state
        return deployment_phase(entry.enforced, None, state.phases(name))

    def _reached(self, keys: Collection[Key]) -> bool:
        """Tell if each of these converged with its spec, also before this start."""
        records, desired = self._state.records, self._state.desired
        owned = [(records.get(key), desired[key]) for key in keys]
        return all(record is not None and record.reached == one.version for record, one in owned)

    # -- time

    async def look(self) -> float | None:
        """Judge what is due; seconds until the next look, None where nothing is tried."""
        try:
            return await self._look()
        except ResourceError as error:
            log.debug("cannot write what is remembered of a trial: %s", error)
            return AGAIN

    async def _look(self) -> float | None:
        while self._unfinished:
            await self._state.accept(self._unfinished[0])
            self._unfinished.pop(0)
        now, soonest = self._moment(), None
        noted = []
        for stored, found, trial in self._fallbacks.tried(self._state.stored()):
            name, stands = stored.deployment, bool(self._state.pauses.until(stored.deployment))
            tried = trial.noted(now, stands=stands)
            verdict = "later" if stands else judge(tried, self._phase(name), now)
            if verdict == "passed":
                await self._fallbacks.put(found.passed(stored))
                log.info("%s: generation %d stays", name, stored.generation)
                self._state.released.notify()
            elif verdict == "failed":
                await self._revert(stored, found)
            else:
                noted.append(replace(found, trial=tried))
                left = min(max(tried.after(now), 0.05), KEEP_SECONDS)
                soonest = left if soonest is None else min(soonest, left)
        await self._fallbacks.put(*noted)
        return soonest

    async def _revert(self, stored: StoredManifest, found: Fallback) -> None:
        """Go back. Raises Transient, and is done again then."""
        name, good = stored.deployment, found.good
        manifest = self._read(good) if good is not None else None
        if good is None or manifest is None:
            await self._fallbacks.put(replace(found, trial=None))
            return
        failed = found.failed(stored, good, self._why(name))
        await self._fallbacks.put(failed)
        await self._state.accept(good)
        self._spare_data(manifest)
        self._queue(self._state.enforce(good, manifest))
        self._refresh()
        refused = self.refused(name)
        self._state.set_not_accepted(name, refused)
        log.error(
            "%s: %s",
            name,
            refused.message if refused is not None else "went back",
            extra={"deployment": name, "reason": "Reverted", "generation": stored.generation},
        )

    def _why(self, name: str) -> str:
        """What failed, as the status tells it."""
        entry = self._state.deployments[name]
        resources = self._state.resources(name)
        told = deployment_status(self._device, name, entry.enforced, None, resources)
        return f"{told.phase} {told.reason}: {told.message}".replace(" :", ":")[:300]

    def _spare_data(self, manifest: WireManifest) -> None:
        """What the refused generation made goes, but no data of it."""
        wanted = {Key(score.kind, score.name) for score in manifest.scores}
        for key, record in list(self._state.records.items()):
            spared = record.deployment == manifest.deployment and key not in wanted
            if spared and record.on_remove == DELETES_DATA:
                self._state.records.write_later(replace(record, on_remove="delete"))

    # -- for who judges manifests

    def refused(self, name: str) -> NotAccepted | None:
        """What is said of the generation that the device went back from; None where it didn't."""
        entry = self._state.deployments.get(name)
        return reverted(entry.refused) if entry is not None and entry.refused is not None else None

    def reserved(self, name: str) -> list[tuple[str, Score]]:
        """What other deployments than `name` may go back to, each named before its Score: nobody
        else may have it meanwhile.
        """
        spared = self._fallbacks.spared(self._state.stored())
        return [(owner, score) for owner, score in spared if owner != name]

    def _read(self, stored: StoredManifest) -> WireManifest | None:
        try:
            name = stored.deployment
            return bound(parse(stored.data), device=self._device, deployment=name, accepted=True)
        except InvalidManifest as error:
            log.error(  # noqa: TRY400  # what is wrong stands in the code
                "%s: cannot go back: generation %d can't be read (%s)",
                stored.deployment,
                stored.generation,
                error.code,
                extra={"deployment": stored.deployment, "reason": "ManifestUnreadable"},
            )
            return None
