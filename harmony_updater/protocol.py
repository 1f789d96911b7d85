"""Define what crosses the updater's socket: one JSON object a line each way, at most 64 KiB.

Attributes have the wire's names. Pure, and pydantic is all it imports, so that the agent can import
it alone. Nothing about upgrades is decided here.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

LINE_LIMIT = 64 * 1024
Version = Annotated[int, Field(ge=1, le=1)]  # strict, which Literal[1] isn't: True equals 1
Phase = Literal[
    "blocked",
    "preflight",
    "applying",
    "rebooting",
    "verifying",
    "complete",
    "failed",
    "repair-required",
]
_Refusal = Literal[
    "expired", "attempt-conflict", "wrong-device", "unknown-attempt", "repair-required", "forbidden"
]
Code = _Refusal | Literal["bad-request", "unsupported", "busy"]


def timestamp(seconds: float) -> str:
    """Spell seconds since the epoch as the wire's time, in one way, so that text sorts as time."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_spelling(text: str) -> str:
    return timestamp(datetime.fromisoformat(text).timestamp())


_RFC3339 = StringConstraints(
    pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$"
)
Time = Annotated[str, _RFC3339, AfterValidator(_one_spelling)]
_NAME = StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")  # it names a file, too
Identifier = Annotated[str, _NAME]
Device = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
# What was done, as `name (old => new)`, `name (version)` or `name`; too long a list ends in
# `... N more`.
Result = dict[
    Literal["upgraded", "installed", "removed", "held", "keptConffiles", "dpkgAudit"],
    tuple[str, ...],
]


class Wire(BaseModel):
    """A model that is strict and closed: a wrong type or an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class UpgradeRequest(Wire):
    """A request: who asks, and until when it may start. Nothing here changes what is done."""

    attemptId: Identifier
    runUid: Identifier
    deviceId: Device
    expiresAt: Time


class Ask(Wire):
    """A line to the updater.

    `request` goes with AptFullUpgradeV1, `attemptId` with status, nothing with capabilities.
    """

    v: Version
    op: Literal["capabilities", "AptFullUpgradeV1", "status"]
    request: UpgradeRequest | None = None
    attemptId: Identifier | None = None

    @model_validator(mode="after")
    def _arguments(self) -> Self:
        if (self.request is None, self.attemptId is None) != (
            self.op != "AptFullUpgradeV1",
            self.op != "status",
        ):
            raise ValueError("the arguments aren't those of the operation")
        return self


class Status(Wire):
    """An attempt's state. `blocked` without `startedAt` is not on disk: ask again."""

    attemptId: Identifier
    runUid: Identifier
    deviceId: Device
    phase: Phase
    reason: str = ""
    message: str = ""
    startedAt: Time | None = None
    updatedAt: Time | None = None
    bootIdBefore: str | None = None
    bootIdAfter: str | None = None
    result: Result | None = None


class Capabilities(Wire):
    """The protocol's version and the operations."""

    protocol: Literal[1] = 1
    operations: tuple[str, ...] = ("AptFullUpgradeV1",)


class Answer(Wire):
    """A line from the updater: `status` when `ok`, else `error`, with a `code` and a `message`."""

    v: Version = 1
    ok: bool
    status: Status | Capabilities | None = None
    error: dict[Literal["code", "message"], str] | None = None


class Refused(Exception):
    """Raised where the answer is an error."""

    def __init__(self, code: Code, message: str) -> None:
        self.answer = Answer(ok=False, error={"code": code, "message": message})


def encode(line: Ask | Answer) -> bytes:
    """Write one line, its newline included. `model_validate_json` reads it."""
    return (
        line.model_dump_json(exclude={key for key, value in line if value is None}).encode() + b"\n"
    )


def decode(line: bytes) -> Ask:
    """Read a line to the updater.

    Raises Refused: `unsupported` for another operation or version, else `bad-request`.
    """
    try:
        return Ask.model_validate_json(line)
    except ValidationError as error:
        what = error.errors(include_url=False, include_context=False, include_input=False)[0]
        other = what["type"] in {"literal_error", "less_than_equal", "greater_than_equal"}
        text = f"cannot accept the request: {what['loc']} {what['type']}"[:500]
        raise Refused("unsupported" if other else "bad-request", text) from None
