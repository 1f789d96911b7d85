"""Which images the agent removes: what it pulled and nothing wants, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from harmony_agent.core.resources import OwnershipRecord
from harmony_agent.kinds.container import ImageBounds
from harmony_agent.kinds.container.pulled import is_name_of, sorted_out
from harmony_agent.topology.images import OwnImage, PulledImages
from scores.container import Container
from tests.fakes.containers import _image
from tests.unit.container.bench import IMAGE, Bench

DIGEST = "sha256:" + "a" * 64


def versioned(number: int, **fields: Any) -> Container:
    return Container(name="web", image=f"registry.test/web:{number}", **fields)


class Versions(Bench):
    """A device that gets one version after the other, with nothing kept for long."""

    def __init__(self, keep_seconds: float = 0.0, min_free: int = 0) -> None:
        super().__init__()
        self.bounds = ImageBounds(min_free, keep_seconds)
        self.restart_agent()
        for number in range(30):
            name = f"registry.test/web:{number}"
            self.containers.registry[name] = _image(name)

    async def run(self, spec: Container) -> None:
        """It runs, and is ready."""
        self.want(spec)
        assert isinstance(await self.settle(), Converged)

    async def tidy(self) -> None:
        assert await self.kind.tidy()

    @property
    def pulled(self) -> list[str]:
        """What is there but the device's own image."""
        return sorted(name.rpartition(":")[2] for name in self.containers.images if name != IMAGE)


async def test_the_store_is_bounded_over_many_versions() -> None:
    bench = Versions()
    for number in range(1, 21):
        await bench.run(versioned(number))
        await bench.tidy()
        assert bench.pulled == [f"{number}"]


async def test_at_rest_nobody_is_asked_and_nothing_is_written() -> None:
    bench = Versions()
    await bench.run(versioned(1))
    await bench.tidy()
    reads, writes, calls = bench.containers.reads, bench.memory.writes, len(bench.containers.calls)
    for _ in range(3):
        await bench.tidy()
    assert (bench.containers.reads, bench.memory.writes) == (reads, writes)
    assert len(bench.containers.calls) == calls


async def test_what_worked_last_stays_until_its_follower_is_ready() -> None:
    bench = Versions()
    ready = {"readiness": {"exec": ["/bin/true"]}}
    await bench.run(Container.model_validate({**versioned(1).wire(), **ready}))
    record = bench.store.record("web")
    assert record is not None
    bench.store.put(_with_ready(record, "run"))
    await bench.tidy()
    for number in (2, 3):
        await bench.run(Container.model_validate({**versioned(number).wire(), **ready}))
        bench.restart_agent()
        await bench.tidy()
        assert "1" in bench.pulled, "what worked last is gone"
    assert bench.pulled == ["1", "3"], "a version that never worked is kept"
    record = bench.store.record("web")
    assert record is not None
    bench.store.put(_with_ready(record, "run"))
    await bench.tidy()
    assert bench.pulled == ["3"]


def _with_ready(record: OwnershipRecord, ready: str) -> OwnershipRecord:
    return replace(record, ready=ready)


async def test_it_is_kept_for_as_long_as_the_configuration_says() -> None:
    bench = Versions(keep_seconds=1000.0)
    await bench.run(versioned(1))
    await bench.run(versioned(2))
    await bench.tidy()
    began = bench.containers.now
    while (bench.containers.now - began).total_seconds() < 900:
        bench.containers._tick()
    bench.restart_agent()
    await bench.tidy()
    assert bench.pulled == ["1", "2"]
    for _ in range(200):
        bench.containers._tick()
    await bench.tidy()
    assert bench.pulled == ["2"]


async def test_without_room_it_goes_at_once() -> None:
    bench = Versions(keep_seconds=1000.0, min_free=100)
    await bench.run(versioned(1))
    await bench.run(versioned(2))
    bench.images.room = 99
    await bench.tidy()
    assert bench.pulled == ["2"]


async def test_what_a_deployment_may_go_back_to_stays_also_without_room() -> None:
    bench = Versions(min_free=100)
    await bench.run(versioned(1))
    bench.store.fallbacks = [versioned(1)]
    await bench.run(versioned(2))
    bench.images.room = 99
    await bench.tidy()
    assert bench.pulled == ["1", "2"]
    bench.store.fallbacks = []
    await bench.tidy()
    assert bench.pulled == ["2"]


async def test_nothing_is_pulled_without_room_and_what_runs_goes_on() -> None:
    bench = Versions(min_free=100 << 20)
    await bench.run(versioned(1))
    bench.images.room = 99 << 20
    bench.want(versioned(2))
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert (caught.value.reason, caught.value.phase) == ("NoSpace", "Degraded")
    assert "99 MiB are free" in str(caught.value)
    assert "pull registry.test/web:2" not in bench.done()
    assert bench.containers.get("web").state == "running"


