"""Probes: how it is judged that something answers. There is no probe that runs a command on the
device itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import WHOLE, Model, fault
from scores.names import Text

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(ge=0, le=86_400), WHOLE]
Period = Annotated[float, Field(gt=0, le=86_400), WHOLE]
Threshold = Annotated[int, Field(ge=1, le=1000)]


class HttpProbe(Model):
    """GET on the device's loopback; a status from 200 to 399 is a success. TLS certificates aren't
    verified.
    """

    port: Port = Field(description="A port of the device's loopback.", examples=[8080])
    path: Annotated[Text, Field(pattern=r"^/[!-~]*$", max_length=2048)] = Field(
        default="/", description="The path to ask for.", examples=["/health"]
    )
    scheme: Literal["http", "https"] = Field(
        default="http", description="How to ask; certificates aren't verified."
    )


class TcpProbe(Model):
    """A connection to the device's loopback that is accepted is a success."""

    port: Port = Field(description="A port of the device's loopback.", examples=[22])


class Probe(Model):
    """Exactly one of `http`, `tcp` and, for a container, `exec` (an argument list, run in it; 0 is
    a success).

    What takes longer than `timeout_seconds` is a failure. That ends no command of `exec`, for
    podman can't end one: it runs on in the container, and isn't run again before it has ended. So
    let it give up by itself, as `timeout` does.
    """

    http: HttpProbe | None = Field(default=None, description="Ask by HTTP.")
    tcp: TcpProbe | None = Field(default=None, description="Connect by TCP.")
    exec: Annotated[Sequence[Text], Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="Run this argument list in the container (no shell); exit code 0 is a success.",
        examples=[["pg_isready", "-q"]],
    )
    period_seconds: Period = Field(
        default=10, description="Seconds from one try to the next.", examples=[10]
    )
    timeout_seconds: Period = Field(
        default=1, description="Seconds after which a try has failed.", examples=[1]
    )
    initial_delay_seconds: Seconds = Field(
        default=0, description="Seconds from the start to the first try.", examples=[5]
    )
    success_threshold: Threshold = Field(
        default=1, description="Successes in a row that make it ready.", examples=[1]
    )
    failure_threshold: Threshold = Field(
        default=3,
        description="Failures in a row that make it not ready, or restart it (liveness).",
        examples=[3],
    )

    @model_validator(mode="after")
    def _one(self) -> Probe:
        if sum(way is not None for way in (self.http, self.tcp, self.exec)) != 1:
            raise PydanticCustomError("ExactlyOneOf", "needs exactly one of http, tcp, exec")
        return self


Readiness = Annotated[
    Probe | None,
    Field(
        description="Tells when this is Ready, and what comes after it may begin; "
        "None: when it runs."
    ),
]
Liveness = Annotated[
    Probe | None,
    Field(description="Restarts this when it fails; None: only what ends is restarted."),
]


def refuse_exec(code: str, **probes: Probe | None) -> None:
    """Refuse a probe by its field's name that runs a command, for a kind that has no inside."""
    for name, probe in probes.items():
        if probe is not None and probe.exec is not None:
            raise fault((name, "exec"), code, "only a container's probe has exec: use http or tcp")
