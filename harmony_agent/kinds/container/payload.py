"""Container: from a Score to what is asked of podman. Pure; values of `env` leave here only inside
a payload.

The ``io.harmony.spec`` label says what a container was made from: a version, and a digest over what
the author set and that goes into the making. A field that a later version of the model adds, with
its default, is not in it, and so re-creates nothing.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from harmony_agent.core.resources import SecretState
from harmony_agent.kinds.container.hardware import Nodes, device_binds, hardware, numbers
from harmony_agent.kinds.container.surroundings import surroundings, users
from harmony_agent.topology.containers import Image
from scores.canonical import canonical, digest
from scores.container import Container, InitContainer
from scores.container_parts import Mount, NetworkAttachment
from scores.container_values import in_bytes

DEVICE: Final = "io.harmony.device"
DEPLOYMENT: Final = "io.harmony.deployment"
RESOURCE: Final = "io.harmony.resource"
SPEC: Final = "io.harmony.spec"
INIT: Final = "io.harmony.init"
TRIAL: Final = "io.harmony.trial"

_VERSION: Final = "1"
_MADE_OF: Final = {
    "image", "command", "args", "env", "env_files", "ports", "mounts", "network", "networks", "user", "working_dir", "hostname",
    "labels", "stop_signal", "memory", "cpus", "pids", "cap_add", "cap_drop", "read_only", "no_new_privileges",
    "init_containers", "healthcheck", "no_healthcheck", "userns", "groups", "shm_size", "ulimits", "sysctls", "dns",
    "dns_search", "extra_hosts", "annotations", "timezone", "devices", "device_cgroup_rules", "security_opt",
    "secrets", "privileged", "host_pid", "host_ipc", "init", "tty", "log_driver", "log_size",
}  # fmt: skip
"""The fields that go into the making; every other one takes effect without a new container."""
_CPU_PERIOD: Final = 100_000
_SECOND: Final = 1_000_000_000
_SHORT: Final = 3
"""A value shorter than this counts as repeated only where it stands as a word: `1` is in every
other message.
"""


_DAMAGE: Final = re.compile(
    r"mounting storage for container|getting graph driver info|layer not known|unexpected end of JSON input"
    r"|/(overlay|vfs)(-containers|-layers)?/\S*: no such file or directory|container not known"
)
"""Podman's words for a container whose files never reached the disk before a power cut."""


_HOLDER: Final = re.compile(r"in use by ([0-9a-f]{64})\b")


def spec_label(
    spec: Container,
    env_files: Mapping[str, str],
    nodes: Nodes = MappingProxyType({}),
    secrets: Sequence[SecretState] = (),
) -> str:
    """Value of ``io.harmony.spec`` for a container of `spec`, with env files of these digests,
    device nodes of these numbers and secrets of these versions.
    """
    made = spec.model_dump(mode="json", exclude_unset=True, include=_MADE_OF)
    if spec.env_files:
        made["env_files"] = [[path, env_files[path]] for path in spec.env_files]
    if spec.schedule is not None:
        made["job"] = True
    if spec.devices:
        made["nodes"] = numbers(spec, nodes)
    inside = spec.secrets_inside()
    if versions := [[one.name, one.version] for one in secrets if one.name in inside]:
        made["secret_versions"] = versions
    return f"{_VERSION}:{digest(canonical(made)).removeprefix('sha256:')}"


def init_name(name: str, init: str) -> str:
    """The name of the container that runs the init container `init` of `name`."""
    return f"{name}.init-{init}"


def former_name(name: str, ident: str) -> str:
    """Name of an adopted container while ours has its name."""
    return f"{name}.former-{ident[:12]}"


def retired_name(name: str, ident: str) -> str:
    """Name of the container that gave way to a successor, until that has started."""
    return f"{name}.retired-{ident[:12]}"


