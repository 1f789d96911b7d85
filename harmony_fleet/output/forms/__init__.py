"""Forms of what commands print with ``-o json``: one model a command, from which JSON Schema is made.

Tests hold each command's output to its form. A form that is `Open` has further fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from harmony_fleet.manifests.reference import Meaning, ModelWords
from harmony_fleet.output.forms import changes, fleet, looks
from harmony_fleet.output.forms.base import Error
from harmony_fleet.rollout.staged.record import Rollout
from scores.task_run import TaskRun

_APPLIED: Final = ("apply", "diff", "delete", "adopt")
_SECTIONS: Final = ("device", "deployment", "schedule")
_CHANGES: Final = ("add", "set", "remove")
_ROLLOUT_VERBS: Final = ("watch", "pause", "resume", "promote", "undo", "history")
FORMS: Final[Mapping[str, Any]] = {
    "error": Error,
    **dict.fromkeys(_APPLIED, changes.Applied),
    "get": list[looks.Place],
    "status": list[looks.StatusRow],
    "status --watch": looks.StatusRow,
    "tree": looks.DeviceTree,
    "events": looks.EventLine,
    "wait": looks.Waited,
    "logs": looks.Log,
    "devices": list[looks.DeviceRow],
    "explain": list[Meaning] | ModelWords | looks.FieldMeaning,
    "validate": list[changes.Validated],
    "pause": changes.Paused,
    "resume": changes.Resumed,
    "object put": changes.ObjectPut,
    "object list": list[changes.ObjectRow],
    "object rm": changes.ObjectsRemoved,
    **dict.fromkeys(("secret set", "secret list", "secret rm"), list[changes.SecretRow]),
    "fleet init": fleet.RosterMade,
    "fleet show": fleet.RosterShown,
    "fleet adopt": fleet.Adopted,
    "fleet status": fleet.FleetStatus,
    **dict.fromkeys(("fleet doctor", "fleet verify"), fleet.Findings),
    "fleet remove-key": fleet.KeyRemoved,
    "fleet plan": fleet.FleetPlanShown,
    **dict.fromkeys(("fleet apply", "fleet reconcile"), fleet.FleetApplied),
    "fleet apply --dry-run": fleet.FleetPlanShown,
    "fleet pull": fleet.Pulled,
    **{f"fleet {one} {verb}": fleet.RosterChange for one in _SECTIONS for verb in _CHANGES},
    **dict.fromkeys(("fleet device rename", "fleet deployment rename"), fleet.RosterChange),
    **{f"fleet {one} list": list[fleet.RosterItem] for one in _SECTIONS},
    **{f"fleet {one} show": fleet.RosterItem for one in _SECTIONS},
    "fleet key new": fleet.SigningKey,
    "fleet key list": list[fleet.SigningKey],
    "fleet key retire": fleet.SigningKeyTurned,
    **dict.fromkeys((f"upgrade {verb}" for verb in ("start", "watch", "show", "cancel")), TaskRun),
    "rollout status": list[Rollout] | Rollout,
    **dict.fromkeys((f"rollout {verb}" for verb in _ROLLOUT_VERBS), Rollout),
    "upgrade list": list[fleet.RunSummary],
    "server init": fleet.ServersMade,
    "server objects": list[str],
    "device list": list[fleet.Credentials],
    "device show": fleet.Enrolled,
    "device forget": fleet.Forgotten,
}
"""By the words of a command; ``events`` and ``status --watch`` print one such object a line."""


def output_schema(command: str) -> dict[str, Any]:
    """JSON Schema of what a command prints. Raises KeyError."""
    value = TypeAdapter(FORMS[command]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **value}
