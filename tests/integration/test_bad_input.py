"""Bad input in the desired state of a live agent: a code with field paths, the old generation
enforced, nothing leaked.

What each input is refused with is tabled in the models' own tests; here it arrives over NATS.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scores.keys import ACTUAL, DESIRED
from scores.manifest import MAX_MANIFEST
from scores.signatures import content_digest
from scores.status import DeploymentStatus
from tests.integration.agent import (
    SECRET,
    Agent,
    Plane,
    converged,
    enforces,
    eventually,
    live,
    manifest,
    rejected,
    said,
)
from tests.natsserver import NatsServer
from tests.unit.scores.test_bad_input import BYTES, FIELDS

Pair = tuple[Agent, Plane]


@asynccontextmanager
async def fed(tmp_path: Path) -> AsyncIterator[Pair]:
    """A live agent that enforces generation 3, on a server that carries more than a manifest may
    have.
    """
    with NatsServer(tmp_path / "nats", config="max_payload: 8MB") as server:
        async with live(server, tmp_path / "state") as (agent, plane):
            await plane.put(manifest(3, SECRET, "b"))
            await plane.until(converged(3))
            yield agent, plane


def told(agent: Agent) -> DeploymentStatus:
    status = agent.engine.publisher.status("web")
    assert status is not None
    return status


async def judged(agent: Agent, revision: int) -> None:
    """Wait until what was written as `revision` was read, and what follows from it is done."""
    await eventually(lambda: agent.engine.intake.revision == revision, "it was not read")
    async with agent.engine.intake._lock:
        pass


async def refused(agent: Agent, plane: Plane, data: Any) -> DeploymentStatus:
    """What the agent says once it has read `data`."""
    revision = await plane.put(data)
    await judged(agent, revision)
    status = told(agent)
    assert status.generation == 3
    return status


def silent(records: list[logging.LogRecord]) -> bool:
    return not any(SECRET in f"{record.getMessage()} {record.exc_text}" for record in records)


async def test_bytes_that_are_no_manifest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "harmony_agent")
    async with fed(tmp_path) as (agent, plane):
        for name, (data, code) in BYTES.items():
            status = await refused(
                agent, plane, data + SECRET.encode() if code == "NotJson" else data
            )
            assert (status.phase, status.reason) == ("Rejected", code), name
            assert status.rejected is not None, name
        await agent.repairs()
        await plane.put(b"\xff" + SECRET.encode())
        enforces(3, await plane.until(said("Rejected", "NotUtf8")))
        await plane.put(manifest(4, "good"))
        await plane.until(converged(4))
    assert silent(caplog.records)


async def test_fields_that_are_wrong(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "harmony_agent")
    async with fed(tmp_path) as (agent, plane):
        for name, (value, field, code) in FIELDS.items():
            status = await refused(agent, plane, json.dumps(value).encode())
            assert status.phase == "Rejected", name
            assert status.rejected is not None, name
            first = status.rejected.errors[0]
            assert (first.field, first.code) == (field, code), name
        await agent.repairs()
        await plane.put(manifest(4, "good"))
        await plane.until(converged(4))
    assert silent(caplog.records)


PATHS = {
    "up": "/srv/web/../../etc/shadow",
    "up at the end": "/srv/web/..",
    "here": "/srv/./web",
    "twice a slash": "/srv//web",
    "a slash at the end": "/srv/web/",
    "relative": "srv/web",
    "empty": "",
    "root": "/",
    "NUL": "/srv/a\0b",
    "half a surrogate": "/srv/\ud800",
    "a long part": "/srv/" + "a" * 256,
    "a long path": "/srv" + "/a" * 3000,
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_paths(pair: Pair, path: str) -> None:
    agent, plane = pair
    await plane.put(
        {**manifest(4), "scores": [{"kind": "File", "name": "f0", "path": path, "content": SECRET}]}
    )
    status = await plane.until(lambda status: status["phase"] == "Rejected")
    enforces(3, status)
    assert [field for field, _code in rejected(status)[2]] == ["scores[0].path"]
    await agent.repairs()


# -- sizes


def padded(generation: int, size: int) -> bytes:
    """A valid manifest of exactly `size` bytes."""
    value = manifest(generation, *["x" * 300_000] * 3, "")
    value["scores"][-1]["content"] = "y" * (size - len(json.dumps(value, separators=(",", ":"))))
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    assert len(data) == size
    return data


async def test_sizes(tmp_path: Path) -> None:
    async with fed(tmp_path) as (agent, plane):
        await plane.put(padded(4, MAX_MANIFEST))
        await plane.until(converged(4), seconds=30)
        for size in (MAX_MANIFEST + 1, 8_000_000):
            await plane.put(padded(5, MAX_MANIFEST) + b" " * (size - MAX_MANIFEST))
            status = await plane.until(said("Rejected", "TooLarge"))
            assert (status["generation"], rejected(status)) == (
                4,
                (None, "TooLarge", [("", "TooLarge")]),
            )
            assert len(json.dumps(status)) < 5000
            await plane.put(padded(4, MAX_MANIFEST))
            await plane.until(converged(4))
        await agent.repairs()


async def test_a_thousand_resources_and_one_more(tmp_path: Path) -> None:
    async with fed(tmp_path) as (agent, plane):
        await plane.put(manifest(4, *["x"] * 1001))
        status = await plane.until(said("Rejected", "TooMany"))
        assert rejected(status) == (4, "TooMany", [("scores", "TooMany")])
        await plane.put(manifest(5, *["x"] * 1000))
        await plane.until(converged(5), seconds=60)
        assert len(agent.disk) == 1000
        await plane.put(
            {
                **manifest(6),
                "scores": [
                    {**score, "mode": 420} for score in manifest(6, *["x"] * 1000)["scores"]
                ],
            }
        )
        status = await plane.until(lambda status: status["phase"] == "Rejected")
        assert len(status["rejected"]["errors"]) == 20
        await agent.repairs("/srv/web/f999")


# -- keys

ODD = (
    "pi-01.Web",
    "pi-01.a_b",
    "pi-01.-a",
    "pi-01.a-",
    "pi-01." + "a" * 64,
    "pi-01.=",
    "pi-01.a.b",
    "pi-01",
    "pi-02.web",
)


async def test_keys_that_are_no_deployment_of_this_device(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    agent, plane = pair
    for _ in range(2):
        for key in ODD:
            await plane.js.publish(f"$KV.{DESIRED}.{key}", b"rubbish")
            await plane.js.publish(f"$KV.{DESIRED}.{key}", json.dumps(manifest(9, "x")).encode())
    await plane.put(manifest(4, "good", "b"))
    await plane.until(converged(4))
    assert await plane.writes(ACTUAL) == 2
    said_of = [
        record.getMessage() for record in caplog.records if "ignores a key" in record.getMessage()
    ]
    assert len(said_of) == len(
        [key for key in ODD if key.startswith("pi-01.") and key.count(".") == 1]
    )
    agent.engine.resync()
    await plane.put(manifest(5, "good", "b"))
    await plane.until(converged(5))


# -- whatever may come


class Bench:
    """A live agent in a loop that runs for one example after the other."""

    def __init__(self, folder: Path) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.agent, self.plane = self.run(self._stack.enter_async_context(fed(folder)))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    async def feed(self, data: bytes) -> DeploymentStatus:
        revision = await self.plane.put(data)
        await judged(self.agent, revision)
        return told(self.agent)

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._runner.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    yield bench
    bench.close()


TEXT = st.text(st.characters(), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
GOOD = manifest(10**6, SECRET, "b", "c")
SIGNED = {**GOOD, "signatures": [{"key": "0123456789abcdef", "signature": "A" * 86 + "=="}]}


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [here, *(place for key, one in inner for place in places(one, (*here, key)))]


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


MUTATED = st.builds(
    lambda place, new: json.dumps(replaced(GOOD, place, new)).encode(),
    st.sampled_from(places(GOOD)),
    JSON,
)
FORGED = st.builds(
    lambda place, new: json.dumps(replaced(SIGNED, ("signatures", *place), new)).encode(),
    st.sampled_from(places(SIGNED["signatures"])),
    JSON,
)
CUT = st.builds(
    lambda length: json.dumps(GOOD).encode()[:length], st.integers(0, len(json.dumps(GOOD)) - 1)
)
QUICK = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def identity(data: bytes) -> str:
    """The digest of the generation that these bytes would be; "" of what is no manifest."""
    try:
        value = json.loads(data)
        return content_digest(value) if isinstance(value, dict) else ""
    except (ValueError, RecursionError):
        return ""


@QUICK
@given(
    data=st.binary(max_size=200)
    | CUT
    | MUTATED
    | FORGED
    | JSON.map(lambda value: json.dumps(value).encode())
)
def test_whatever_arrives(bench: Bench, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "harmony_agent")
    before = told(bench.agent)
    status = bench.run(bench.feed(data))
    assert status.generation is not None
    assert before.generation is not None
    assert status.generation >= before.generation
    if status.digest != identity(data):  # not accepted: what was enforced still is
        assert status.digest == before.digest
        assert status.phase in ("Rejected", "Held", "Fenced")
        assert status.rejected is not None
    wire = status.canonical().decode()  # there is a UTF-8 form
    assert SECRET not in wire
    assert silent(caplog.records)


def test_alive_after_all_that(bench: Bench) -> None:
    async def work() -> None:
        generation = (told(bench.agent).generation or 0) + 1
        await bench.plane.put(manifest(generation, "last", allow_prune=1000))
        await bench.plane.until(converged(generation))
        await bench.agent.repairs()

    bench.run(work())
