"""A device's deployments as trees: what comes after what, what waits for what, how each is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from harmony_fleet.observe.state import Deployment
from harmony_fleet.observe.status import Row
from scores.status import (
    SETTLED,
    ContainerDetail,
    Detail,
    FileDetail,
    NetworkDetail,
    PackageDetail,
    ResourceStatus,
    SessionDetail,
    UnitDetail,
    UpgradeDetail,
    VolumeDetail,
)

MAX_DEPTH: Final = 8
"""Levels below a deployment: a deeper one would leave no room for its name."""


@dataclass(frozen=True, slots=True)
class Node:
    """One resource. `after` is what the desired manifest says; `waits_for` is the part of it that
    isn't settled.

    `below` is the one of `after` that it is shown below, "" for the deployment itself.
    """

    key: str
    phase: str
    reason: str = ""
    message: str = ""
    health: str = ""
    drift: str = ""
    after: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    below: str = ""

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        return {
            "resource": self.key,
            "phase": self.phase,
            "reason": self.reason,
            "message": self.message,
            "health": self.health,
            "drift": self.drift,
            "after": list(self.after),
            "waits_for": list(self.waits_for),
        }


@dataclass(frozen=True, slots=True)
class Branch:
    """One deployment, with its resources in the order of work."""

    row: Row
    nodes: tuple[Node, ...]

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows: a row of `harmony status` with the resources in the place of
        the status.
        """
        row = self.row.as_json()
        del row["status"]
        return {**row, "resources": [node.as_json() for node in self.nodes]}


def branch(row: Row, found: Deployment) -> Branch:
    """The resources that the device tells of, and those that are desired and not told of yet."""
    wanted = found.desired.manifest
    after = {score.key: tuple(score.after) for score in wanted.scores} if wanted else {}
    told = found.actual.status.resources if found.actual.status is not None else {}
    nodes: dict[str, Node] = {}
    depths: dict[str, int] = {}
    for key in _ordered(after, sorted(after.keys() | told.keys())):
        waits = tuple(
            name for name in after.get(key, ()) if name not in nodes or not _settled(told.get(name))
        )
        below = _below(after.get(key, ()), waits, depths)
        depths[key] = depths.get(below, 0) + 1
        nodes[key] = _node(key, told.get(key), after.get(key, ()), waits, below)
    return Branch(row, tuple(nodes.values()))


def _ordered(after: Mapping[str, tuple[str, ...]], keys: list[str]) -> list[str]:
    """Each behind those that it comes after; by name where that leaves a choice."""
    done: dict[str, None] = {}
    waiting = [key for key in keys if not after.get(key)]
    open_ = {key: {name for name in after[key] if name in after} for key in keys if after.get(key)}
    while waiting or open_:
        done.update(dict.fromkeys(waiting))
        waiting = [key for key, names in open_.items() if names <= done.keys()] or sorted(open_)
        for key in waiting:
            del open_[key]
    return list(done)


def _below(after: tuple[str, ...], waits: tuple[str, ...], depths: Mapping[str, int]) -> str:
    """The one that it waits for, else the deepest: that was worked on last."""
    names = [name for name in (waits or after) if name in depths]
    best = max(names, key=lambda name: depths[name], default="")
    return best if depths.get(best, 0) < MAX_DEPTH else ""


def _settled(told: ResourceStatus | None) -> bool:
    return told is not None and told.phase in SETTLED


def _node(
    key: str,
    told: ResourceStatus | None,
    after: tuple[str, ...],
    waits: tuple[str, ...],
    below: str,
) -> Node:
    if told is None:
        return Node(key, "Waiting", after=after, waits_for=waits, below=below)
    drift = f"{told.drift.action} {told.drift.count}x" if told.drift else ""
    settled = told.phase in SETTLED
    return Node(
        key,
        told.phase,
        told.reason,
        told.message,
        health(told.status) if told.status is not None else "",
        drift,
        after,
        () if settled else waits,
        below,
    )


def health(detail: Detail) -> str:
    """Health in a few words: ``Running, 2 restarts, not ready``."""
    words: list[str]
    match detail:
        case FileDetail() | VolumeDetail() | NetworkDetail() | PackageDetail():
            words = [detail.state]
        case UnitDetail():
            words = [f"{detail.active_state}/{detail.sub_state}", *_runs(detail.restarts)]
            words += [] if detail.ready else ["not ready"]
        case ContainerDetail() | SessionDetail():
            code = detail.exit_code
            words = [detail.state if code is None else f"{detail.state} {code}"]
            words += [*_runs(detail.restarts), *([] if detail.ready else ["not ready"])]
        case UpgradeDetail():
            words = [detail.phase, *([detail.reason] if detail.reason else [])]
        case _:
            assert_never(detail)
    return ", ".join(words)


def _runs(restarts: int) -> list[str]:
    return [f"{restarts} restart{'' if restarts == 1 else 's'}"] if restarts else []
