"""When a status is written, how one key is written by compare-and-set, and how large a status may
become.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from harmony_agent.core.status import MAX_BYTES, Texts, bounded, encode
from harmony_agent.engine.report.owned_key import MAX_CONFLICTS, OwnedKey
from harmony_agent.engine.report.status import (
    MIN_INTERVAL,
    PATIENCE,
    SETTLE,
    _Pace,
)
from harmony_agent.topology.control_plane import BucketMissing, Conflict, ControlPlane, Unreachable
from scores.status import DeploymentStatus, FileDetail, ResourceStatus
from tests.fakes.control import FakeBuckets
from tests.strategies import LINEAGE

NOW = "2026-11-29T17:00:00.000Z"
DIGEST = "sha256:" + "0" * 64

# -- pace


class Written:
    """A pace and what was written by it."""

    def __init__(self, pace: _Pace | None = None) -> None:
        self.pace = pace or _Pace()

    def wait(self, about: Any, now: float, *, outcome: bool) -> float:
        """The wait; where there is none, it is written."""
        wait = self.pace.wait((about,), now, outcome=outcome)
        if wait <= 0:
            self.pace.at, self.pace.told = now, self.pace.told or outcome
        return wait


def test_an_outcome_is_said_at_once() -> None:
    written = Written()
    assert written.wait(1, 100, outcome=True) <= 0
    assert written.wait(2, 100.01, outcome=True) <= 0
    assert written.wait(3, 100.02, outcome=True) <= 0


def test_progress_is_said_a_little_later() -> None:
    written = Written()
    assert written.wait(1, 100, outcome=False) == pytest.approx(SETTLE)
    assert written.wait(1, 100.05, outcome=False) == pytest.approx(SETTLE - 0.05)
    assert written.wait(1, 100 + SETTLE, outcome=False) <= 0


def test_an_outcome_that_comes_quickly_makes_progress_needless() -> None:
    written = Written()
    assert written.wait(1, 100, outcome=False) > 0
    assert written.wait(1, 100.02, outcome=True) <= 0


def test_what_changes_within_a_generation_is_said_once_a_second() -> None:
    written, writes = Written(), []
    now = 100.0
    while now < 110:
        if written.wait(1, now, outcome=True) <= 0:
            writes.append(now)
        now += 0.01
    assert len(writes) in (10, 11)
    assert all(after - before >= MIN_INTERVAL for before, after in pairwise(writes))


def test_flapping_of_progress_and_outcome_is_bounded_too() -> None:
    written, writes, now = Written(), 0, 100.0
    for step in range(1000):
        writes += written.wait(1, now, outcome=bool(step % 2)) <= 0
        now += 0.01
    assert writes <= 12


def test_a_new_generation_waits_for_nothing_that_was_before() -> None:
    written = Written()
    written.wait(1, 100, outcome=True)
    assert written.wait(2, 100.5, outcome=True) <= 0
    assert written.wait(3, 100.6, outcome=False) == pytest.approx(SETTLE)


def test_after_a_restart_progress_is_said_late_and_news_as_ever() -> None:
    written = Written(_Pace(settle=PATIENCE))
    assert written.wait(1, 100, outcome=False) == pytest.approx(PATIENCE)
    assert written.wait(1, 101, outcome=True) <= 0
    again = Written(_Pace(settle=PATIENCE))
    again.wait(1, 100, outcome=False)
    assert again.wait(2, 101, outcome=False) == pytest.approx(SETTLE)


# -- one key


def key(buckets: FakeBuckets) -> OwnedKey:
    return OwnedKey(cast(ControlPlane, buckets), "b", "k")


def there(buckets: FakeBuckets) -> bytes | None:
    entry = buckets.entries["b"].get("k")
    return entry.data if entry else None


async def test_a_value_is_written_only_when_it_differs() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)
    assert await value.write(b"1")
    assert not await value.write(b"1")
    assert await value.write(b"2")
    assert there(buckets) == b"2"
    assert buckets.calls == ["get", "put", "put"]


async def test_what_stands_there_already_is_not_written() -> None:
    buckets = FakeBuckets("b")
    buckets.set("b", "k", b"1")
    assert not await key(buckets).write(b"1")
    assert buckets.calls == ["get"]


async def test_a_deleted_key_is_written_anew() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)
    await value.write(b"1")
    buckets.set("b", "k", None)
    value.invalidate()
    assert await value.read() is None
    assert await value.write(b"1")
    assert there(buckets) == b"1"


async def test_doubt_reads_again_and_writes_into_another_bucket() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)
    await value.write(b"1")
    buckets.recreate("b")
    assert not await value.write(b"1")  # nobody said that it is another bucket
    value.invalidate()
    assert await value.write(b"1")
    assert there(buckets) == b"1"


async def test_somebody_elses_write_is_overwritten_and_counted() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)
    await value.write(b"1")
    buckets.set("b", "k", b"theirs")
    assert await value.write(b"2")
    assert there(buckets) == b"2"
    assert value.foreign == 1


async def test_whoever_keeps_writing_wins_for_now() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)

    def intrude(call: str) -> None:
        if call == "put":
            buckets.set("b", "k", b"theirs %d" % len(buckets.calls))

    buckets.fail = intrude
    with pytest.raises(Conflict):
        await value.write(b"mine")
    assert buckets.calls.count("put") == MAX_CONFLICTS
    buckets.fail = lambda _call: None
    assert await value.write(b"mine")
    assert value.foreign >= MAX_CONFLICTS - 1


async def test_a_write_whose_answer_was_lost_is_not_written_twice() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)
    buckets.lost_answers = 1
    with pytest.raises(Unreachable):
        await value.write(b"1")
    assert not await value.write(b"1")
    assert buckets.calls.count("put") == 1
    assert value.foreign == 0


async def test_after_a_lost_answer_the_next_value_goes_over_it() -> None:
    buckets = FakeBuckets("b")
    value = key(buckets)
    await value.write(b"0")
    buckets.lost_answers = 1
    with pytest.raises(Unreachable):
        await value.write(b"1")
    assert await value.write(b"2")
    assert there(buckets) == b"2"
    assert value.foreign == 0


async def test_a_missing_bucket_is_said_and_written_to_when_it_is_there() -> None:
    buckets = FakeBuckets()
    value = key(buckets)
    with pytest.raises(BucketMissing):
        await value.write(b"1")
    buckets.recreate("b")
    assert await value.write(b"1")


# -- how large


def status(count: int, letter: str) -> DeploymentStatus:
    one = ResourceStatus(
        phase="Degraded",
        reason="NoSpace",
        message=letter * 512,
        generation=1,
        since=NOW,
        spec_digest=DIGEST,
        status=FileDetail(state="PresentAt", digest=DIGEST, owner="o" * 300),
    )
    return DeploymentStatus(
        device="d",
        deployment="w",
        lineage=LINEAGE,
        generation=1,
        digest=DIGEST,
        phase="Degraded",
        message="m" * 512,
        resources={f"File/{index:0250}": one for index in range(count)},
    )


def test_a_usual_status_is_written_whole() -> None:
    assert bounded(status(10, "m"), {}) == status(10, "m").canonical()


def test_what_did_not_change_is_not_encoded_again_and_the_bytes_are_the_same() -> None:
    """Whatever stands in the texts, what is new, what is another and what is gone."""
    known: Texts = {}
    first = status(12, '"resources":{}')
    assert encode(first, known) == first.canonical()
    texts = dict(known)
    assert encode(first, known) == first.canonical()
    assert all(known[key] is text or known[key] == text for key, text in texts.items())
    less = first.model_copy(update={"resources": dict(list(first.resources.items())[3:])})
    assert encode(less, known) == less.canonical()
    assert known.keys() == less.resources.keys()
    other = first.model_copy(
        update={"resources": {**first.resources, **status(5, "other").resources}}
    )
    assert encode(other, known) == other.canonical()
    none = first.model_copy(update={"resources": {}, "message": 'a "resources":{} b'})
    assert encode(none, known) == none.canonical()
    assert known == {}


def test_a_status_that_is_too_large_keeps_phases_and_reasons() -> None:
    data = bounded(status(1000, "\U0001f600"), {})
    assert len(data) <= MAX_BYTES
    read = DeploymentStatus.model_validate_json(data)
    assert len(read.resources) == 1000
    assert {(one.phase, one.reason) for one in read.resources.values()} == {("Degraded", "NoSpace")}
