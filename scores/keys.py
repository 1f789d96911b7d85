"""Buckets, keys and subjects of the wire contract. A key never has its bucket's name in front."""

from __future__ import annotations

from typing import Final, NamedTuple

DESIRED: Final = "desired-state"
ACTUAL: Final = "actual-state"
INFO: Final = "device-info"
HEARTBEAT: Final = "device-heartbeat"
TASK_RUNS: Final = "task-runs"
FLEET: Final = "fleet-authority"
"""The control plane's own memory, which copies of one home share. No device reads or writes it."""
HISTORY: Final = {DESIRED: 16}
"""Entries kept of a key; 1 where a bucket isn't named."""
BUCKETS: Final = (DESIRED, ACTUAL, INFO, HEARTBEAT, TASK_RUNS, FLEET)
DEVICE_WRITES: Final = (ACTUAL, INFO, HEARTBEAT)
"""What devices write, each its own keys."""
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


DEVICE_API: Final = "$JS.fleet.API"
"""What a device asks instead of ``$JS.API`` where it has credentials of its own: only what belongs to it."""
DEVICE_TAG: Final = "harmony-device"
"""Stands in the user JWT of a device that may ask ``DEVICE_API`` and nothing else."""


def device_inbox(device: str) -> str:
    """In front of every subject on which `device` waits for an answer."""
    return f"_INBOX_{device}"


def device_reader(device: str) -> str:
    """The consumer by which `device` learns the names of its deployments; the control plane makes it."""
    return f"device-{device}"


def reader_config(device: str) -> dict[str, object]:
    """Names only, each again and again: what is never acknowledged is listed anew a second later."""
    return {
        "durable_name": device_reader(device),
        "name": device_reader(device),
        "filter_subject": kv_subject(DESIRED, f"{device}.*"),
        "deliver_policy": "last_per_subject",
        "ack_policy": "explicit",
        "ack_wait": 1_000_000_000,
        "max_ack_pending": 1_000_000,
        "headers_only": True,
    }
