"""Observed state of a container. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harmony_agent.topology.containers import ContainerState


@dataclass(frozen=True, slots=True)
class Observed:
    """Containers under a resource's name.

    `main` is ours, by the recorded id; without one, by its labels. `holder` has our name, but isn't
    ours. `inits` are its init containers by name; those in `overdue` have run for too long.
    `env_files` are the desired spec's files, digests by path. `missing` are the cgroup controllers
    that its limits need and the device lacks.
    """

    main: ContainerState | None = None
    holder: ContainerState | None = None
    inits: Mapping[str, ContainerState] = field(default_factory=dict)
    overdue: frozenset[str] = frozenset()
    env_files: Mapping[str, str | None] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
