"""Backoff, crash loops, drift and contention, probes' thresholds, differences: each as a table or a
property.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core import drift
from harmony_agent.core.backoff import CONTENDED, CRASH, CRASH_RESET, RETRY, Backoff, CrashLoop
from harmony_agent.core.errors import ResourceError, Terminal, Transient
from harmony_agent.core.pleg import events
from harmony_agent.core.probes import ProbeCounter
from harmony_agent.core.resources import Desired, Key
from scores import File, Probe, TcpProbe
from tests.unit.core.make import DIGEST, LATER, NOW, OTHER, record

# -- backoff


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (RETRY, [0.5, 1, 2, 4, 8, 16, 32, 60, 60]),
        (CRASH, [0, 10, 20, 40, 80, 160, 300, 300]),
        (CONTENDED, [10, 20, 40, 80, 160, 300, 300]),
        (Backoff(1, 1), [1, 1]),
    ],
)
def test_delays_double_up_to_the_most(backoff: Backoff, delays: list[float]) -> None:
    assert [backoff.delay(tries) for tries in range(1, len(delays) + 1)] == delays


@given(st.integers(0, 10**9), st.floats(0, 1))
def test_a_delay_has_bounds_and_jitter_only_shortens(tries: int, jitter: float) -> None:
    assert 0 <= RETRY.delay(tries, jitter) <= RETRY.delay(tries) <= 60
    assert RETRY.delay(tries, jitter) >= RETRY.delay(tries) * 0.9 - 1e-9


def test_a_crash_loop_is_paced_and_forgotten() -> None:
    loop, now = CrashLoop(), 1000.0
    waits = []
    for _ in range(8):
        waits.append(loop.wait(now))
        now += loop.wait(now)
        loop.started(now)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert loop.wait(now + 100) == 200
    assert loop.wait(now + CRASH_RESET - 1) == 0
    assert loop.starts == 8
    assert loop.wait(now + CRASH_RESET) == 0
    assert loop.starts == 0


def test_the_first_start_soon_after_boot_waits_for_nothing() -> None:
    loop = CrashLoop()
    assert loop.wait(3.0) == 0
    loop.started(3.0)
    assert loop.wait(4.0) == 9


# -- drift


def test_an_episode_begins_goes_on_and_ends() -> None:
    first = drift.seen(None, ("mode",), 0.0, NOW, report=False)
    assert first.wait(0.0) == 0
    first.repaired(0.0)
    again = drift.seen(first, ("content",), 500.0, LATER, report=False)
    again.repaired(500.0)
    assert again is first
    shown = again.shown()
    assert (shown.count, shown.fields, shown.action) == (2, ["content", "mode"], "repaired")
    assert (shown.first_seen, shown.last_seen) == (NOW, LATER)
    assert drift.seen(again, ("mode",), 500.0 + drift.QUIET, LATER, report=False) is again
    new = drift.seen(again, ("owner",), 500.0 + 2 * drift.QUIET + 1, LATER, report=False)
    assert new is not again
    assert (new.shown().count, new.shown().fields) == (0, ["owner"])


def test_drift_that_is_only_reported() -> None:
    episode = drift.seen(None, ("mode",), 0.0, NOW, report=True)
    assert (episode.shown().action, episode.shown().count) == ("reported", 0)
    assert drift.seen(episode, ("mode",), 10.0, LATER, report=True).shown().action == "reported"
    repaired = drift.seen(None, ("mode",), 0.0, NOW, report=False)
    assert drift.seen(repaired, ("mode",), 1.0, NOW, report=True).shown().action == "reported"


def _fight(seconds: float, every: float) -> list[float]:
    """When repairs happen while something undoes each at once, looked at `every` so many
    seconds.
    """
    episode, now, repairs = None, 0.0, []
    while now < seconds:
        episode = drift.seen(episode, ("mode",), now, NOW, report=False)
        wait = episode.wait(now)
        if wait <= 0:
            episode.repaired(now)
            repairs.append(now)
        now += wait if wait > 0 else every
    return repairs


@pytest.mark.parametrize("every", [0.01, 1.0, 10.0])
def test_contention_is_paced_and_stays_so(every: float) -> None:
    """Five free repairs, then 10 s doubling to 300 s, without a burst however long it goes on."""
    repairs = _fight(6000, every)
    gaps = [after - before for before, after in pairwise(repairs)]
    assert gaps[:4] == pytest.approx([every] * 4)
    assert gaps[4:10] == pytest.approx([10, 20, 40, 80, 160, 300], rel=0.15)
    assert gaps[10:] == pytest.approx([300] * len(gaps[10:]))
    assert len(gaps) > 20


def test_slow_drift_is_no_contention() -> None:
    repairs = _fight(6000, 200.0)
    assert len(repairs) == 30


def test_contention_is_shown_and_over_after_quiet() -> None:
    episode = drift.seen(None, ("mode",), 0.0, NOW, report=False)
    for moment in range(drift.CONTENTION_REPAIRS):
        assert episode.wait(float(moment)) == 0
        episode.repaired(float(moment))
    assert episode.wait(5.0) == 9
    assert episode.shown().action == "contended"
    episode.repaired(14.0)
    assert episode.shown().action == "contended"
    assert episode.wait(14.0) == 20
    assert drift.seen(episode, ("mode",), 15.0, NOW, report=False).wait(15.0) == 19
    assert (
        drift.seen(episode, ("mode",), 15.0 + drift.QUIET + 1, NOW, report=False).wait(700.0) == 0
    )


# -- probes

PROBE = Probe(tcp=TcpProbe(port=1), success_threshold=2, failure_threshold=3)


@pytest.mark.parametrize(
    ("good", "results", "states"),
    [
        (False, "ss", "fT"),
        (False, "sfss", "ffft"),
        (True, "fff", "ttF"),
        (True, "ffsfff", "tttttf"),
        (True, "ssss", "tttt"),
        (True, "fffss", "ttfft"),
    ],
)
def test_thresholds(good: bool, results: str, states: str) -> None:
    tally = ProbeCounter(PROBE, good)
    found = []
    for result in results:
        before = tally.good
        flipped = tally.count("" if result == "s" else "refused")
        assert flipped == (before != tally.good)
        assert tally.why == ("" if result == "s" else "refused")
        found.append("t" if tally.good else "f")
    assert "".join(found) == states.lower()


@given(st.lists(st.booleans()), st.integers(1, 4), st.integers(1, 4))
def test_a_probe_flips_only_on_a_row(results: list[bool], successes: int, failures: int) -> None:
    probe = Probe(tcp=TcpProbe(port=1), success_threshold=successes, failure_threshold=failures)
    tally = ProbeCounter(probe, good=False)
    for index, result in enumerate(results):
        if tally.count("" if result else "x"):
            need = successes if tally.good else failures
            assert results[index + 1 - need : index + 1] == [tally.good] * need


# -- differences

STATES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2))


@given(STATES, STATES)
def test_events_are_what_differs(old: dict[str, int], new: dict[str, int]) -> None:
    assert events(old, new) == {name for name in "abcd" if old.get(name) != new.get(name)}
    assert events(new, new) == set()


# -- small types


def test_errors_say_what_and_when() -> None:
    error = Transient("NoSpace", "cannot write", delay=5.0, phase="Blocked")
    assert (error.reason, str(error), error.delay, error.phase) == (
        "NoSpace",
        "cannot write",
        5.0,
        "Blocked",
    )
    assert (Transient("A", "b").delay, Transient("A", "b").phase) == (None, "Degraded")
    assert isinstance(Terminal("A", "b"), ResourceError)
    assert not isinstance(Terminal("A", "b"), Transient)


@pytest.mark.parametrize("text", ["File/motd", "SystemdUnit/x@a\\x2db.service", "Container/a:b"])
def test_keys_are_read_back(text: str) -> None:
    assert str(Key.parse(text)) == text
    assert Key.parse(text).kind == text.partition("/")[0]


def test_versions_differ_by_what_restarts_and_what_reloads() -> None:
    spec = File(name="a", path="/a", content="")
    versions = {
        Desired(spec, digest, 1, "web", restart, reload).version
        for digest in (DIGEST, OTHER)
        for restart in ("", "t")
        for reload in ("", "t")
    }
    assert len(versions) == 8
    assert Desired(spec, DIGEST, 1, "web").version == DIGEST
    assert Desired(spec, DIGEST, 9, "db").version == DIGEST


def test_a_record_knows_its_key() -> None:
    assert record("a").key == Key("File", "a")


def test_what_is_being_taken_off_was_reached_and_is_not_applied() -> None:
    old = record("a", applied=DIGEST)
    undoing = old.undoing()
    assert (undoing.applied != DIGEST, undoing.reached) == (True, DIGEST)
    assert undoing.undoing() is undoing
    assert record("a").undoing().applied == ""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ({}, {}, set()),
        ({"a": 1}, {"a": 1}, set()),
        ({"a": 1, "b": 1}, {"b": 2, "c": 1}, {"a", "b", "c"}),
    ],
)
def test_events_name_what_came_went_or_changed(
    old: dict[str, int], new: dict[str, int], names: set[str]
) -> None:
    assert events(old, new) == names
