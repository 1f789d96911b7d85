"""SystemUpgrade: asked for once, relayed to its end, never asked again; every answer of the updater
has its place.
"""

from __future__ import annotations

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.kinds.system_upgrade import SystemUpgradeReconciler
from harmony_agent.kinds.system_upgrade.observe import SILENCE
from harmony_agent.kinds.system_upgrade.observed import Observed
from harmony_agent.kinds.system_upgrade.plan import LINGER
from harmony_agent.topology.updater import ENDED
from scores.system_upgrade import SystemUpgrade
from tests.fakes import drive
from tests.fakes.clock import FakeClock
from tests.fakes.store import FakeStore
from tests.fakes.updater import FakeUpdater

ACTIVE = ("preflight", "applying", "rebooting", "verifying")


def spec(attempt: str = "a1", **more: object) -> SystemUpgrade:
    fields = {
        "name": "os",
        "attempt_id": attempt,
        "run_uid": "r1",
        "expires_at": "2026-11-29T18:00:00Z",
        **more,
    }
    return SystemUpgrade.model_validate({"kind": "SystemUpgrade", **fields})


class World:
    def __init__(self) -> None:
        self.updater = FakeUpdater()
        self.store = FakeStore("SystemUpgrade")
        self.clock = FakeClock()
        self.kind = self.restarted()

    def restarted(self) -> SystemUpgradeReconciler:
        """The agent after a restart: the same ledger, another memory."""
        self.kind = SystemUpgradeReconciler(self.updater, self.store, self.clock, "pi-01")
        return self.kind

    async def go(self) -> drive.Pass:
        return await drive.run(self.kind, self.store, "os")


@pytest.fixture
def world() -> World:
    made = World()
    made.store.set_desired(spec())
    return made


async def test_it_is_asked_for_once_with_exactly_what_the_score_says(world: World):
    await world.go()
    for _ in range(3):
        await world.go()
    assert [(a.attempt_id, a.run_uid, a.device_id, a.expires_at) for a in world.updater.asked] == [
        ("a1", "r1", "pi-01", "2026-11-29T18:00:00Z")
    ]


@pytest.mark.parametrize("phase", ACTIVE)
async def test_an_active_attempt_is_progressing_and_polled(world: World, phase: str):
    await world.go()
    world.updater.put("a1", phase, message="step")
    plan = (await world.go()).plan
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason, plan.message) == (
        "Progressing",
        f"Upgrade{phase.capitalize()}",
        "step",
    )


async def test_a_blocked_attempt_names_its_cause(world: World):
    await world.go()
    world.updater.put("a1", "blocked", message="apt is held by pid 7 (unattended-upgr)")
    plan = (await world.go()).plan
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.message) == ("Blocked", "apt is held by pid 7 (unattended-upgr)")


async def test_complete_is_completed_and_never_looked_at_again(world: World):
    await world.go()
    world.updater.put("a1", "complete")
    assert (await world.go()).plan == Converged("Completed")
    looked = world.updater.looked
    await world.kind.relist()
    assert (await world.go()).plan == Converged("Completed")
    assert world.updater.looked == looked


@pytest.mark.parametrize(
    ("phase", "reason"), [("failed", "UpgradeFailed"), ("repair-required", "RepairRequired")]
)
async def test_a_bad_end_is_failed_and_not_tried_again(world: World, phase: str, reason: str):
    await world.go()
    world.updater.put("a1", phase, reason="Why", message="")
    plan = (await world.go()).plan
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason, plan.message) == ("Failed", reason, "Why")
    assert len(world.updater.asked) == 1


@pytest.mark.parametrize("phase", ["applying", "rebooting", "verifying"])
async def test_an_updater_that_goes_away_in_the_middle_is_expected_for_a_while(
    world: World, phase: str
):
    await world.go()
    world.updater.put("a1", phase)
    before = (await world.go()).plan
    world.updater.away = True
    assert (await world.go()).plan == before
    await world.clock.advance(SILENCE + 1)
    with pytest.raises(Transient) as caught:
        await world.go()
    assert caught.value.reason == "UpdaterUnavailable"


async def test_what_was_seen_of_an_attempt_is_forgotten_with_it(world: World):
    await world.go()
    world.updater.put("a1", "applying")
    await world.go()
    world.store.set_desired(spec("a2"))
    await world.kind.relist()
    world.store.set_desired(spec("a1"))
    world.updater.away = True
    with pytest.raises(Transient):
        await world.kind.observe("os")


async def test_only_the_updaters_word_is_shown(world: World):
    assert world.kind.detail(world.store.record("os"), None) is None
    assert world.kind.detail(world.store.record("os"), Observed(None, known=True)) is None
    await world.go()
    world.updater.put("a1", "complete", bootIdBefore="b1", bootIdAfter="b2")
    detail = world.kind.detail(world.store.record("os"), await world.kind.observe("os"))
    assert detail is not None
    assert (detail.phase, detail.bootIdBefore, detail.bootIdAfter) == ("complete", "b1", "b2")


