"""The engine's knowledge, in memory: enforced manifests, desired specs, records, statuses.

Decides nothing. `records` mirrors the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.changes import Moment, newest
from harmony_agent.core.dependencies import Leaving
from harmony_agent.core.manifests import (
    DesiredDigests,
    desired_of,
    followers_of,
    reloads_on,
    restarts_on,
    secrets_of,
)
from harmony_agent.core.resources import Desired, Key, OwnershipRecord, SecretState
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.engine.loops import Changes, Signal
from harmony_agent.engine.state.deployment import Deployment
from harmony_agent.engine.state.fallbacks import Fallbacks
from harmony_agent.engine.state.lost import Lost
from harmony_agent.engine.state.pauses import Pauses
from harmony_agent.engine.state.records import Records
from harmony_agent.topology.control_plane import Ledger, StoredManifest
from scores.base import Score
from scores.manifest import WireManifest
from scores.status import SETTLED, ResourcePhase, ResourceStatus


class DeviceState:
    """The engine's memory. Only the event loop's thread touches it."""

    def __init__(self, ledger: Ledger, wire_now: Callable[[], str]) -> None:
        self.ledger = ledger
        self._wire_now = wire_now
        self.deployments: dict[str, Deployment] = {}
        self.desired: dict[Key, Desired[Score]] = {}
        self.statuses: dict[Key, ResourceStatus] = {}
        self.lost = Lost()
        self.changes = Changes()
        """names of deployments whose status may differ now"""
        self.released = Signal()
        """rings when something isn't wanted or ours any more: another deployment may have it"""
        self.wanted_anew = Signal()
        """rings when a manifest is enforced"""
        self.pauses = Pauses(ledger)
        self.secrets: dict[str, SecretState] = {}
        """as the device has them, by name"""
        self.fallbacks = Fallbacks(ledger)
        self.records = Records(ledger, self.desired, self.lost, self.released)
        self.enforced = 0
        """another one whenever `desired` changed"""
        self._last_wall = max(map(_wall, self.records.values()), default=0)
        self._leaving: dict[str, Leaving] = {}
        self._leaving_as_of = self.revision
        self._phased = 0
        """another one whenever the phase of a resource changed"""
        self._phases: dict[str, tuple[object, set[ResourcePhase]]] = {}

    @property
    def revision(self) -> tuple[int, int]:
        """Another one whenever `desired` or `records` changed."""
        return self.enforced, self.records.revision

    def now(self) -> str:
        """The time, as the wire spells it."""
        return self._wire_now()

    def deployment(self, name: str) -> Deployment:
        """The deployment, made if it is new."""
        return self.deployments.setdefault(name, Deployment(name))

    # -- manifests

    def stored(self) -> dict[str, StoredManifest]:
        """The enforced manifests, by deployment."""
        entries = self.deployments.items()
        return {name: entry.stored for name, entry in entries if entry.stored is not None}

    def enforce(
        self,
        stored: StoredManifest,
        manifest: WireManifest,
        digests: Mapping[str, str] | None = None,
        taken: Collection[Key] = (),
    ) -> set[Key]:
        """Hold the device to a manifest that was persisted; returns the keys to work on.

        `digests` as `digests_of`. `taken` are ours since just now.
        """
        deployment = self.deployment(stored.deployment)
        before = {key: self.desired[key] for key in deployment.keys}
        wanted = desired_of(
            manifest, stored.generations, digests, self.records, before, secrets=self.secrets
        )
        for key in deployment.keys - wanted.keys():
            del self.desired[key]
        self.desired.update(wanted)
        self.enforced += 1
        self.records.sort_out(before.keys() | wanted.keys())
        owned = {
            key for key, record in self.records.items() if record.deployment == stored.deployment
        }
        deployment.stored, deployment.removed, deployment.not_accepted = (
            stored,
            manifest.removed,
            None,
        )
        deployment.refused = self.fallbacks.of(stored.deployment).refuses(stored)
        deployment.keys = set(wanted)
        deployment.followers = followers_of(wanted.values())
        self._follow_on_remove(wanted)
        self.changes.tell(stored.deployment)
        self.wanted_anew.notify()
        stale = (owned | before.keys()) - wanted.keys()
        changed = {
            key for key, desired in wanted.items() if before.get(key) is not desired or key in taken
        }
        self._not_yet(stale, changed)
        if before.keys() - wanted.keys():
            self.released.notify()
        return stale | changed

    def _follow_on_remove(self, wanted: Mapping[Key, Desired[Score]]) -> None:
        """Copy `on_remove` from the newest manifest, because the resource may be removed before its
        next reconcile.
        """
        for key, desired in wanted.items():
            record = self.records.get(key)
            if record is not None and record.on_remove != desired.spec.on_remove:
                self.records.write_later(replace(record, on_remove=desired.spec.on_remove))

    def _not_yet(self, stale: set[Key], changed: set[Key]) -> None:
        """Until the first pass over it, a resource that changed is neither settled nor gone."""
        now = self._wire_now()
        self._phased += 1
        for key in changed:
            desired, old = self.desired[key], self.statuses.get(key)
            self.statuses[key] = resource_status(
                old,
                Outcome("Progressing", detail=old.status if old else None),
                desired.generation,
                desired.digest,
                now,
            )
        for key in stale:
            record, old = self.records.get(key), self.statuses.pop(key, None)
            if record is not None:
                outcome = Outcome("Removing", detail=old.status if old else None)
                self.statuses[key] = resource_status(
                    old, outcome, record.generation, record.spec_digest, now
                )

    def set_not_accepted(self, deployment: str, not_accepted: NotAccepted | None) -> None:
        """Note what was said of a newer manifest; None clears it."""
        entry = self.deployment(deployment)
        if entry.not_accepted != not_accepted:
            entry.not_accepted = not_accepted
            self.changes.tell(deployment)

    def is_being_removed(self, key: Key) -> bool:
        """Return whether what the ledger has under `key` is to be taken off: its deployment is
        known, and wants it no more.
        """
        record = self.records.get(key)
        if record is None or key in self.desired or key in self.records.taking:
            return False
        deployment = self.deployments.get(record.deployment)
        return deployment is not None and deployment.stored is not None

    def has(self, deployment: str) -> dict[str, str]:
        """List what a deployment owns or wants, with each `on_remove`.

        Leaves out what is being removed.
        """
        owned = {
            str(key): record.on_remove
            for key, record in self.records.items()
            if record.deployment == deployment and not self.is_being_removed(key)
        }
        wanted = {
            str(key): one.spec.on_remove
            for key, one in self.desired.items()
            if one.deployment == deployment
        }
        return {str(key): "delete" for key in self.lost.of(deployment)} | owned | wanted

    def being_removed(self, deployment: str) -> Leaving:
        """Records of a deployment that are on their way out; listed once while nothing changes."""
        if self._leaving_as_of != self.revision:
            self._leaving_as_of, self._leaving = self.revision, {}
        known = self._leaving.get(deployment)
        if known is None:
            known = self._leaving[deployment] = Leaving(
                self.records[key]
                for key in self.records.unwanted
                if self.records[key].deployment == deployment and self.is_being_removed(key)
            )
        return known

    # -- what remains of an earlier life

    def lose(self, deployment: str, found: Mapping[Key, ResourceStatus]) -> None:
        """Note what the ledger knows nothing of."""
        self.lost.add(deployment, found)
        self.changes.tell(deployment)

    def remains(self, deployment: str) -> dict[Key, ResourceStatus]:
        """Answer for the operator."""
        return self.lost.shown(deployment, self.desired, self.statuses)

    # -- changes that others restart or reload on

    def is_followed(self, key: Key) -> bool:
        """Tell if something restarts or reloads when `key` changes."""
        return bool(self._followers(key))

    async def changed(self, record: OwnershipRecord, now: Moment) -> Sequence[Key]:
        """Put the record of a resource that was changed; returns the keys to work on for it.

        Durable before this returns where there are any, else at the next flush.
        """
        self._last_wall = max(now.wall, self._last_wall + 1)
        moment = str(replace(now, wall=self._last_wall))
        record = replace(record, changed=moment, changing=False)
        if not self.is_followed(record.key):
            self.records.write_later(record)
            return ()
        await self.records.write(record)
        followers, key = self._followers(record.key), str(record.key)
        for follower in followers:
            old = self.desired[follower]
            token, reload = old.restart_token, old.reload_token
            if key in restarts_on(old.spec):
                token = newest((token, moment))
            if key in reloads_on(old.spec):
                reload = newest((reload, moment))
            self.desired[follower] = replace(old, restart_token=token, reload_token=reload)
        self.enforced += 1
        self._not_yet(set(), set(followers))
        self.changes.tell(record.deployment)
        return followers

    # -- secrets

    def wanted_secrets(self) -> set[str]:
        """The names of all that anything is made of."""
        return {name for desired in self.desired.values() for name in desired.spec.secret_names()}

    def note_secret(self, found: SecretState) -> Sequence[Key]:
        """Note how the device has a secret now; returns the keys to work on for it."""
        if self.secrets.get(found.name) == found:
            return ()
        self.secrets[found.name] = found
        users = [key for key, one in self.desired.items() if found.name in one.spec.secret_names()]
        for key in users:
            held = secrets_of(self.desired[key].spec, self.secrets)
            self.desired[key] = replace(self.desired[key], secrets=held)
            self.changes.tell(self.desired[key].deployment)
        self.enforced += bool(users)
        return users

    def _followers(self, key: Key) -> Sequence[Key]:
        desired = self.desired.get(key)
        if desired is None:
            return ()
        return self.deployments[desired.deployment].followers.get(str(key), ())

    # -- durable writes

    async def accept(self, stored: StoredManifest) -> None:
        """Persist a manifest; `enforce` it next."""
        await self.records.accept(stored)
        self.deployment(stored.deployment).stored = stored
        self._leaving.clear()

    async def rebuild(self) -> None:
        """Write the ledger anew from memory, all of it."""
        entries = self.deployments.values()
        await self.records.rebuild([entry.stored for entry in entries if entry.stored is not None])
        await self.pauses.rebuild()
        if self.fallbacks:
            await self.fallbacks.rebuild()

    async def forget(self, key: Key) -> None:
        """Drop a record and its status."""
        record = self.records.get(key)
        if record is not None:
            await self.records.drop(key)
        if key not in self.desired:
            self.statuses.pop(key, None)
            self._phased += 1
            if record is not None:
                self.changes.tell(record.deployment)
        self.released.notify()

    # -- statuses

    def set_status(self, key: Key, deployment: str, status: ResourceStatus) -> bool:
        """Note how a resource is; returns whether it has just settled with this spec."""
        old = self.statuses.get(key)
        if old == status:
            return False
        self.statuses[key] = status
        self._phased += old is None or old.phase != status.phase
        self.changes.tell(deployment)
        settled = status.phase in SETTLED
        return settled and not (
            old and old.phase in SETTLED and old.spec_digest == status.spec_digest
        )

    def digests(self) -> Mapping[Key, str]:
        """The spec digest that is wanted of each key."""
        return DesiredDigests(self.desired)

    def phases(self, deployment: str) -> set[ResourcePhase]:
        """Those of a deployment's resources, each once; of a thousand that stay as they are, made
        once.
        """
        as_of = (self.revision, self._phased)
        known = self._phases.get(deployment)
        if known is None or known[0] != as_of:
            keys = [
                *self.deployments[deployment].keys,
                *(record.key for record in self.being_removed(deployment)),
            ]
            known = as_of, {self.statuses[key].phase for key in keys if key in self.statuses}
            self._phases[deployment] = known
        return known[1]

    def resources(self, deployment: str) -> dict[str, ResourceStatus]:
        """Every resource of a deployment, those on their way out too."""
        keys = self.deployments[deployment].keys | {
            record.key for record in self.being_removed(deployment)
        }
        found = {key: self.statuses[key] for key in keys if key in self.statuses} | self.remains(
            deployment
        )
        return {str(key): status for key, status in found.items()}


def _wall(record: OwnershipRecord) -> int:
    moment = Moment.parse(record.changed)
    return moment.wall if moment is not None else 0
