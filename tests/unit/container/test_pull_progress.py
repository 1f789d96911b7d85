"""How far a pull is: read from podman's lines, and told once a second at most."""

from __future__ import annotations

import json

from harmony_agent.adapters.podman.progress import Layers, error_of
from harmony_agent.topology.images import PullProgress
from scores.container import Container
from scores.status import ContainerDetail
from tests.fakes.containers import _image
from tests.unit.container.bench import Bench

MB = 1_000_000


def line(status: str, ident: str = "a", current: int = 0, total: int = 0) -> bytes:
    detail = {"current": current, "total": total} if total else {}
    return json.dumps({"status": status, "progressDetail": detail, "id": ident}).encode()


def test_layers_are_counted() -> None:
    layers = Layers()
    for one in (
        line("Already exists", "a"),
        line("Pulling fs layer", "b"),
        line("Pulling fs layer", "c"),
        line("Downloading", "b", 10, 40),
        line("Downloading", "c", 5, 5),
        line("Download complete", "c"),
    ):
        assert layers.add(one)
    assert layers.progress() == PullProgress(3, 2, 15, 45)


def test_what_is_no_layer_is_passed_over() -> None:
    layers = Layers()
    for odd in (b"", b"[]", b"{", b'{"stream":"Trying"}', b'{"status":"Downloading"}', b'{"id":1}'):
        assert not layers.add(odd)
        assert error_of(odd) is None
    assert layers.add(b'{"status":"Downloading","id":"a","progressDetail":{"current":"x"}}')
    assert layers.progress() == PullProgress(1, 0, 0, 0)
    assert error_of(b'{"error":"no"}') == "no"


async def pulling(*steps: PullProgress) -> Bench:
    bench = Bench()
    bench.images.steps = list(steps)
    bench.containers.registry["registry.test/web:1"] = _image("registry.test/web:1")
    bench.want(Container(name="web", image="registry.test/web:1"))
    await bench.settle()
    return bench


async def test_the_status_tells_layers_bytes_and_a_rate() -> None:
    bench = await pulling(
        PullProgress(2, 0, 0, 0),
        PullProgress(2, 0, 10 * MB, 200 * MB),
        PullProgress(2, 1, 30 * MB, 200 * MB),
    )
    assert [(one.phase, one.reason) for one in bench.store.told] == [("Progressing", "Pulling")] * 2
    last = bench.store.told[-1]
    assert last.message == (
        "pulling registry.test/web:1: 1 of 2 layers, 30.0 of 200.0 MB, 20.0 MB/s"
    )
    assert isinstance(last.detail, ContainerDetail)
    assert last.detail.pull is not None
    assert (last.detail.pull.bytes, last.detail.pull.bytes_per_second) == (30 * MB, 20 * MB)


async def test_once_a_second_at_most() -> None:
    bench = Bench()
    bench.containers._tick = lambda: None  # type: ignore[method-assign]
    bench.images.steps = [PullProgress(1, 0, number, 100) for number in range(1, 50)]
    bench.containers.registry["registry.test/web:1"] = _image("registry.test/web:1")
    bench.want(Container(name="web", image="registry.test/web:1"))
    await bench.once()
    assert len(bench.store.told) == 1


def test_a_status_without_a_pull_is_as_it_was() -> None:
    assert "pull" not in ContainerDetail(state="Running").wire()
