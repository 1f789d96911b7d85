"""A device with the agent on it that keeps containers, its control plane, and a person with podman:
for test_container.

Must not know what any one test wants.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harmony_agent.kinds.container.payload import RESOURCE
from scores import Container, Manifest
from scores.manifest import AnyScore
from tests.device.control import Control
from tests.device.lab import Lab, ServedLan
from tests.device.machine import Device
from tests.device.prepare import BUSYBOX

PI = "pi-01"
CONFIG: Mapping[str, Mapping[str, Any]] = {
    "agent": {"device_id": PI, "kinds": ["File", "Container"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
}
SERVE = ["/bin/httpd", "-f", "-p", "8080", "-h", "/srv"]
SLEEP = ["/bin/sleep", "100000"]


def container(name: str = "web", *command: str, **fields: Any) -> Container:
    """A container of busybox that sleeps, unless it is told otherwise; it dies at once when it is
    stopped.
    """
    base = {
        "name": name,
        "image": BUSYBOX,
        "command": list(command or SLEEP),
        "stop_grace_seconds": 0,
    }
    return Container.model_validate({**base, **fields})


@dataclass
class Site:
    """All that a test needs."""

    device: Device
    control: Control
    lan: ServedLan

    def converge(
        self, *scores: AnyScore, deployment: str = "web", timeout: float = 40
    ) -> dict[str, Any]:
        """Put these and wait until they are Converged; the resources' statuses."""
        status = self.control.converge(PI, Manifest(deployment=deployment, scores=scores), timeout)
        return status.wire()["resources"]  # type: ignore[no-any-return]

    def put(self, *scores: AnyScore, deployment: str = "web") -> None:
        """Put these."""
        self.control.apply(PI, Manifest(deployment=deployment, scores=scores))

    def remove(self, deployment: str = "web") -> None:
        """Take the deployment off."""
        self.control.remove(PI, deployment, timeout=40)

    def until(
        self,
        key: str,
        good: Callable[[dict[str, Any]], bool],
        *,
        deployment: str = "web",
        timeout: float = 30,
    ) -> dict[str, Any]:
        """Wait until a resource's status is good."""

        def so(status: Any) -> bool:
            found = status.wire()["resources"].get(key)
            return found is not None and good(found)

        return self.control.until(PI, deployment, so, timeout).wire()["resources"][key]  # type: ignore[no-any-return]

    def said(self, key: str, phase: str, reason: str, **more: Any) -> dict[str, Any]:
        """Wait until a resource is in this phase for this reason."""
        return self.until(
            key, lambda found: (found["phase"], found["reason"]) == (phase, reason), **more
        )

    def repaired(self, key: str, count: int, **more: Any) -> dict[str, Any]:
        """Wait until drift was repaired that often and the resource is Ready; its drift."""

        def good(found: dict[str, Any]) -> bool:
            return (
                found["phase"] == "Ready"
                and found["drift"] is not None
                and found["drift"]["count"] == count
            )

        return self.until(key, good, **more)["drift"]  # type: ignore[no-any-return]

    def inspect(self, name: str = "web") -> dict[str, Any]:
        """What podman shows of a container."""
        shown: list[dict[str, Any]] = json.loads(
            self.device.podman("container", "inspect", name).stdout
        )
        return shown[0]

    def run_of(self, name: str = "web") -> tuple[str, str]:
        """Its id, and when it was started."""
        shown = self.inspect(name)
        return shown["Id"], shown["State"]["StartedAt"]

    def ours(self) -> list[str]:
        """The names of every container that has a resource's label, in whatever state."""
        ran = self.device.podman("ps", "--all", f"--filter=label={RESOURCE}", "--format={{.Names}}")
        return sorted(ran.stdout.split())

    def settle(self) -> None:
        """Long enough for two relists, with a resync between."""
        self.control.resync(PI)
        time.sleep(2.2)


def make(
    lab: Lab,
    suite: str,
    *,
    durable: bool = False,
    config: Mapping[str, Mapping[str, Any]] = CONFIG,
) -> Site:
    """A device, its network and the agent."""
    lan = lab.lan()
    device = lab.device(suite, lan, durable=durable)
    device.systemctl("enable", "--quiet", "--now", "podman.socket", user=True)
    control = Control(lan.nats.host_url).__enter__()
    device.agent.install(config, service_type="notify")
    return Site(device, control, lan)


def unmake(site: Site) -> None:
    """All of it goes."""
    site.control.__exit__(None, None, None)
    site.device.close()
    site.lan.close()
