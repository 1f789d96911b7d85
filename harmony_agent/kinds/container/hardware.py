"""Container: nodes of the device, guards, processes and logs, as podman's input; and nodes that are
not there. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harmony_agent.core.actions import Wait
from harmony_agent.topology.device_nodes import DeviceNode
from scores.container import Container
from scores.container_devices import rule_parts
from scores.container_surroundings import KEEP_GROUPS
from scores.container_values import in_bytes

Nodes = Mapping[str, DeviceNode | None]
KEEP_ANNOTATION = "run.oci.keep_original_groups"
"""How podman's own command asks for it; its API takes keep-groups for a group's name."""


def hardware(spec: Container, nodes: Nodes) -> dict[str, Any]:
    """The parts of the SpecGenerator value; nothing of what isn't set. Links are resolved."""
    found = {
        "devices": []
        if spec.privileged
        else [
            {"path": f"{_real(one.source, nodes)}:{one.target or one.source}:{one.access}"}
            for one in spec.devices
        ],
        "device_cgroup_rule": [_rule(rule) for rule in spec.device_cgroup_rules],
        "privileged": spec.privileged,
        "pidns": {"nsmode": "host"} if spec.host_pid else None,
        "ipcns": {"nsmode": "host"} if spec.host_ipc else None,
        "init": spec.init,
        "terminal": spec.tty,
        "log_configuration": _log(spec),
        **_security(spec),
    }
    return {key: value for key, value in found.items() if value}


def device_binds(spec: Container, nodes: Nodes) -> list[dict[str, Any]]:
    """Its devices as mounts where it is privileged: podman then drops `devices`, and shows the nodes
    of the device by their own names, without serial ones.
    """
    shape = {"type": "bind", "options": ["rbind", "rw", "dev"]}
    return [
        {"source": _real(one.source, nodes), "destination": one.target or one.source, **shape}
        for one in (spec.devices if spec.privileged else ())
    ]


def _real(source: str, nodes: Nodes) -> str:
    node = nodes.get(source)
    return source if node is None else node.path


def _rule(rule: str) -> dict[str, Any]:
    kind, major, minor, access = rule_parts(rule)
    numbers = {"major": major, "minor": minor}
    made = {"allow": True, "type": kind, "access": access}
    return made | {key: value for key, value in numbers.items() if value is not None}


def _log(spec: Container) -> dict[str, Any]:
    if spec.log_driver is None:
        return {}
    size = {} if spec.log_size is None else {"size": in_bytes(spec.log_size)}
    return {"driver": spec.log_driver, **size}


def _security(spec: Container) -> dict[str, Any]:
    options = spec.security_opt
    if options is None:
        return {}
    return {
        "selinux_opts": list(options.label),
        "seccomp_profile_path": options.seccomp,
        "apparmor_profile": options.apparmor,
        "mask": list(options.mask),
        "unmask": list(options.unmask),
    }


def unplugged(spec: Container, nodes: Nodes) -> Wait | None:
    """Wait for the first node that isn't there, or that the container couldn't open."""
    for one in spec.devices:
        node, path = nodes.get(one.source), one.source
        if node is None:
            text = f"cannot find {path}: plug it in; it is taken up by itself"
            return Wait("DeviceMissing", text, "Blocked", 5.0)
        if not node.type:
            text = f"{path} is no device node: bind a directory with mounts, or name a node in it"
            return Wait("DeviceInvalid", text, "Blocked", 5.0)
        if lacks := {"r", "w"} & set(one.access) - set(node.access):
            way = f"into the group {node.group}, and set groups: [{KEEP_GROUPS}]"
            text = (
                f"the agent's user may not {' and '.join(_VERBS[letter] for letter in sorted(lacks))} "
                f"{path}: give it to that user by a udev rule; or put the user {way}"
            )
            return Wait("DeviceForbidden", text, "Blocked", 5.0)
    return None


_VERBS = {"r": "read", "w": "write"}


def numbers(spec: Container, nodes: Nodes) -> dict[str, str]:
    """List what the container is made of, by source; of a node that isn't there nothing."""
    found = {one.source: nodes.get(one.source) for one in spec.devices}
    return {source: node.number for source, node in found.items() if node is not None}


def plugs(spec: Container, nodes: Nodes) -> dict[str, str]:
    """What its sources lead to now, one plug told from the next."""
    found = {one.source: nodes.get(one.source) for one in spec.devices}
    return {source: node.plug for source, node in found.items() if node is not None}


def replugged(started: Mapping[str, str] | None, now: Mapping[str, str]) -> tuple[str, ...]:
    """The sources that led to another plug at the container's start."""
    return tuple(
        source
        for source, plug in now.items()
        if started is not None and started.get(source, plug) != plug
    )
