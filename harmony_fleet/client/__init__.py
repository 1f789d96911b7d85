"""The fleet for programs: read it, watch it, change it; all of it typed. `docs/client.md` has examples.

Async, on one connection. What is read and written are the models of ``scores``. Errors are
`HarmonyError`, with a stable code. The command `harmony` is made of this; it prints nothing itself.
"""

from harmony_fleet.client.client import Client, connect
from harmony_fleet.client.events import Event
from harmony_fleet.client.logs import LogLine
from harmony_fleet.client.pauses import Paused, Resumed
from harmony_fleet.client.watch import Change
from harmony_fleet.errors import (
    Conflict,
    DeviceFailed,
    ExitCode,
    HarmonyError,
    InvalidInput,
    Refused,
    Unreachable,
)
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from harmony_fleet.observe.status import Row
from harmony_fleet.observe.wait import Verdict
from harmony_fleet.rollout.apply import Options, Refusal, Result, Run, Show
from harmony_fleet.rollout.plan import Plan
from harmony_fleet.rollout.runs.plan import Request

__all__ = [
    "Actual",
    "Change",
    "Client",
    "Conflict",
    "Deployment",
    "Desired",
    "Device",
    "DeviceFailed",
    "Event",
    "ExitCode",
    "HarmonyError",
    "InvalidInput",
    "LogLine",
    "Options",
    "Paused",
    "Plan",
    "Refusal",
    "Refused",
    "Request",
    "Result",
    "Resumed",
    "Row",
    "Run",
    "Show",
    "Unreachable",
    "Verdict",
    "connect",
]
