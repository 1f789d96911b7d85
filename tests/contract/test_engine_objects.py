"""One suite over the fakes and over podman 4.3 and 5.4: what `topology.volumes` and
`topology.networks` promise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from harmony_agent.adapters.podman.networks import PodmanNetworks
from harmony_agent.adapters.podman.volumes import PodmanVolumes
from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.networks import Networks, NetworkSpec
from harmony_agent.topology.volumes import Volumes
from tests.contract.containers_world import RealWorld, socket_of
from tests.device.image import SUITES
from tests.device.lab import Lab, missing
from tests.device.machine import Device
from tests.fakes.engine_objects import FakeNetworks, FakeVolumes

IN_MEMORY = "memory"
LABELS = {"io.harmony.device": "pi-01", "team": "x=y"}


@dataclass
class World:
    """An engine, and what has its volumes and networks there."""

    volumes: Volumes = field(default_factory=FakeVolumes)
    networks: Networks = field(default_factory=FakeNetworks)
    device: Device | None = None

    async def use(self, volume: str, network: str) -> None:
        """A container has both."""
        if self.device is None:
            fakes: Any = (self.volumes, self.networks)
            fakes[0].used.add(volume)
            fakes[1].used.add(network)
            return
        argv = ["create", "--name=user", f"--volume={volume}:/data", f"--network={network}"]
        self.device.podman(*argv, RealWorld.image, "/bin/true")

    async def free(self) -> None:
        """It is gone."""
        if self.device is None:
            fakes: Any = (self.volumes, self.networks)
            for fake in fakes:
                fake.used.clear()
        else:
            self.device.podman("rm", "--force", "--time=0", "user")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if lacks := missing():
        pytest.skip("; ".join(lacks))
    with Lab() as made:
        yield made


@pytest.fixture(
    scope="module",
    params=[IN_MEMORY, *(pytest.param(suite, marks=pytest.mark.device) for suite in SUITES)],
)
def device(request: pytest.FixtureRequest) -> Iterator[Device | None]:
    if request.param == IN_MEMORY:
        yield None
        return
    made = request.getfixturevalue("lab").device(request.param)
    made.systemctl("start", "podman.socket", user=True)
    yield made
    made.close()


@pytest.fixture
async def world(device: Device | None) -> AsyncIterator[World]:
    if device is None:
        yield World()
        return
    path = socket_of(device)
    made = World(PodmanVolumes(path), PodmanNetworks(path), device)
    yield made
    await made.volumes.close()
    await made.networks.close()
    device.podman("rm", "--all", "--force", "--time=0")
    device.podman("volume", "prune", "--force")
    device.podman("network", "prune", "--force")


def network(name: str, **fields: Any) -> NetworkSpec:
    plain = {"driver": "bridge", "subnet": "", "gateway": "", "internal": False, "dns": True}
    return NetworkSpec(name=name, **{**plain, "labels": LABELS, **fields})


async def refusal(call: Any) -> EngineRefused:
    with pytest.raises(EngineRefused) as caught:
        await call
    return caught.value


async def test_version(world: World) -> None:
    versions = [await world.volumes.version(), await world.networks.version()]
    assert all(version.split(".")[0] in ("4", "5") for version in versions)


async def test_the_life_of_a_volume(world: World) -> None:
    await world.volumes.create("data", "local", LABELS)
    await world.volumes.create("data2", "local", {})
    assert (await refusal(world.volumes.create("data", "local", LABELS))).status >= 400
    (made,) = [one for one in await world.volumes.list() if one.name == "data"]
    assert (made.driver, dict(made.labels)) == ("local", LABELS)
    assert made.created is not None
    await world.volumes.remove("data")
    await world.volumes.remove("data")
    assert [one.name for one in await world.volumes.list()] == ["data2"]
    await world.volumes.remove("data2")


async def test_the_life_of_a_network(world: World) -> None:
    inside = {"subnet": "10.77.5.0/24", "gateway": "10.77.5.9", "internal": True}
    await world.networks.create(network("home", **inside))
    await world.networks.create(network("home2", dns=False))
    assert (await refusal(world.networks.create(network("home")))).status >= 400
    (made,) = [one for one in await world.networks.list() if one.name == "home"]
    assert (made.driver, made.internal, dict(made.labels)) == ("bridge", True, LABELS)
    assert made.dns
    assert made.subnets == (("10.77.5.0/24", "10.77.5.9"),)
    (other,) = [one for one in await world.networks.list() if one.name == "home2"]
    assert (other.internal, len(other.subnets), other.dns) == (False, 1, False)
    await world.networks.remove("home")
    await world.networks.remove("home")
    names = [one.name for one in await world.networks.list()]
    assert "home" not in names
    assert "home2" in names
    await world.networks.remove("home2")


async def test_what_a_container_has_is_not_removed(world: World) -> None:
    if world.device is not None:
        world.device.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    await world.volumes.create("data", "local", {})
    await world.networks.create(network("home"))
    await world.use("data", "home")
    for call in (world.volumes.remove("data"), world.networks.remove("home")):
        assert (await refusal(call)).in_use
    await world.free()
    await world.volumes.remove("data")
    await world.networks.remove("home")


async def test_a_driver_that_the_engine_lacks(world: World) -> None:
    refused = await refusal(world.volumes.create("data", "nope", {}))
    assert not refused.in_use
    assert "nope" in refused.words()
