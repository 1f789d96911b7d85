"""Container: what the configuration forbids of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_agent.core.paths import PathSet
from harmony_agent.kinds.container.payload import known_signal
from scores.container import Container
from scores.manifest import FieldError


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """Folders under which env files may be read, and what no env file and no bind may touch."""

    env_roots: Sequence[str]
    closed_files: PathSet
    closed_mounts: PathSet

    def violations(self, spec: Container) -> Iterator[FieldError]:
        """Env files outside the roots, files and mounts of what is closed, and signals that Linux
        doesn't have.
        """
        for index, path in enumerate(spec.env_files):
            if not any(path.startswith(f"{root.rstrip('/')}/") for root in self.env_roots):
                yield FieldError(f"env_files[{index}]", "PathOutsideRoots")
            elif self.closed_files.touched_by(path):
                yield FieldError(f"env_files[{index}]", "PathForbidden")
        for field, source in binds(spec):
            if self.closed_mounts.touched_by(source):
                yield FieldError(field, "MountForbidden")
        if spec.stop_signal is not None and not known_signal(spec.stop_signal):
            yield FieldError("stop_signal", "UnknownSignal")


def bind_sources(spec: Container) -> Sequence[str]:
    """The paths of the device that the container itself binds."""
    found = [mount.source for mount in spec.mounts if mount.type == "bind" and mount.source]
    return list(dict.fromkeys(found))


def binds(spec: Container) -> Iterator[tuple[str, str]]:
    """Field and source of every bind, those of its init containers included."""
    places = [("", spec.mounts)]
    places += [
        (f"init_containers[{index}].", init.mounts or ())
        for index, init in enumerate(spec.init_containers)
    ]
    for start, mounts in places:
        for index, mount in enumerate(mounts):
            if mount.type == "bind" and mount.source is not None:
                yield f"{start}mounts[{index}].source", mount.source
