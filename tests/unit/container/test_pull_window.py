"""Images are pulled in their part of the day, by the device's clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.container.pull_window import closed, seconds_open
from scores.container import Container
from scores.manifest import InvalidManifest, validate
from tests.fakes.containers import _image
from tests.unit.container.bench import Bench

HOUR = 3600.0


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 11, 29, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "now", "seconds"),
    [
        ("02:00-05:00", at(1, 59), 0),
        ("02:00-05:00", at(2), 3 * HOUR),
        ("02:00-05:00", at(4, 30), HOUR / 2),
        ("02:00-05:00", at(5), 0),
        ("22:00-06:00", at(21), 0),
        ("22:00-06:00", at(23), 7 * HOUR),
        ("22:00-06:00", at(1), 5 * HOUR),
        ("22:00-06:00", at(6), 0),
        ("00:00-23:59", at(0), 24 * HOUR - 60),
    ],
)
def test_how_long_a_window_is_open(window: str, now: datetime, seconds: float) -> None:
    assert seconds_open(window, now) == seconds


@pytest.mark.parametrize(("now", "delay"), [(at(1, 59), 60.0), (at(1), 600.0), (at(5), 600.0)])
def test_when_it_is_looked_at_again(now: datetime, delay: float) -> None:
    error = closed("02:00-05:00", "x", now)
    assert (error.reason, error.phase, error.delay) == ("PullWindow", "Progressing", delay)
    assert "from 02:00 on" in str(error)


@pytest.mark.parametrize("window", ["2:00-5:00", "24:00-05:00", "02:00-02:00", "02:00", "", "a"])
def test_what_is_no_window_is_refused(window: str) -> None:
    fields = {"kind": "Container", "name": "web", "image": "x", "pull_at": window}
    with pytest.raises(InvalidManifest):
        validate(Container, fields)


def test_never_has_no_window() -> None:
    fields = {"kind": "Container", "name": "web", "image": "x", "pull_at": "02:00-05:00"}
    with pytest.raises(InvalidManifest) as caught:
        validate(Container, {**fields, "pull": "never"})
    assert [error.code for error in caught.value.errors] == ["FieldConflict"]


async def test_what_runs_goes_on_until_the_window_opens_and_one_that_closes_cuts_the_pull() -> None:
    bench = Bench()
    new = Container(name="web", image="registry.test/web:1", pull_at="20:00-21:00")
    bench.containers.registry[new.image] = _image(new.image)
    made = await bench.made(Container(name="web", image="localhost/busybox"))
    bench.want(new)
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert caught.value.reason == "PullWindow"
    assert bench.done() == []
    bench.containers.now = at(20, 59)
    bench.containers.silence("pull")
    tick = bench.containers._change
    bench.containers._change = lambda *call: _close(bench, tick, *call)  # type: ignore[method-assign]
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert caught.value.reason == "PullWindow"
    assert bench.containers.made[made.id].state == "running"
    assert bench.images.requests[-1].seconds == 60.0
    bench.containers._change = tick  # type: ignore[method-assign]
    bench.containers.now = at(20)
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").payload["image"] == new.image


def _close(bench: Bench, change: object, *call: str) -> None:
    """The window closes while it is pulled."""
    bench.containers.now = at(21)
    assert callable(change)
    change(*call)
