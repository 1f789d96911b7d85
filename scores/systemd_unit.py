"""SystemdUnit: a unit with its file, drop-ins, and whether it is to run, be enabled or be
masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from scores.base import ResourceKey, Score, fault, is_new
from scores.names import Text
from scores.probes import Liveness, Readiness, refuse_exec

_UNIT: Final = re.compile(
    r"(?P<stem>[A-Za-z0-9:_.\\-]+)(?P<at>@[A-Za-z0-9:_.\\-]*)?"
    r"\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)"
)
_DROPIN: Final = re.compile(r"[A-Za-z0-9_@:\\-][A-Za-z0-9._@:\\-]*\.conf")
MAX_UNIT_FILE: Final = 512 * 1024


def _unit_text(value: str) -> str:
    if len(value.encode()) > MAX_UNIT_FILE:
        raise PydanticCustomError("ContentTooLarge", "a unit file is at most 512 KiB")
    return value


def _dropin_name(value: str) -> str:
    if not _DROPIN.fullmatch(value) or len(value) > 255:
        raise PydanticCustomError(
            "InvalidDropinName", "must be a plain file name that ends in .conf, as 10-mem.conf"
        )
    return value


UnitText = Annotated[Text, AfterValidator(_unit_text)]
DropinName = Annotated[Text, AfterValidator(_dropin_name)]


class SystemdUnit(Score):
    """A systemd unit of any type, by its full name.

    Example: ``SystemdUnit(name="web.service", content="[Service]\\nExecStart=/usr/bin/web\\n")``
    """

    restarts = True

    kind: Literal["SystemdUnit"] = Field(
        default="SystemdUnit", description="SystemdUnit, as the class says."
    )
    content: UnitText | None = Field(
        default=None,
        repr=False,
        description="The unit file, at most 512 KiB; None for a unit that the system already has.",
        examples=["[Service]\nExecStart=/usr/bin/web\n"],
    )
    dropins: Mapping[DropinName, UnitText] = Field(
        default_factory=dict,
        repr=False,
        description="Drop-in files: their text by their name, which ends in .conf.",
        examples=[{"10-memory.conf": "[Service]\nMemoryMax=64M\n"}],
    )
    state: Literal["running", "stopped", "none"] | None = Field(
        default=None,
        description='Whether it is to run; "none" leaves that alone. '
        'None means running; for a template (x@.service) or a masked unit, "none".',
    )
    enabled: bool | None = Field(
        default=None,
        description="Whether a boot starts it. None: neither enabled nor disabled by us.",
    )
    masked: bool = Field(
        default=False, description="Nothing can start it: a mask stands in its place."
    )
    ignore_failure: bool = Field(
        default=False,
        description="Whether a failed run of a one-shot, or of what a timer starts, doesn't "
        "matter; else it shows as Degraded until a run ends well.",
    )
    reload_on: Sequence[ResourceKey] = Field(
        default=(),
        description="When one of these changes on the device, by a new spec or a repair, this unit "
        "is reloaded once after it.",
        examples=[["File/config"]],
    )
    readiness: Readiness = None
    liveness: Liveness = None

    @property
    def is_template(self) -> bool:
        """Return whether this is ``x@.service``, which may be installed and not started."""
        match = _UNIT.fullmatch(self.name)
        return match is not None and match["at"] == "@"

    @property
    def template(self) -> str:
        """Name of the template that an instance without a unit file of its own is made from;
        ``x@.service`` of ``x@a.service``. "" for any other unit.
        """
        if self.content is not None or "@" not in self.name:
            return ""
        match = _UNIT.fullmatch(self.name)
        if match is None or match["at"] == "@":
            return ""
        return f"{match['stem']}@{self.name[match.end('at') :]}"

    @property
    def wanted_state(self) -> Literal["running", "stopped", "none"]:
        """`state` with its default filled in."""
        if self.state is not None:
            return self.state
        return "none" if self.is_template or self.masked else "running"

    def stopped(self) -> Self:
        """The same, not to run and not enabled. What neither is wanted to run nor to stop stays
        like that.
        """
        update: dict[str, object] = {"state": "stopped"} if self.wanted_state == "running" else {}
        if self.enabled:
            update["enabled"] = False
        return self.model_copy(update=update) if update else self

    def needs(self) -> tuple[str, ...]:
        """Every key that must be settled before this one."""
        return tuple(dict.fromkeys((*super().needs(), *self.reload_on)))

    @model_validator(mode="after")
    def _holds_together(self, info: ValidationInfo) -> SystemdUnit:
        if not _UNIT.fullmatch(self.name):
            raise fault(("name",), "InvalidUnitName", "must be a unit's full name, as web.service")
        if is_new(info) and self.name.endswith(".scope") and self.content is not None:
            raise fault(
                ("content",),
                "ScopeWithContent",
                "systemd reads no unit file for a scope: a program makes it. Use a .service",
            )
        if self.is_template and self.wanted_state != "none":
            raise PydanticCustomError(
                "TemplateNotStartable", "a template can't be started: start an instance of it"
            )
        if self.masked and self.wanted_state == "running":
            raise PydanticCustomError("MaskedNotStartable", "a masked unit can't run")
        if self.masked and self.content is not None:
            raise PydanticCustomError(
                "MaskedWithContent", "a mask stands where the unit file would: leave out content"
            )
        if self.masked and self.enabled:
            raise PydanticCustomError("MaskedNotEnabled", "a masked unit can't be enabled")
        refuse_exec("ExecProbeNotForUnit", readiness=self.readiness, liveness=self.liveness)
        return self
