"""Container: what the configuration forbids of one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from harmony_agent.core.env_files import EnvFilePolicy
from harmony_agent.core.frozen import frozen
from harmony_agent.core.paths import PathSet
from harmony_agent.core.refusal import Refusal
from harmony_agent.kinds.container.payload import known_signal
from harmony_agent.topology.containers import NO_SUBORDINATES, Subordinates
from scores.container import Container
from scores.container_surroundings import auto_size
from scores.manifest import FieldError


@frozen()
class ContainerPolicy:
    """The rules of this device: which env files may be read, what no bind may touch, and which rights beyond a container's own
    are allowed by their names.
    """

    env_files: EnvFilePolicy
    closed_mounts: PathSet
    allowed: Collection[str] = ()
    rootless: bool = True
    subordinates: Subordinates = NO_SUBORDINATES

    def violations(self, spec: Container) -> Iterator[FieldError]:
        """Env files outside the roots, files and mounts of what is closed, rights that aren't
        allowed or that podman hasn't, and signals that Linux doesn't have.
        """
        yield from self.env_files.violations(spec.env_files)
        for field, source in binds(spec):
            if self.closed_mounts.touched_by(source):
                yield FieldError(field, "MountForbidden")
        yield from self._rights(spec)
        if spec.stop_signal is not None and not known_signal(spec.stop_signal):
            yield FieldError("stop_signal", "UnknownSignal")

    def _rights(self, spec: Container) -> Iterator[FieldError]:
        for field, name in ALLOWED_BY_NAME.items():
            if getattr(spec, field) and name not in self.allowed:
                line = f'only where agent.toml says: [podman] allow = ["{name}"]'
                yield Refusal(field, "RightNotAllowed", line)
        needed = auto_size(spec.userns)
        if needed > self.subordinates.count:
            user = self.subordinates.user
            why = (
                f"userns: auto needs {needed} subordinate ids, and {user} has {self.subordinates.count}: add the line "
                f"{user}:2000000:1048576 to /etc/subuid and /etc/subgid, and restart the agent"
            )
            yield Refusal("userns", "SubordinateIdsMissing", why)
        if spec.device_cgroup_rules and self.rootless:
            why = "rootless podman can't do it; name the nodes in devices, or use rootful podman"
            yield Refusal("device_cgroup_rules", "RootlessUnsupported", why)


ALLOWED_BY_NAME: Final = {
    "privileged": "privileged",
    "host_pid": "host-pid",
    "host_ipc": "host-ipc",
}
"""Fields that `[podman] allow` must name, and how it names them."""


def bind_sources(spec: Container) -> Sequence[str]:
    """The paths of the device that the container itself binds."""
    found = [mount.source for mount in spec.mounts if mount.type == "bind" and mount.source]
    return list(dict.fromkeys(found))


def binds(spec: Container) -> Iterator[tuple[str, str]]:
    """Field and source of every bind, those of its init containers included, and of what podman reads
    for it.
    """
    places = [("", spec.mounts)]
    places += [
        (f"init_containers[{index}].", init.mounts or ())
        for index, init in enumerate(spec.init_containers)
    ]
    profile = spec.security_opt.seccomp if spec.security_opt is not None else None
    if profile is not None and profile != "unconfined":
        yield "security_opt.seccomp", profile
    for start, mounts in places:
        for index, mount in enumerate(mounts):
            if mount.type == "bind" and mount.source is not None:
                yield f"{start}mounts[{index}].source", mount.source