async def test_an_attempt_that_the_updater_forgot_is_not_asked_for_again(world: World):
    await world.go()
    world.updater.attempts.clear()
    world.restarted()
    plan = (await world.go()).plan
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason) == ("Failed", "AttemptLost")
    assert len(world.updater.asked) == 1


async def test_a_kill_between_asking_and_noting_asks_for_the_same_attempt(world: World):
    world.store.claim("os", {"attempt_id": "a1", "run_uid": "r1"}, world.kind.claims(spec()))
    await world.updater.request(next(iter(_asks(world))))
    world.restarted()
    await world.go()
    assert len(world.updater.attempts) == 1


def _asks(world: World):
    plan = world.kind.plan("os", world.store.desired("os"), world.store.record("os"), None)
    assert isinstance(plan, Act)
    return [action.ask for action in plan.actions]


async def test_an_updater_that_is_busy_elsewhere_is_asked_again_later(world: World):
    world.updater.busy = True
    with pytest.raises(Transient) as caught:
        await world.go()
    assert (caught.value.reason, caught.value.phase) == ("UpgradeBlocked", "Blocked")
    assert "agent upgrade" in str(caught.value)
    world.updater.busy = False
    await world.go()
    assert "a1" in world.updater.attempts


async def test_no_updater_is_blocked(world: World):
    world.updater.away = True
    with pytest.raises(Transient) as caught:
        await world.go()
    assert (caught.value.reason, caught.value.phase) == ("UpdaterUnavailable", "Blocked")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("expired", "UpgradeExpired"),
        ("attempt-conflict", "AttemptConflict"),
        ("wrong-device", "WrongDevice"),
        ("bad-request", "UpdaterRefused"),
        ("unsupported", "UpdaterUnsupported"),
    ],
)
async def test_what_another_try_cannot_mend_is_terminal(world: World, code: str, reason: str):
    world.updater.refuse = code
    with pytest.raises(Terminal) as caught:
        await world.go()
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("repair-required", "RepairRequired"),
        ("forbidden", "UpdaterForbidden"),
        ("busy", "UpdaterBusy"),
        ("new-code", "UpdaterRefused"),
    ],
)
async def test_what_an_administrator_can_mend_is_blocked(world: World, code: str, reason: str):
    action = world.kind.plan("os", world.store.desired("os"), world.store.record("os"), None)
    assert isinstance(action, Act)
    world.updater.refuse = code
    with pytest.raises(Transient) as caught:
        await world.kind.apply(action.actions[0])
    assert (caught.value.reason, caught.value.phase) == (reason, "Blocked")


@pytest.mark.parametrize("phase", [*ACTIVE, "blocked"])
async def test_without_its_score_an_active_attempt_still_ends_and_is_shown(
    world: World, phase: str
):
    await world.go()
    world.updater.put("a1", phase)
    world.store.unset("os")
    world.restarted()
    result = await world.go()
    assert isinstance(result.plan, Wait)
    assert result.plan.phase in ("Progressing", "Blocked")
    assert world.store.record("os") is not None


@pytest.mark.parametrize(("phase", "shown"), [("complete", "Completed"), ("failed", "Failed")])
async def test_without_its_score_the_end_is_shown_for_a_while(world: World, phase: str, shown: str):
    assert phase in ENDED
    await world.go()
    world.updater.put("a1", phase)
    world.store.unset("os")
    plan = (await world.go()).plan
    assert isinstance(plan, Wait)
    assert plan.phase == shown
    assert plan.seconds <= LINGER
    await world.clock.advance(LINGER + 1)
    assert (await world.go()).plan == Converged()
    assert world.store.record("os") is None


async def test_removed_before_it_was_asked_for_is_gone(world: World):
    world.store.claim("os", {"attempt_id": "a1", "run_uid": "r1"}, world.kind.claims(spec()))
    world.store.unset("os")
    assert (await world.go()).plan == Converged()
    assert world.updater.asked == []


async def test_another_attempt_under_the_same_name_is_another_request(world: World):
    await world.go()
    world.updater.put("a1", "complete")
    await world.go()
    world.store.set_desired(spec("a2"))
    await world.go()
    assert [ask.attempt_id for ask in world.updater.asked] == ["a1", "a2"]


async def test_what_is_neither_wanted_nor_owned_is_nothing(world: World):
    assert await world.kind.observe("other") is None


async def test_the_rest_of_the_protocol(world: World):
    assert list(world.kind.admit(spec())) == []
    assert world.kind.claims(spec()) == {"attempt:a1"}
    await world.go()
    assert set(await world.kind.relist()) == {"os"}


async def test_an_attempt_that_nobody_names_any_more_is_forgotten(world: World):
    for number in range(1, 6):
        world.store.set_desired(spec(f"a{number}"))
        await world.go()
        world.updater.put(f"a{number}", "complete")
        await world.go()
        await world.kind.relist()
    assert set(world.kind._observer._ended) == {"a5"}
