"""Network: what to do next, from what is wanted, what the ledger says and what was observed. Pure.

A network can't be changed. One of ours that differs is made anew while no container is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.kinds.network.actions import Create, NetworkAction, Remove
from harmony_agent.kinds.network.facts import read
from harmony_agent.topology.networks import NetworkState
from scores.container_values import LABEL_PREFIX
from scores.network import Network

NetworkPlan = Plan[NetworkAction]
RESOURCE: Final = f"{LABEL_PREFIX}resource"
DEVICE: Final = f"{LABEL_PREFIX}device"


def plan(
    name: str,
    desired: Desired[Network] | None,
    record: OwnershipRecord | None,
    observed: NetworkState | None,
    device: str,
) -> NetworkPlan:
    """Plan the next actions."""
    ours = observed is not None and is_ours(name, record, observed, device)
    if desired is None:
        gone = Remove(name=name, reason="no longer wanted")
        return Act((gone,)) if ours else Converged()
    create = Create(name=name, reason="there is no such network")
    if observed is None:
        return Act((create,), ("name",))
    differing = differences(desired.spec, observed)
    if not differing:
        return Converged()
    if ours:
        reason = f"{', '.join(differing)} differs"
        return Act((Remove(name=name, reason=reason), create), differing)
    text = (
        f"a network {name} that isn't ours is there already, with another "
        f"{' and other '.join(differing)}: rename it, or ask for what is there"
    )
    return Wait("OwnershipConflict", text, "Blocked", 10.0)


def is_ours(name: str, record: OwnershipRecord | None, seen: NetworkState, device: str) -> bool:
    """Tell if it is of our making: by the ledger, and by its labels."""
    marks = {DEVICE: device, RESOURCE: f"Network/{name}"}
    return read(record).made and marks.items() <= seen.labels.items()


def differences(spec: Network, seen: NetworkState) -> tuple[str, ...]:
    """The Score's fields that are otherwise on the device. What it leaves to podman is not watched."""
    found = {
        "driver": spec.driver != seen.driver,
        "subnet": spec.subnet is not None and not _has_subnet(spec, seen),
        "internal": spec.internal != seen.internal,
        "dns": spec.driver == "bridge" and spec.dns != seen.dns,
        "labels": dict(spec.labels) != own(seen.labels),
    }
    return tuple(field for field, differs in found.items() if differs)


def _has_subnet(spec: Network, seen: NetworkState) -> bool:
    wanted = ip_network(spec.subnet or "")
    gateway = spec.gateway
    return any(
        ip_network(subnet) == wanted
        and (gateway is None or (at != "" and ip_address(at) == ip_address(gateway)))
        for subnet, at in seen.subnets
    )


def own(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels without the agent's."""
    return {key: value for key, value in labels.items() if not key.startswith(LABEL_PREFIX)}
