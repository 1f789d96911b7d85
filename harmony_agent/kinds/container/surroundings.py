"""Container: what it finds around it, as podman's input. Pure."""

from __future__ import annotations

from typing import Any

from harmony_agent.kinds.container.hardware import KEEP_ANNOTATION
from scores.container import Container
from scores.container_surroundings import KEEP_GROUPS, auto_size
from scores.container_values import in_bytes


def users(spec: Container) -> dict[str, Any]:
    """Its user namespace, which its init containers share, for they have its mounts."""
    if spec.userns is None:
        return {}
    mode, _, value = spec.userns.partition(":")
    if mode == "auto":
        size = {"AutoUserNsOpts": {"Size": auto_size(spec.userns)}} if value else {}
        return {"userns": {"nsmode": mode}, "idmappings": {"AutoUserNs": True, **size}}
    return {"userns": {"nsmode": mode, "value": value} if value else {"nsmode": mode}}


def surroundings(spec: Container) -> dict[str, Any]:
    """The parts of the SpecGenerator value; nothing of what isn't set."""
    limits = [
        {"type": name.upper(), "soft": limit.soft, "hard": limit.hard}
        for name, limit in spec.ulimits.items()
    ]
    kept = {KEEP_ANNOTATION: "1"} if KEEP_GROUPS in spec.groups else {}
    found = {
        "groups": [group for group in spec.groups if group != KEEP_GROUPS],
        "shm_size": None if spec.shm_size is None else in_bytes(spec.shm_size),
        "r_limits": limits,
        "sysctl": dict(spec.sysctls),
        "dns_server": list(spec.dns),
        "dns_search": list(spec.dns_search),
        "hostadd": [f"{name}:{address}" for name, address in spec.extra_hosts.items()],
        "annotations": {**spec.annotations, **kept},
        "timezone": spec.timezone,
        "healthconfig": {"Test": ["NONE"]} if spec.no_healthcheck else None,
    }
    return users(spec) | {key: value for key, value in found.items() if value}