def secrets(spec: Container, files: Mapping[str, str]) -> frozenset[str]:
    """Every value that no message may repeat; `files` are the variables of its env files."""
    inits = (value for init in spec.init_containers for value in init.env.values())
    values = (*spec.env.values(), *files.values(), *inits)
    return frozenset(value for value in values if value and isinstance(value, str))


def safe(text: str, hidden: Iterable[str]) -> str:
    """Podman's words on one line, or a note in their place where they repeat a value of `env`."""
    words = set(text.split())
    for value in hidden:
        forms = {value, canonical(value).decode()[1:-1], *value.split("\n")} - {""}
        for form in forms:
            if form in words or (len(form) >= _SHORT and form in text):
                return "(podman's words are withheld: they repeat a value of env)"
    return " ".join(text.split())[:400]


def damaged(text: str) -> bool:
    """Return whether podman's words mean that a container's own storage is gone, so that only
    another one helps.
    """
    return _DAMAGE.search(text) is not None


def name_holder(text: str) -> str | None:
    """The full id of what holds a name, where podman's words tell it."""
    match = _HOLDER.search(text)
    return match[1] if match else None


def payload(
    spec: Container,
    labels: Mapping[str, str],
    image: Image,
    files: Mapping[str, str],
    nodes: Nodes = MappingProxyType({}),
) -> dict[str, Any]:
    """The SpecGenerator value that makes `spec`'s container. `labels` are the agent's own."""
    made: dict[str, Any] = {
        "name": spec.name,
        "image": spec.image,
        "labels": {**spec.labels, **labels},
        "env": {**files, **spec.env},
        "restart_policy": "no",
        **_command(spec.command, spec.args, image),
        **_mounts(spec.mounts),
        **_network(spec),
        **_limits(spec),
        **surroundings(spec),
        **hardware(spec, nodes),
    }
    plain = {
        "user": spec.user,
        "work_dir": spec.working_dir,
        "hostname": spec.hostname,
        "stop_signal": None if spec.stop_signal is None else signal_number(spec.stop_signal),
        "stop_timeout": spec.stop_grace_seconds,
        "cap_add": [_capability(name) for name in spec.cap_add] or None,
        "cap_drop": [_capability(name) for name in spec.cap_drop] or None,
        "read_only_filesystem": spec.read_only or None,
        "no_new_privileges": spec.no_new_privileges or None,
    }
    made |= {key: value for key, value in plain.items() if value is not None}
    if binds := device_binds(spec, nodes):
        made["mounts"] = [*made.get("mounts", ()), *binds]
    if spec.healthcheck is not None:
        check = spec.healthcheck
        made["healthconfig"] = {
            "Test": ["CMD", *check.command],
            "Interval": int(check.interval_seconds * _SECOND),
            "Timeout": int(check.timeout_seconds * _SECOND),
            "StartPeriod": int(check.start_period_seconds * _SECOND),
            "Retries": check.retries,
        }
    return made


def trial_payload(
    made: Mapping[str, Any], label: str, held: Collection[tuple[str, int]]
) -> dict[str, Any]:
    """The SpecGenerator value of a trial of `made`, without the ports that are `held` by what it
    is to replace, and without its names and addresses in its networks.
    """
    trial = {key: value for key, value in made.items() if key != "healthconfig"}
    trial["name"] = f"{made['name']}.trial-{label.partition(':')[2][:12]}"
    trial["labels"] = {**made["labels"], TRIAL: label}
    if networks := trial.get("networks"):
        trial["networks"] = {name: {} for name in networks}
    if ports := trial.pop("portmappings", []):
        free = [one for one in ports if (one["protocol"], one["host_port"]) not in held]
        trial |= {"portmappings": free} if free else {}
    return trial


