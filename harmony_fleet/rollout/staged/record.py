"""Rollout: how far a deployment's newest content has come; a value of ``task-runs``, at
``rollout.<deployment>``.

It is written by CAS before anything that follows from it, so any number of commands and
controllers may carry it on. Times are JetStream's. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from harmony_fleet.roster.policy import RolloutPolicy
from scores.base import Model
from scores.manifest import Generation
from scores.names import DeploymentName, DeviceName, Digest, Lineage, Time

Phase = Literal["Running", "Paused", "Succeeded", "RollingBack", "RolledBack"]
State = Literal["pending", "away", "asked", "ready", "succeeded", "failed", "returning", "returned"]
MAX_TARGETS: Final = 10_000
"""Devices of one rollout: it is one value, and a value is at most 1 MiB."""
MAX_PAST: Final = 10
"""Rollouts of before that are remembered."""


class Target(Model):
    """One device. What has its default isn't written: ten thousand of them fit into a value.

    `pending` until its wave begins; `away` while it is silent and wasn't asked; `asked` once the
    new content is desired of it; `ready` since it is Converged; `succeeded` or `failed`.
    `returning` to what stood `before`, and `returned`. `since` is when the state began, `before`
    the revision of the manifest that stood when it was asked; 0: nothing did. `wants` and `stood`
    are places in the rollout's `contents`: of what it is to have, and of what stood when it joined;
    None where that wasn't this home's word.
    """

    device: DeviceName
    wave: Annotated[int, Field(ge=1, le=MAX_TARGETS)]
    state: State = "pending"
    asked: Time | None = None
    since: Time | None = None
    before: Annotated[int, Field(ge=0)] | None = None
    wants: Annotated[int, Field(ge=0)] = 0
    stood: Annotated[int, Field(ge=0)] | None = None
    reason: str = ""
    message: str = ""


class Past(Model):
    """A rollout of before. `phase` Replaced: another content came before it ended."""

    content: Digest
    roster_generation: Generation
    created_at: Time
    ended_at: Time
    phase: Literal["Succeeded", "RolledBack", "Replaced"]
    reason: str
    devices: int
    succeeded: int
    failed: int


class Rollout(Model):
    """A value of ``task-runs``. `content` is the digest of what was wanted of all its devices when
    it began, `contents` are those of what each of them is to have, and had.

    The home's word stands beside it: who owns NATS could otherwise have an operator sign what a
    record says that stood before.
    """

    api: Literal["harmony/v1"] = "harmony/v1"
    deployment: DeploymentName
    lineage: Lineage
    content: Digest
    roster_generation: Generation
    policy: RolloutPolicy
    created_at: Time
    ended_at: Time | None = None
    phase: Phase = "Running"
    reason: str = ""
    promoted: bool = False
    contents: Annotated[Sequence[Digest], Field(max_length=MAX_TARGETS)] = ()
    targets: Annotated[Sequence[Target], Field(min_length=1, max_length=MAX_TARGETS)]
    past: Annotated[Sequence[Past], Field(max_length=MAX_PAST)] = ()

    def wire(self) -> dict[str, Any]:
        """The JSON value without defaults, but with `api` and `phase`."""
        value = self.model_dump(mode="json", exclude_defaults=True)
        return {**value, "api": self.api, "phase": self.phase}

    def wants(self, target: Target) -> str | None:
        """The digest of the content that a device is to have."""
        return self.contents[target.wants] if target.wants < len(self.contents) else None

    def stood(self, target: Target) -> str | None:
        """The digest of the content that stood at a device when the rollout began."""
        at = target.stood
        return self.contents[at] if at is not None and at < len(self.contents) else None

    @property
    def waves(self) -> int:
        """The number of waves."""
        return max(target.wave for target in self.targets)

    def count(self, *states: State) -> int:
        """The number of targets in these states."""
        return sum(target.state in states for target in self.targets)
