"""Container: what the configuration forbids of one. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_agent.core.env_files import EnvFilePolicy
from harmony_agent.core.paths import PathSet
from harmony_agent.kinds.container.payload import known_signal
from scores.container import Container
from scores.manifest import FieldError


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    """Which env files may be read, and what no bind may touch."""

    env_files: EnvFilePolicy
    closed_mounts: PathSet

    def violations(self, spec: Container) -> Iterator[FieldError]:
        """Env files outside the roots, files and mounts of what is closed, and signals that Linux
        doesn't have.
        """
        yield from self.env_files.violations(spec.env_files)
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
