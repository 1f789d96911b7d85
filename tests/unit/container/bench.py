"""What the tests of the Container kind share: a kind over fakes, and passes over it as the engine
makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harmony_agent.adapters.timezones import SystemTimezones
from harmony_agent.core.actions import Converged, Plan, Wait
from harmony_agent.kinds.container import ContainerReconciler, ImageBounds, ImagePuller
from harmony_agent.topology.secret_files import NO_SECRET_FILES, SecretFiles
from scores.container import Container
from tests.fakes.containers import FakeContainers, FakeDeviceNodes, FakeEnvFiles, Made
from tests.fakes.drive import Pass, run
from tests.fakes.images import FakeImageMemory, FakeImages
from tests.fakes.secrets import FakeSecrets
from tests.fakes.store import FakeStore

IMAGE = "localhost/busybox"
DEVICE = "pi-01"


class Bench:
    """A device with a fake engine, and an agent that can be restarted, or rebooted with its
    device.
    """

    def __init__(self) -> None:
        self.containers = FakeContainers()
        self.env_files = FakeEnvFiles()
        self.nodes = FakeDeviceNodes()
        self.store = FakeStore("Container")
        self.images, self.memory = FakeImages(self.containers), FakeImageMemory()
        self.bounds = ImageBounds()
        self.boot = 1
        self.secrets = FakeSecrets()
        self.secret_files: SecretFiles = NO_SECRET_FILES
        self.restart_agent()

    def restart_agent(self) -> None:
        """What was only in the agent's memory is gone."""
        self.kind = ContainerReconciler(
            self.containers,
            self.env_files,
            self.nodes,
            SystemTimezones(),
            self.store,
            secrets=self.secrets,
            secret_files=self.secret_files,
            device=DEVICE,
            boot_id=f"boot-{self.boot}",
            env_roots=["/srv"],
            now=lambda: self.containers.now,
            puller=ImagePuller(
                self.containers,
                self.images,
                self.memory,
                self.store,
                now=lambda: self.containers.now,
                local=lambda: self.containers.now,
                bounds=self.bounds,
                secrets=self.secrets,
            ),
        )

    def reboot(self, *, power_cut: bool = False) -> None:
        """The device goes down and comes up again."""
        if power_cut:
            self.containers.power_cut()
        else:
            self.containers.reboot()
        self.boot += 1
        self.restart_agent()

    def want(self, spec: Container, *, restart_token: str = "") -> None:
        held = tuple(map(self.secrets.state, spec.secret_names()))
        self.store.set_desired(spec, restart_token=restart_token, secrets=held)

    async def once(
        self, name: str = "web", before: Callable[[Any], None] = lambda _action: None
    ) -> Pass:
        return await run(self.kind, self.store, name, before)

    async def settle(self, name: str = "web") -> Plan[Any]:
        """Passes until nothing is to be done."""
        for _ in range(5):
            result = await self.once(name)
            if isinstance(result.plan, Converged | Wait):
                return result.plan
        raise AssertionError(f"{name} does not settle: {result}")

    async def made(self, spec: Container, *, restart_token: str = "") -> Made:
        """Want it, settle it, and forget what was called until then."""
        self.want(spec, restart_token=restart_token)
        plan = await self.settle(spec.name)
        assert isinstance(plan, Converged), plan
        self.containers.calls.clear()
        self.store.noted.clear()
        return self.containers.get(spec.name)

    def facts(self, name: str = "web") -> dict[str, Any]:
        record = self.store.record(name)
        return dict(record.facts) if record else {}

    def done(self) -> list[str]:
        """The changes that were asked of the engine, in order, as ``start web``."""
        return [" ".join(call[:2]) for call in self.containers.calls]


def web(**fields: Any) -> Container:
    return Container(name="web", image=IMAGE, **fields)