def init_payload(
    spec: Container, init: InitContainer, labels: Mapping[str, str], image: Image
) -> dict[str, Any]:
    """The SpecGenerator value of one of `spec`'s init containers, which shares its network, without
    its names and addresses there, and, by default, mounts.
    """
    network = _network(spec)
    network.pop("portmappings", None)
    if "networks" in network:
        network["networks"] = {name: {} for name in network["networks"]}
    made: dict[str, Any] = {
        "name": init_name(spec.name, init.name),
        "image": init.image or spec.image,
        "labels": {**labels, INIT: init.name},
        "env": dict(init.env),
        "restart_policy": "no",
        **_command(init.command, init.args, image),
        **_mounts(spec.mounts if init.mounts is None else init.mounts),
        **network,
        **users(spec),
    }
    if init.user is not None:
        made["user"] = init.user
    return made


def signal_number(name: str) -> int:
    """The number of ``SIGUSR1`` or ``SIGRTMIN+3`` on this machine (podman's API takes no name).

    KeyError or ValueError where there is no such signal.
    """
    base, sign, offset = name.partition("+") if "+" in name else name.partition("-")
    number = signal.Signals[base].value
    if sign:
        number += int(sign + offset)
        if base not in ("SIGRTMIN", "SIGRTMAX") or not signal.SIGRTMIN <= number <= signal.SIGRTMAX:
            raise KeyError(name)
    return number


def known_signal(name: str) -> bool:
    """Return whether this machine has a signal of this name."""
    try:
        signal_number(name)
    except (KeyError, ValueError):
        return False
    return True


def _command(
    command: Sequence[str] | None, args: Sequence[str] | None, image: Image
) -> dict[str, Any]:
    """`command` replaces the entrypoint and with it the image's arguments; `args` alone keeps the
    entrypoint.

    Empty args and no command would be read as "the image's own arguments", so the entrypoint is
    then named.
    """
    made: dict[str, Any] = {}
    if command is not None:
        made["entrypoint"] = list(command)
    elif args is not None and not args and image.entrypoint:
        made["entrypoint"] = list(image.entrypoint)
    if args:
        made["command"] = list(args)
    return made


def _mounts(mounts: Sequence[Mount]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for mount in mounts:
        access = ["ro" if mount.read_only else "rw", *(["U"] if mount.chown else [])]
        if mount.type == "volume":
            made.setdefault("volumes", []).append(
                {"Name": mount.source, "Dest": mount.target, "Options": access}
            )
            continue
        one: dict[str, Any] = {"type": mount.type, "destination": mount.target}
        if mount.type == "bind":
            one |= {"source": mount.source, "options": ["rbind", *access]}
        else:
            size = [] if mount.size is None else [f"size={in_bytes(mount.size)}"]
            one |= {"source": "tmpfs", "options": ["nosuid", "nodev", *access, *size]}
        made.setdefault("mounts", []).append(one)
    return made


def _network(spec: Container) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if spec.network in ("host", "none"):
        made["netns"] = {"nsmode": spec.network}
    elif spec.network is not None:
        made["netns"] = {"nsmode": "bridge"}
        made["networks"] = {spec.network: {}}
    if spec.networks:
        made["netns"] = {"nsmode": "bridge"}
        made["networks"] = {one.name: _attachment(one) for one in spec.networks}
    if spec.ports:
        made["portmappings"] = [
            {
                "host_ip": port.host_ip,
                "host_port": port.host_port,
                "container_port": port.container_port,
                "protocol": port.protocol,
            }
            for port in spec.ports
        ]
    return made


def _attachment(one: NetworkAttachment) -> dict[str, Any]:
    made: dict[str, Any] = {"aliases": list(one.aliases)} if one.aliases else {}
    return made | ({} if one.address is None else {"static_ips": [one.address]})


def _limits(spec: Container) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if spec.memory is not None:
        limits["memory"] = {"limit": in_bytes(spec.memory)}
    if spec.cpus is not None:
        limits["cpu"] = {"period": _CPU_PERIOD, "quota": round(spec.cpus * _CPU_PERIOD)}
    if spec.pids is not None:
        limits["pids"] = {"limit": spec.pids}
    return {"resource_limits": limits} if limits else {}


def _capability(name: str) -> str:
    return name if name.startswith("CAP_") or name == "ALL" else f"CAP_{name}"
