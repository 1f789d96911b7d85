"""TaskRun: one upgrade of several devices, frozen when it starts; a value of ``task-runs``, at its
`run_uid`.

Written by CAS alone, so that any number of watchers may carry a run on. Times are JetStream's: no
two machines' clocks are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import check_distinct
from scores.names import DeploymentName, DeviceName, Identifier, Lineage, Time
from scores.status import Reported

RunPhase = Literal["Running", "Succeeded", "Failed", "Cancelled"]
TargetState = Literal[
    "pending",
    "requested",
    "upgrading",
    "complete",
    "succeeded",
    "failed",
    "repair-required",
    "skipped",
]
MAX_TARGETS: Final = 2000
"""Devices of one run: it is one value, and a value is at most 1 MiB."""


class TaskTarget(Reported):
    """One device's attempt, which is asked for at most once.

    It is `pending` until its wave begins, and `requested` once the manifest is written. The
    updater's word (`phase`) makes it `upgrading` and `complete`. A heartbeat after `completed_at`
    makes it `succeeded`. A `skipped` one never began, as far as is known: it wasn't asked, or the
    request was taken back (`Withdrawn`).
    """

    device: DeviceName
    attempt_id: Identifier
    wave: Annotated[int, Field(ge=1, le=MAX_TARGETS)]
    state: TargetState = "pending"
    phase: str = ""
    reason: str = ""
    boot_id_before: str | None = None
    boot_id_after: str | None = None
    completed_at: Time | None = None
    upgraded: Annotated[int, Field(ge=0)] = 0


class TaskRun(Reported):
    """A value of ``task-runs``. `deployment` is the one that carries the SystemUpgrade of each
    device.
    """

    api: Literal["harmony/v1"] = "harmony/v1"
    run_uid: Identifier
    operation: Literal["AptFullUpgradeV1"] = "AptFullUpgradeV1"
    lineage: Lineage
    deployment: DeploymentName
    schedule: str | None = None
    created_at: Time
    deadline: Time
    max_unavailable: Annotated[int, Field(ge=1)]
    canary: Annotated[int, Field(ge=1)] | None = None
    cancelled: bool = False
    begun: bool = True
    """False until each of its devices is its own; left out once it is, as before this was told."""
    phase: RunPhase = "Running"
    reason: str = ""
    targets: Annotated[Sequence[TaskTarget], Field(min_length=1, max_length=MAX_TARGETS)]

    def wire(self) -> dict[str, Any]:
        """The JSON value."""
        value = super().wire()
        if self.begun:
            del value["begun"]
        return value

    @model_validator(mode="after")
    def _distinct(self) -> TaskRun:
        for name in ("device", "attempt_id"):
            values = [getattr(target, name) for target in self.targets]
            check_distinct(values, "targets", name, "DuplicateTarget", "another target has it")
        waves = {target.wave for target in self.targets}
        if waves != set(range(1, len(waves) + 1)):
            raise PydanticCustomError("WaveMissing", "waves are numbered from 1 without a gap")
        return self
