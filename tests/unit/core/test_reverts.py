"""How long a generation is tried: counted by the boot's own clock alone, over any starts and boots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core.changes import Moment
from harmony_agent.core.manifests import StoredManifest
from harmony_agent.core.reverts import BOOT_SECONDS, GRACE_SECONDS, Fallback, Trial, judge, trial
from scores.status import DeploymentPhase
from tests.strategies import LINEAGE
from tests.unit.core.make import DIGEST, OTHER

MICRO = 1_000_000
WALL = st.integers(-(10**17), 10**17)


def stored(generation: int, digest: str = DIGEST, lineage: str = LINEAGE) -> StoredManifest:
    return StoredManifest("web", lineage, generation, digest, b"{}", {})


def at(seconds: float, boot: str = "1", wall: int = 0) -> Moment:
    return Moment(boot, int(seconds * MICRO), wall)


def begun(seconds: float = 300) -> Trial:
    return trial(stored(2), seconds, at(100))


@given(st.floats(0, 299), WALL)
def test_the_wall_clock_counts_for_nothing(passed: float, wall: int) -> None:
    assert begun().after(at(100 + passed, wall=wall)) == pytest.approx(300 - passed, abs=1e-5)
    again = begun().started(at(5, "2", wall))
    assert again.after(at(5, "2", -wall)) == 300 - BOOT_SECONDS


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 50)), max_size=60))
def test_it_ends_whatever_is_started(starts: list[tuple[bool, float]]) -> None:
    """It is never longer than what it is tried for and one grace, and each boot takes a share."""
    tried, now, boot, on, boots = begun(), 100.0, 1, 0.0, 0
    for booted, seconds in starts:
        now += seconds
        on += seconds
        tried = tried.noted(at(now, str(boot)))
        if booted:
            boot, now, boots = boot + 1, 0.0, boots + 1
        tried = tried.started(at(now, str(boot)))
        left = tried.after(at(now, str(boot)))
        assert (
            left <= 300 - on - boots * BOOT_SECONDS + (GRACE_SECONDS * 2 if tried.graced else 0) + 1
        )
        assert tried.graced or left >= GRACE_SECONDS


def test_another_boot_takes_its_share() -> None:
    assert begun().started(at(5, "2")).after(at(5, "2")) == 300 - BOOT_SECONDS


def test_an_agent_that_starts_late_gets_a_moment_once() -> None:
    late = begun().started(at(390))
    assert (late.after(at(390)), late.graced) == (GRACE_SECONDS, True)
    assert late.started(at(440)).after(at(440)) == 10
    assert begun(20).started(at(115)).after(at(115)) == 20


def test_a_clock_of_the_boot_that_went_back_gives_no_more_time() -> None:
    assert begun().after(at(50)) == 300


def test_time_that_stands_does_not_count() -> None:
    assert begun().noted(at(350), stands=True).after(at(350)) == 300
    assert begun().noted(at(350)).after(at(350)) == 50


@pytest.mark.parametrize(
    ("seconds", "phase", "verdict"),
    [
        (399, "Degraded", "later"),
        (399, "Converged", "later"),
        (400, "Converged", "passed"),
        (400, "Progressing", "failed"),
        (400, "Degraded", "failed"),
        (400, "Failed", "failed"),
    ],
)
def test_it_is_judged_at_its_end(seconds: int, phase: DeploymentPhase, verdict: str) -> None:
    assert judge(begun(), phase, at(seconds)) == verdict


def test_what_is_remembered() -> None:
    one, two, three = stored(1), stored(2, OTHER), stored(3)
    none = Fallback("web")
    assert none.accepting(None, one, 60, at(0)) == none
    tried = none.accepting(one, two, 60, at(0))
    assert (tried.good, tried.tried(two), tried.tried(one)) == (one, tried.trial, None)
    assert tried.passed(two) == Fallback("web", good=two)
    failed = tried.failed(two, one, "Degraded NotReady")
    assert failed.tried(two) is None
    assert failed.back_from(two) == one
    assert failed.back_from(stored(2)) is None
    assert failed.refuses(one) == failed.refused
    assert failed.refuses(two) is None
    assert failed.refuses(three) is None
    assert "generation 2 wasn't Converged" in failed.refused.message  # type: ignore[union-attr]
    again = failed.accepting(None, three, 60, at(0))
    assert (again.good, again.refuses(one), again.back_from(three)) == (one, failed.refused, None)
    assert failed.accepting(None, three, 0, at(0)).trial is None


def test_another_authority_s_is_nothing_to_go_back_to() -> None:
    other = stored(5, lineage="00000000-0000-4000-8000-000000000000")
    assert Fallback("web", good=stored(1)).accepting(None, other, 60, at(0)) == Fallback("web")
