"""Buckets, keys and subjects of the wire contract. A key never has its bucket's name in front."""

from __future__ import annotations

from typing import Final, NamedTuple

from scores.jetstream import kv_subject

DESIRED: Final = "desired-state"
ACTUAL: Final = "actual-state"
INFO: Final = "device-info"
HEARTBEAT: Final = "device-heartbeat"
TASK_RUNS: Final = "task-runs"
FLEET: Final = "fleet-authority"
"""The control plane's own memory, which copies of one home share. No device reads or writes it."""
INDEX: Final = "desired-index"
"""Which keys ``desired-state`` has, without content: its stream writes that, when it has stored
something.
"""
SECRETS: Final = "secrets"
"""Sealed secrets, ``<device>.<name>``. Nobody but that device can open one."""
HISTORY: Final = {DESIRED: 16}
"""Entries kept of a key; 1 where a bucket isn't named."""
BUCKETS: Final = (DESIRED, ACTUAL, INFO, HEARTBEAT, TASK_RUNS, FLEET, INDEX, SECRETS)
DEVICE_WRITES: Final = (ACTUAL, INFO, HEARTBEAT)
"""Buckets that devices write to, each device its own keys."""
COMMANDS: Final = ("ping", "resync", "logs", "challenge", "pause", "resume")


class DeploymentKey(NamedTuple):
    """A deployment on a device: the key of ``desired-state`` and ``actual-state``."""

    device: str
    deployment: str

    def __str__(self) -> str:
        return f"{self.device}.{self.deployment}"


def parse_deployment_key(key: str) -> DeploymentKey | None:
    """``pi-01.web`` in its parts; None where it isn't a key of that form."""
    device, dot, deployment = key.partition(".")
    return (
        DeploymentKey(device, deployment)
        if dot and device and deployment and "." not in deployment
        else None
    )


def info_key(device: str) -> str:
    """The device's key in ``device-info``."""
    return f"info.{device}"


def heartbeat_key(device: str) -> str:
    """The device's key in ``device-heartbeat``."""
    return f"heartbeat.{device}"


def command_subject(device: str, verb: str) -> str:
    """Subject at which the device answers `verb`."""
    return f"device-commands.{device}.{verb}"


DEVICE_API: Final = "$JS.fleet.API"
"""Prefix that a device with its own credentials uses instead of ``$JS.API``: it reaches only the
device's own.
"""
DEVICE_TAG: Final = "harmony-device"
"""Stands in the user JWT of a device that may ask ``DEVICE_API`` and nothing else."""


def device_inbox(device: str) -> str:
    """In front of every subject on which `device` waits for an answer."""
    return f"_INBOX_{device}"


def device_reader(device: str) -> str:
    """A consumer that each device once had; now only a name to ask for, and one to take away."""
    return f"device-{device}"


INDEX_LEVELS: Final = 20
_FNV: Final = (2166136261, 16777619)


def name_hash(name: str) -> int:
    """FNV-1a of 32 bits, as nats-server's ``partition`` takes it."""
    found, prime = _FNV
    for byte in name.encode():
        found = (found ^ byte) * prime % 2**32
    return found


def news_subject(device: str, deployment: str = "*") -> str:
    """The subject that tells that a key of ``desired-state`` was stored; `deployment` may be a
    wildcard.

    Between the two names stand the rests of the deployment's hash divided by 2, 4, 8…. With them a
    device that may only read the newest message below a subject still finds all: see `news_branch`.
    """
    if deployment == "*":
        return kv_subject(INDEX, f"{device}.>")
    rests = ".".join(str(name_hash(deployment) % 2**level) for level in range(1, INDEX_LEVELS + 1))
    return kv_subject(INDEX, f"{device}.{rests}.{deployment}")


def news_branch(device: str, level: int, rest: int) -> str:
    """The subject of all deployments whose hash has this `rest` at this `level`, from 1 to
    `INDEX_LEVELS`.
    """
    return kv_subject(INDEX, f"{device}.{'*.' * (level - 1)}{rest}.>")


def news_source() -> dict[str, object]:
    """The setting by which the stream of ``desired-state`` tells what it has stored."""
    rests = ".".join(f"{{{{partition({2**level},2)}}}}" for level in range(1, INDEX_LEVELS + 1))
    dest = kv_subject(INDEX, f"{{{{wildcard(1)}}}}.{rests}.{{{{wildcard(2)}}}}")
    return {"src": kv_subject(DESIRED, "*.*"), "dest": dest, "headers_only": True}