@pytest.mark.parametrize("operation", ["pull", "create"])
async def test_a_full_disk_has_its_own_reason(operation: str) -> None:
    bench = Versions()
    await bench.run(versioned(1))
    bench.containers.refuse(operation, "writing blob: write /x/1: no space left on device")
    bench.want(versioned(2))
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert (caught.value.reason, caught.value.phase) == ("NoSpace", "Degraded")
    assert bench.containers.get("web").state == "running"


async def test_what_was_there_before_is_somebody_else_s() -> None:
    bench = Versions()
    bench.containers.images["registry.test/web:1"] = _image("registry.test/web:1")
    bench.containers.images["localhost/same"] = _image("registry.test/web:2")
    await bench.run(versioned(1))
    await bench.run(versioned(2, pull="always"))
    await bench.run(versioned(3))
    await bench.tidy()
    assert bench.pulled == ["1", "2", "3", "localhost/same"]


async def test_another_s_tag_keeps_the_image_for_good() -> None:
    bench = Versions()
    await bench.run(versioned(1))
    bench.containers.images["localhost/mine"] = bench.containers.images["registry.test/web:1"]
    await bench.run(versioned(2))
    await bench.tidy()
    del bench.containers.images["localhost/mine"]
    await bench.tidy()
    assert bench.pulled == ["1", "2"]


async def test_another_s_container_and_another_s_build_keep_the_image() -> None:
    bench = Versions()
    await bench.run(versioned(1))
    await bench.run(versioned(2))
    first = bench.containers.images["registry.test/web:1"]
    other = bench.containers.foreign("theirs")
    other.image = first
    await bench.tidy()
    assert bench.pulled == ["1", "2"]
    await bench.containers.remove(other.id)
    bench.images.parents[bench.containers.images[IMAGE].id] = first.id
    await bench.tidy()
    assert bench.pulled == ["1", "2"]


async def test_an_image_waits_for_one_of_ours_that_has_its_layers() -> None:
    bench = Versions()
    for number in (1, 2, 3):
        await bench.run(versioned(number))
    ident = {number: bench.containers.images[f"registry.test/web:{number}"].id for number in (1, 2)}
    bench.images.parents[ident[2]] = ident[1]
    await bench.tidy()
    assert bench.pulled == ["1", "3"]
    await bench.tidy()
    assert bench.pulled == ["3"]


async def test_a_name_that_moved_leaves_an_image_without_names_and_that_goes() -> None:
    bench = Versions()
    name = "registry.test/web:0"
    await bench.run(versioned(0))
    first = bench.containers.images[name].id
    bench.containers.registry[name] = _image("another")
    await bench.run(versioned(0, pull="always", hostname="h"))
    assert bench.images.untagged == {first}
    await bench.tidy()
    assert bench.images.untagged == set()
    assert bench.pulled == ["0"]


async def test_all_of_it_goes_with_the_deployment() -> None:
    bench = Versions()
    await bench.run(versioned(1))
    bench.store.unset("web")
    await bench.settle()
    bench.store.forget("web")
    await bench.tidy()
    assert bench.pulled == []
    assert bench.memory.read() == PulledImages()


async def test_a_killed_agent_removes_nothing_that_it_did_not_note() -> None:
    bench = Versions()
    bench.want(versioned(1))
    bench.containers.silence("image")
    for _ in range(2):
        try:
            await bench.once()
        except Transient:
            bench.restart_agent()
    await bench.settle()
    await bench.run(versioned(2))
    await bench.tidy()
    assert set(bench.pulled) >= {"2"}


async def test_podman_that_is_gone_is_no_defect() -> None:
    bench = Versions()
    await bench.run(versioned(1))
    await bench.run(versioned(2))
    bench.containers.silence("list_images")
    await bench.tidy()
    assert bench.pulled == ["1", "2"]
    await bench.tidy()
    assert bench.pulled == ["2"]


@pytest.mark.parametrize(
    ("ref", "name", "same"),
    [
        ("registry.test/web:1", "registry.test/web:1", True),
        ("registry.test/web", "registry.test/web:latest", True),
        ("web", "docker.io/library/web:latest", True),
        ("web:1", "docker.io/library/web:1", True),
        ("web:1", "docker.io/library/myweb:1", False),
        ("registry.test:5000/web", "registry.test:5000/web:latest", True),
        (f"registry.test/web@{DIGEST}", f"registry.test/web@{DIGEST}", True),
        (f"registry.test/web:1@{DIGEST}", f"registry.test/web@{DIGEST}", True),
        ("registry.test/web:1", "registry.test/web:2", False),
        ("registry.test/web:1", f"registry.test/web@{DIGEST}", False),
    ],
)
def test_names_that_come_of_a_pull(ref: str, name: str, *, same: bool) -> None:
    assert is_name_of(ref, name) is same


def test_a_clock_that_was_set_back_counts_anew() -> None:
    pulled = PulledImages({"1": OwnImage(frozenset({"a"}), unwanted=500)})
    assert sorted_out(pulled, {}, [], 100).images["1"].unwanted == 100
    assert sorted_out(pulled, {}, [], 900) == pulled
    wanted = sorted_out(pulled, {"web": ["a"]}, [], 900)
    assert wanted.images["1"].unwanted is None
