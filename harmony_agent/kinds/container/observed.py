"""Observed state of a container. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from harmony_agent.core.frozen import frozen
from harmony_agent.core.schedule import Turn
from harmony_agent.topology.containers import ContainerState
from harmony_agent.topology.device_nodes import DeviceNode

End = Literal["", "by-hand", "recent", "unexplained"]
"""Who ended a run. "": it ended by itself, the agent ended it, or it doesn't matter. "recent":
that isn't told yet. "unexplained": nothing tells it."""


@frozen()
class Observed:
    """Containers under a resource's name.

    `main` is ours, by the recorded id; without one, by its labels. `holder` has our name, but isn't
    ours. `retired` gave way to `main`, and `trials` are what rehearsals left behind. `inits` are
    its init containers by name; those in `overdue` have run for too long. `env_files` are the
    desired spec's files, digests by path; `nodes` its devices by path. `stale` are the sources of its binds that are Files of
    ours and were replaced since it was started: it still sees what was there before. `moved`: the
    image's name is another image's by now. `end` is asked for where drift is only reported.
    `missing` are the cgroup controllers that its limits need and the device lacks; `runtime` is
    podman's, where the spec needs another. `turn` tells what of its schedule has come; None where
    it has none, or its time zone isn't known here.
    """

    main: ContainerState | None = None
    holder: ContainerState | None = None
    retired: ContainerState | None = None
    trials: tuple[ContainerState, ...] = ()
    inits: Mapping[str, ContainerState] = field(default_factory=dict)
    overdue: frozenset[str] = frozenset()
    env_files: Mapping[str, str | None] = field(default_factory=dict)
    nodes: Mapping[str, DeviceNode | None] = field(default_factory=dict)
    runtime: str = ""
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    moved: bool = False
    end: End = ""
    turn: Turn | None = None
