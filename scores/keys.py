"""Buckets, keys and subjects of the wire contract. A key never has its bucket's name in front."""

from __future__ import annotations

from typing import Final, NamedTuple

DESIRED: Final = "desired-state"
ACTUAL: Final = "actual-state"
INFO: Final = "device-info"
HEARTBEAT: Final = "device-heartbeat"
TASK_RUNS: Final = "task-runs"
HISTORY: Final = {DESIRED: 16}
"""Entries kept of a key; 1 where a bucket isn't named."""
BUCKETS: Final = (DESIRED, ACTUAL, INFO, HEARTBEAT, TASK_RUNS)
COMMANDS: Final = ("ping", "resync", "logs")


class DeploymentKey(NamedTuple):
    """A deployment on a device: the key of ``desired-state`` and ``actual-state``."""

    device: str
    deployment: str

    def __str__(self) -> str:
        return f"{self.device}.{self.deployment}"


def parse_deployment_key(key: str) -> DeploymentKey | None:
    """``pi-01.web`` in its parts; None where it isn't a key of that form."""
    device, dot, deployment = key.partition(".")
    return DeploymentKey(device, deployment) if dot and device and deployment and "." not in deployment else None


def info_key(device: str) -> str:
    """The device's key in ``device-info``."""
    return f"info.{device}"


def heartbeat_key(device: str) -> str:
    """The device's key in ``device-heartbeat``."""
    return f"heartbeat.{device}"


def command_subject(device: str, verb: str) -> str:
    """Where the device answers `verb`."""
    return f"device-commands.{device}.{verb}"


def kv_subject(bucket: str, key: str) -> str:
    """The subject on which JetStream stores `key` of `bucket`."""
    return f"$KV.{bucket}.{key}"


def kv_stream(bucket: str) -> str:
    """The stream behind `bucket`."""
    return f"KV_{bucket}"
