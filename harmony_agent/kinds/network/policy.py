"""Network: what this device's podman can't do. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_agent.core.frozen import frozen
from harmony_agent.core.refusal import Refusal
from scores.manifest import FieldError
from scores.network import Network


@frozen()
class NetworkPolicy:
    """Rootless podman has no rights in the device's own network."""

    rootless: bool

    def violations(self, spec: Network) -> Iterator[FieldError]:
        """A driver that puts containers into the device's own network."""
        if self.rootless and spec.driver != "bridge":
            why = "rootless podman can't do it; use bridge, or rootful podman"
            yield Refusal("driver", "RootlessUnsupported", why)
