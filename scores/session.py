"""Session: a terminal session of the device that outlives whoever looks at it, as tmux keeps it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import Score, fault
from scores.container_values import Env
from scores.file import Path, normal_path
from scores.names import Text
from scores.probes import Liveness, Readiness, refuse_exec

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def _program(value: Sequence[str]) -> Sequence[str]:
    if not value[0].startswith("/") or "=" in value[0]:
        raise PydanticCustomError(
            "CommandNotAbsolute", "must begin with the absolute path of a program, without ="
        )
    return value


def _working_dir(value: str) -> str:
    if "#" in value:
        raise PydanticCustomError("InvalidWorkingDir", "must have no #: tmux would expand it")
    return value if value == "/" else normal_path(value)


class Session(Score):
    """A terminal session of exactly this name on the socket that the agent's configuration names.

    Example: ``Session(name="worker", command=["/usr/bin/top"])``

    On the device, `tmux -S /run/user/1000/harmony-sessions/tmux.sock attach -t worker` shows it.
    """

    restarts = True

    kind: Literal["Session"] = Field(default="Session", description="Session, as the class says.")
    command: Annotated[
        Sequence[Text], Field(min_length=1, max_length=1024), AfterValidator(_program)
    ] = Field(
        description="The argument list of what runs in it; no shell.",
        examples=[["/usr/bin/top", "-d", "5"]],
    )
    working_dir: Annotated[Text, AfterValidator(_working_dir)] | None = Field(
        default=None,
        description="The directory where the command starts; None: the agent's user's home.",
        examples=["/srv/web"],
    )
    env: Env = Field(
        default_factory=dict,
        repr=False,
        description="Environment variables: value by name. No status or log shows a value.",
        examples=[{"TZ": "UTC"}],
    )
    env_files: Annotated[Sequence[Path], Field(max_length=16)] = Field(
        default=(),
        description="Files of NAME=value lines on the device, read when the session is made; "
        "env wins.",
        examples=[["/srv/web/web.env"]],
    )
    restart: Literal["always", "on-failure", "never"] = Field(
        default="always",
        description="What happens when the command ends; on-failure: only after another exit code "
        "than 0.",
    )
    state: Literal["running", "stopped"] = Field(
        default="running", description="Whether there is to be such a session."
    )
    readiness: Readiness = None
    liveness: Liveness = None

    def stopped(self) -> Self:
        """The same, not to run."""
        return self if self.state == "stopped" else self.model_copy(update={"state": "stopped"})

    @model_validator(mode="after")
    def _holds_together(self) -> Session:
        if not _NAME.fullmatch(self.name) or len(self.name) > 64:
            raise fault(
                ("name",), "InvalidSessionName", "must be letters, digits, - and _, at most 64"
            )
        if self.adopt:
            raise fault(
                ("adopt",), "SessionNotAdopted", "a session that isn't ours is never taken over"
            )
        refuse_exec("ExecProbeNotForSession", readiness=self.readiness, liveness=self.liveness)
        return self
