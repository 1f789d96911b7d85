"""Whole passes over a fake engine: each field set, changed, drifted and removed; ends, restarts,
reboots, adoption.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.container.actions import (
    Conclude,
    Create,
    EnsureImage,
    Remember,
    RunInit,
    Start,
)
from harmony_agent.kinds.container.apply import Applier
from harmony_agent.kinds.container.payload import retired_name
from scores.container import Container
from tests.fakes.containers import Made
from tests.fakes.drive import Cut
from tests.unit.container.bench import IMAGE, Bench, web


def other_image(**fields: Any) -> Container:
    return Container(name="web", image="localhost/other", **fields)


async def failure(bench: Bench, name: str = "web") -> Transient:
    with pytest.raises(Transient) as caught:
        await bench.once(name)
    return caught.value


async def test_makes_and_starts_and_then_does_nothing() -> None:
    bench = Bench()
    made = await bench.made(web(labels={"team": "x"}))
    assert made.state == "running"
    labels = dict(made.payload["labels"])
    assert labels.pop("io.harmony.spec").startswith("1:")
    assert labels == {
        "team": "x",
        "io.harmony.device": "pi-01",
        "io.harmony.deployment": "web",
        "io.harmony.resource": "Container/web",
    }
    assert bench.facts()["id"] == made.id
    result = await bench.once()
    assert result.plan == Converged()
    assert (bench.done(), bench.store.noted) == ([], [])


async def test_an_agent_restart_keeps_the_container() -> None:
    bench = Bench()
    made = await bench.made(web())
    bench.restart_agent()
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").id == made.id
    assert bench.done() == []


async def test_a_changed_spec_pulls_first_and_then_replaces() -> None:
    bench = Bench()
    made = await bench.made(web())
    bench.containers.registry["localhost/other"] = bench.containers.images[IMAGE]
    bench.want(other_image())
    assert await bench.settle() == Converged()
    trial = bench.done()[1].removeprefix("create ")
    assert trial.startswith("web.trial-")
    assert bench.done() == [
        "pull localhost/other",
        f"create {trial}",
        f"init {trial}",
        f"remove {trial}",
        "stop web",
        "rename web",
        "create web",
        "start web",
        f"stop {retired_name('web', made.id)}",
        f"remove {retired_name('web', made.id)}",
    ]
    assert bench.containers.get("web").id != made.id


async def test_a_failed_pull_leaves_the_old_one_running() -> None:
    bench = Bench()
    made = await bench.made(web())
    bench.want(other_image())
    error = await failure(bench)
    assert (error.reason, error.phase) == ("PullFailed", "Degraded")
    assert bench.containers.made[made.id].state == "running"


async def test_a_pull_that_says_no_error_but_brings_nothing() -> None:
    bench = Bench()
    bench.containers.silent_pulls = True
    bench.want(other_image())
    assert (await failure(bench)).reason == "PullFailed"


async def test_pull_never() -> None:
    bench = Bench()
    bench.want(other_image(pull="never"))
    error = await failure(bench)
    assert (error.reason, error.phase) == ("ImageMissing", "Blocked")
    assert bench.done() == []


async def test_pull_always_pulls_once_for_a_spec() -> None:
    bench = Bench()
    bench.containers.registry[IMAGE] = bench.containers.images[IMAGE]
    await bench.made(web(pull="always"))
    await bench.containers.remove(bench.containers.get("web").id)
    bench.containers.calls.clear()
    assert await bench.settle() == Converged()
    assert bench.done() == ["create web", "start web"]
    bench.want(web(pull="always", hostname="h"))
    await bench.settle()
    assert bench.done().count(f"pull {IMAGE}") == 1


async def test_an_image_that_goes_away_before_the_creation() -> None:
    bench = Bench()
    bench.want(web())

    def lose(action: Any) -> None:
        if type(action).__name__ == "Create":
            bench.containers.images.clear()

    with pytest.raises(Transient) as caught:
        await bench.once(before=lose)
    assert (caught.value.reason, caught.value.phase) == ("ImageMissing", "Blocked")


@pytest.mark.parametrize(
    ("fields", "change", "field"),
    [
        ({"memory": "64Mi"}, {"memory": "1"}, "memory"),
        ({"cpus": 1}, {"cpus": "9"}, "cpus"),
        ({"pids": 5}, {"pids": "9"}, "pids"),
        ({"network": "host"}, {"network": "other"}, "network"),
        ({"healthcheck": {"command": ["/ok"]}}, {"healthcheck": "none"}, "healthcheck"),
    ],
)
async def test_drift_of_what_can_be_changed(
    fields: dict[str, Any], change: dict[str, str], field: str
) -> None:
    bench = Bench()
    made = await bench.made(web(**fields))
    made.config.update(change)
    result = await bench.once()
    assert result.fields == [field]
    assert result.plan == Converged()
    assert bench.containers.get("web").id != made.id


async def test_what_the_score_does_not_set_is_not_watched() -> None:
    bench = Bench()
    made = await bench.made(web())
    made.config.update({"memory": "1", "network": "other"})
    assert (await bench.once()).actions == []


async def test_a_removed_container_comes_back() -> None:
    bench = Bench()
    made = await bench.made(web())
    await bench.containers.remove(made.id)
    result = await bench.once()
    assert (result.fields, result.plan) == (["name"], Converged())


async def test_a_paused_one_goes_on_and_a_renamed_one_gets_its_name_back() -> None:
    bench = Bench()
    made = await bench.made(web())
    made.state = "paused"
    assert (await bench.once()).fields == ["state"]
    made.name = "elsewhere"
    assert (await bench.once()).fields == ["name"]
    assert bench.done() == ["unpause web", "rename elsewhere"]
    assert (made.name, made.state) == ("web", "running")


async def test_one_that_is_being_stopped_is_stopped_and_started() -> None:
    bench = Bench()
    made = await bench.made(web())
    made.state = "stopping"
    await bench.settle()
    assert bench.done() == ["stop web", "start web"]


async def test_state_stopped() -> None:
    bench = Bench()
    made = await bench.made(web(stop_grace_seconds=3))
    bench.want(web(stop_grace_seconds=3, state="stopped"))
    assert await bench.settle() == Converged()
    assert bench.containers.calls == [("stop", "web", "3")]
    made.state = "paused"
    result = await bench.once()
    assert (result.plan, result.fields) == (Converged(), ["state"])
    assert bench.done() == ["stop web", "unpause web", "stop web"]


async def test_state_stopped_makes_it_but_does_not_start_it() -> None:
    bench = Bench()
    made = await bench.made(web(state="stopped", init_containers=[{"name": "a"}]))
    assert made.state == "created"
    assert [one.name for one in bench.containers.made.values()] == ["web"]


# Ends.


@pytest.mark.parametrize(
    ("restart", "code", "expected"),
    [
        ("always", 0, "again"),
        ("always", 1, "again"),
        ("on-failure", 1, "again"),
        ("on-failure", 0, "Completed"),
        ("never", 0, "Completed"),
        ("never", 1, "ExitedNonZero"),
    ],
)
async def test_an_end(restart: str, code: int, expected: str) -> None:
    bench = Bench()
    await bench.made(web(restart=restart))
    bench.containers.exits("web", code)
    plan = bench.kind.plan(
        "web",
        bench.store.desired("web"),
        bench.store.record("web"),
        await bench.kind.observe("web"),
    )
    if expected == "again":
        assert isinstance(plan, Act)
        assert plan.is_restart
        await bench.settle()
        assert (bench.facts()["restarts"], bench.facts()["exit_code"]) == (1, code)
        return
    assert [type(action) for action in plan.actions] == [Conclude]  # type: ignore[union-attr]
    plan = await bench.settle()
    if expected == "Completed":
        assert plan == Converged("Completed")
    else:
        assert isinstance(plan, Wait)
        assert (plan.reason, plan.phase) == (expected, "Failed")
    assert bench.done() == []


async def ended(bench: Bench, code: int, **fields: Any) -> Made:
    """One that ended by itself, and whose end was seen."""
    made = await bench.made(web(**fields))
    bench.containers.exits("web", code)
    await bench.settle()
    return made


def pruned(bench: Bench, how: str) -> None:
    """Somebody takes away what has ended, or its storage goes, or a limit of it is changed."""
    made = bench.containers.get("web")
    match how:
        case "pruned":
            del bench.containers.made[made.id]
        case "storage lost":
            made.lost = True
        case "changed":
            made.config["memory"] = "1"


@pytest.mark.parametrize("how", ["pruned", "storage lost", "changed"])
@pytest.mark.parametrize(
    ("restart", "code", "phase"),
    [("never", 0, "Completed"), ("never", 3, "Failed"), ("on-failure", 0, "Completed")],
)
async def test_what_has_ended_for_its_spec_never_runs_again(
    restart: str, code: int, phase: str, how: str
) -> None:
    bench = Bench()
    await ended(bench, code, restart=restart, memory="64Mi")
    pruned(bench, how)
    for again in (bench.restart_agent, bench.reboot, bench.restart_agent):
        again()
        plan = await bench.settle()
        assert isinstance(plan, Converged | Wait)
        assert plan.phase == phase
        seen = (await bench.kind.relist()).get("web")
        detail = bench.kind.detail(bench.store.record("web"), seen)
        assert detail is not None
        assert detail.exit_code == code  # type: ignore[union-attr]
    assert bench.done() == []
    bench.want(web(restart=restart, memory="64Mi", stop_grace_seconds=3))
    await bench.settle()
    assert bench.done() == [], "nothing that goes into the making has changed"
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert bench.containers.made == {}


@pytest.mark.parametrize("change", ["spec", "restart", "token", "env file"])
async def test_what_has_ended_and_was_pruned_runs_once_more_for_a_change(change: str) -> None:
    bench = Bench()
    bench.env_files.files["/srv/env"] = b"A=1\n"
    fields: dict[str, Any] = {"restart": "never", "env_files": ["/srv/env"]}
    bench.want(web(**fields), restart_token="1")
    await bench.settle()
    bench.containers.exits("web", 0)
    await bench.settle()
    pruned(bench, "pruned")
    bench.containers.calls.clear()
    match change:
        case "spec":
            bench.want(web(**fields, hostname="h"), restart_token="1")
        case "restart":
            bench.want(web(**{**fields, "restart": "always"}), restart_token="1")
        case "token":
            bench.want(web(**fields), restart_token="2")
        case "env file":
            bench.env_files.files["/srv/env"] = b"A=2\n"
    assert await bench.settle() == Converged()
    assert bench.done() == ["create web", "start web"]


async def test_a_run_that_was_begun_anew_and_cut_is_not_taken_for_ended() -> None:
    bench = Bench()
    await ended(bench, 0, restart="never")
    pruned(bench, "pruned")
    bench.want(web(restart="never"), restart_token="2")
    bench.store.claim("web", {**bench.facts(), "token": "1"})

    def die(action: Any) -> None:
        if isinstance(action, Start):
            raise Cut

    with pytest.raises(Cut):
        await bench.once(before=die)
    del bench.containers.made[bench.containers.get("web").id]
    bench.restart_agent()
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "running"


async def test_an_end_that_an_older_agent_recorded_gets_its_exit_code() -> None:
    bench = Bench()
    await ended(bench, 0, restart="never")
    facts = bench.facts()
    del facts["concluded_with"]
    bench.store.claim("web", facts)
    assert await bench.settle() == Converged("Completed")
    assert bench.facts()["concluded_with"] == 0


async def test_an_end_is_counted_once_though_the_agent_dies_before_the_start() -> None:
    bench = Bench()
    await bench.made(web())
    bench.containers.exits("web", 3)
    bench.containers.refuse("start", times=2)
    for _ in range(2):
        assert (await failure(bench)).reason == "StartFailed"
    await bench.settle()
    assert bench.facts()["restarts"] == 1
    bench.containers.exits("web", 4)
    await bench.settle()
    assert (bench.facts()["restarts"], bench.facts()["exit_code"]) == (2, 4)
    detail = bench.kind.detail(bench.store.record("web"), await bench.kind.observe("web"))
    assert (detail.restarts, detail.exit_code, detail.state) == (2, 4, "Running")  # type: ignore[union-attr]


@pytest.mark.parametrize("power_cut", [True, False])
@pytest.mark.parametrize("restart", ["always", "on-failure"])
async def test_a_reboot_is_no_end_of_its_own(restart: str, *, power_cut: bool) -> None:
    bench = Bench()
    made = await bench.made(web(restart=restart))
    bench.reboot(power_cut=power_cut)
    plan = bench.kind.plan(
        "web",
        bench.store.desired("web"),
        bench.store.record("web"),
        await bench.kind.observe("web"),
    )
    assert isinstance(plan, Act)
    assert not plan.is_restart
    await bench.settle()
    assert bench.facts()["restarts"] == 0
    assert bench.containers.get("web").id == made.id


@pytest.mark.parametrize("power_cut", [True, False])
async def test_what_completed_before_a_reboot_stays_so_and_what_was_interrupted_runs_again(
    *, power_cut: bool
) -> None:
    bench = Bench()
    await bench.made(web(restart="never"))
    bench.containers.exits("web", 0)
    assert await bench.settle() == Converged("Completed")
    bench.reboot(power_cut=power_cut)
    assert await bench.settle() == Converged("Completed")
    assert bench.done() == []
    other = Bench()
    await other.made(web(restart="never"))
    other.reboot(power_cut=power_cut)
    assert await other.settle() == Converged()
    assert other.done() == ["start web"]


async def test_what_ended_well_at_the_shutdown_runs_again() -> None:
    bench = Bench()
    await bench.made(web(restart="on-failure"))
    bench.containers.exits("web", 0)
    bench.reboot()
    assert await bench.settle() == Converged()
    assert bench.done() == ["start web"]


async def test_podman_4_shows_what_a_reboot_ended_as_created() -> None:
    bench = Bench()
    made = await bench.made(web(restart="never", init_containers=[]))
    made.state = "created"
    bench.reboot()
    assert await bench.settle() == Converged()
    assert bench.done() == ["start web"]


async def test_an_init_container_that_a_reboot_ended_runs_again() -> None:
    bench = await inits_bench()
    await bench.settle()
    bench.reboot(power_cut=True)
    assert "a was interrupted" in str(await failure(bench))
    assert (await bench.settle()).reason == "InitRunning"  # type: ignore[union-attr]


async def test_a_new_spec_begins_to_count_anew() -> None:
    bench = Bench()
    await bench.made(web())
    bench.containers.exits("web", 1)
    await bench.settle()
    bench.want(web(hostname="h"))
    await bench.settle()
    assert bench.facts()["restarts"] == 0
    assert "exit_code" not in bench.facts()


# Restarts for others.


async def test_restart_on_restarts_once() -> None:
    bench = Bench()
    made = await bench.made(web(), restart_token="1")
    started = made.started
    bench.want(web(), restart_token="2")
    result = await bench.once()
    assert (result.plan, bench.done()) == (Converged(), ["restart web"])
    assert made.started != started
    bench.restart_agent()
    assert (await bench.once()).actions == []


async def test_a_restart_cut_before_it_happened_is_made_and_one_that_happened_is_not_repeated() -> (
    None
):
    bench = Bench()
    made = await bench.made(web(), restart_token="1")
    bench.want(web(), restart_token="2")
    bench.containers.silence("restart")
    assert (await failure(bench)).reason == "Timeout"
    await bench.settle()
    assert bench.done() == ["restart web", "restart web"]
    assert made.state == "running"


async def test_a_first_restart_token_and_a_new_container_need_no_restart() -> None:
    bench = Bench()
    await bench.made(web())
    bench.want(web(restart_on=["File/a"]), restart_token="1")
    await bench.settle()
    bench.want(web(restart_on=["File/a"], hostname="h"), restart_token="2")
    await bench.settle()
    assert "restart web" not in bench.done()
    bench.want(web(hostname="h"))
    await bench.settle()
    bench.want(web(hostname="h", restart_on=["File/b"]), restart_token="3")
    await bench.settle()
    assert "restart web" not in bench.done()


async def test_a_completed_one_runs_again_for_a_restart_token() -> None:
    bench = Bench()
    await bench.made(web(restart="never"), restart_token="1")
    bench.containers.exits("web", 0)
    bench.want(web(restart="never"), restart_token="2")
    await bench.settle()
    bench.containers.exits("web", 0)
    assert await bench.settle() == Converged("Completed")
    assert bench.done() == ["start web"]
    assert bench.facts()["restarts"] == 0


async def test_a_liveness_restart_is_counted() -> None:
    bench = Bench()
    await bench.made(web(stop_grace_seconds=2))
    await bench.kind.restart("web")
    assert bench.containers.calls == [("restart", "web", "2")]
    assert bench.facts()["restarts"] == 1
    bench.containers.refuse("restart", "no luck")
    with pytest.raises(Transient) as caught:
        await bench.kind.restart("web")
    assert (caught.value.reason, str(caught.value)) == (
        "RestartFailed",
        "cannot restart web: no luck",
    )


# Health.


async def test_the_health_check_has_its_say() -> None:
    bench = Bench()
    made = await bench.made(web(healthcheck={"command": ["/ok"]}))
    made.health = "starting"
    plan = await bench.settle()
    assert (plan.reason, plan.phase) == ("HealthStarting", "Progressing")  # type: ignore[union-attr]
    made.health = "unhealthy"
    plan = await bench.settle()
    assert (plan.reason, plan.phase) == ("Unhealthy", "Degraded")  # type: ignore[union-attr]
    assert not bench.kind.detail(bench.store.record("web"), await bench.kind.observe("web")).ready  # type: ignore[union-attr]
    assert bench.done() == []


# Failures.


async def test_a_command_that_does_not_exist_and_the_removal_after_it() -> None:
    bench = Bench()
    bench.containers.missing_commands.add("/bin/nope")
    bench.want(web(command=["/bin/nope"]))
    error = await failure(bench)
    assert (error.reason, error.phase) == ("StartFailed", "Degraded")
    assert bench.containers.get("web").state == "created"
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert bench.containers.made == {}


async def test_a_name_that_only_the_storage_holds_is_cleared_once() -> None:
    bench = Bench()
    bench.containers.leftovers["e" * 64] = "web"
    await bench.made(web())
    bench = Bench()
    bench.containers.leftovers |= {"e" * 64: "web", "f" * 64: "web"}
    bench.want(web())
    assert (await failure(bench)).reason == "NameInUse"
    assert bench.done() == ["create web", f"clear_storage {'e' * 64}", "create web"]


@pytest.mark.parametrize("text", ["the name is in use", f'name "web" is in use by {"e" * 64}'])
async def test_a_name_in_use_by_what_must_not_be_cleared(text: str) -> None:
    bench = Bench()
    other = bench.containers.foreign("other")
    bench.containers.refuse("create", text.replace("e" * 64, other.id))
    bench.want(web())
    assert (await failure(bench)).reason == "NameInUse"
    assert bench.done() == ["create web"]


async def test_a_refusal_after_clearing_is_told() -> None:
    bench = Bench()
    bench.containers.leftovers["e" * 64] = "web"
    bench.want(web())
    clear = bench.containers.clear_storage

    async def clear_and_break(ident: str) -> None:
        await clear(ident)
        bench.containers.refuse("create", "no space")

    bench.containers.clear_storage = clear_and_break  # type: ignore[method-assign]
    assert (await failure(bench)).reason == "CreateFailed"


async def test_lost_storage_is_made_anew_once_a_pass() -> None:
    bench = Bench()
    made = await bench.made(web())
    bench.reboot(power_cut=True)
    made.lost = True
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").id != made.id


async def test_lost_storage_that_only_the_start_shows() -> None:
    bench = Bench()
    made = await bench.made(web())
    bench.reboot(power_cut=True)
    bench.containers.refuse("start", "mounting storage for container x: no such file or directory")
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").id != made.id
    bench.containers.exits("web", 1)
    bench.containers.refuse(
        "start", "mounting storage for container x: no such file or directory", times=2
    )
    assert (await failure(bench)).reason == "StorageDamaged"
    assert await bench.settle() == Converged()


async def test_an_inspection_that_fails_changes_nothing() -> None:
    bench = Bench()
    await bench.made(web())
    bench.containers.refuse("inspect", "database is locked")
    error = await failure(bench)
    assert (error.reason, error.phase) == ("InspectFailed", "Unknown")
    bench = Bench()
    bench.want(web())
    bench.containers.refuse("inspect", "odd")
    assert (await failure(bench)).reason == "InspectFailed"
    assert bench.done() == []


@pytest.mark.parametrize(
    ("operation", "prepare", "reason"),
    [
        ("unpause", {"state": "paused"}, "UnpauseFailed"),
        ("rename", {"name": "elsewhere"}, "RenameFailed"),
        ("stop", {"state": "stopping"}, "StopFailed"),
    ],
)
async def test_what_podman_refuses_is_typed(
    operation: str, prepare: dict[str, Any], reason: str
) -> None:
    bench = Bench()
    made = await bench.made(web())
    for field, value in prepare.items():
        setattr(made, field, value)
    bench.containers.refuse(operation, "no luck")
    error = await failure(bench)
    assert error.reason == reason
    assert "no luck" in str(error)
    assert await bench.settle() == Converged()


async def test_a_removal_that_podman_refuses_is_tried_again() -> None:
    bench = Bench()
    await bench.made(web())
    bench.store.unset("web")
    bench.containers.refuse("stop", "no luck")
    bench.containers.refuse("remove", "hunter2")
    error = await failure(bench)
    assert error.reason == "RemoveFailed"
    assert "hunter2" not in str(error)
    assert await bench.settle() == Converged()
    assert bench.containers.made == {}


# Ownership.


async def test_a_foreign_container_is_left_alone() -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    bench.want(web())
    plan = await bench.settle()
    assert (plan.reason, plan.phase) == ("OwnershipConflict", "Blocked")  # type: ignore[union-attr]
    assert (bench.done(), theirs.state) == ([], "running")
    detail = bench.kind.detail(bench.store.record("web"), await bench.kind.observe("web"))
    assert (detail.state, detail.id) == ("Absent", None)  # type: ignore[union-attr]
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert theirs.id in bench.containers.made


async def test_a_stranger_in_the_place_of_ours_is_left_alone() -> None:
    bench = Bench()
    made = await bench.made(web())
    await bench.containers.remove(made.id)
    theirs = bench.containers.foreign("web")
    plan = await bench.settle()
    assert plan.reason == "OwnershipConflict"  # type: ignore[union-attr]
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert theirs.state == "running"


async def test_another_with_our_labels_is_left_alone() -> None:
    bench = Bench()
    made = await bench.made(web())
    labels = made.payload["labels"]
    await bench.containers.remove(made.id)
    other = bench.containers.foreign("web", labels=labels)
    assert (await bench.settle()).reason == "OwnershipConflict"  # type: ignore[union-attr]
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert (other.name, other.state) == ("web", "running")


async def let_go(bench: Bench, **fields: Any) -> Made:
    """A container that a deployment let go of; what is wanted next is another one's."""
    made = await bench.made(web(on_remove="orphan", **fields))
    bench.store.unset("web")
    await bench.once()
    bench.store.deployment = "other"
    bench.containers.calls.clear()
    return made


@pytest.mark.parametrize("adopt", [False, True])
async def test_one_that_another_deployment_let_go_of_is_taken_as_it_is(adopt: bool) -> None:
    bench = Bench()
    made = await let_go(bench)
    bench.want(web(adopt=adopt))
    assert await bench.settle() == Converged()
    assert (bench.done(), bench.facts()["id"], made.state) == ([], made.id, "running")
    bench.want(web(adopt=adopt, drift="report"))
    assert (await bench.once()).actions == []
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    there = [one.state for one in bench.containers.made.values()]
    assert there == (["running"] if adopt else []), "with adopt, what was let go of stays"


async def test_one_that_was_taken_as_it_is_is_set_aside_when_it_has_to_change() -> None:
    bench = Bench()
    made = await let_go(bench)
    bench.want(web(adopt=True))
    await bench.settle()
    other = await bench.made(web(hostname="h"))
    assert (made.name, made.state) == (f"web.former-{made.id[:12]}", "exited")
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert other.id not in bench.containers.made
    assert (made.name, made.state) == ("web", "running")


async def test_one_that_did_not_run_when_it_was_taken_is_put_back_stopped() -> None:
    bench = Bench()
    made = await let_go(bench, state="stopped")
    assert made.state == "created"
    await bench.made(web(adopt=True))
    assert (bench.facts()["id"], made.state) == (made.id, "running")
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert (made.name, made.state) == ("web", "exited")


async def test_what_was_put_back_stays_and_can_be_adopted_again() -> None:
    bench = Bench()
    made = await let_go(bench)
    for hostname in ("h", "i"):
        await bench.made(web(adopt=True, hostname=hostname))
        bench.store.unset("web")
        assert (await bench.once()).plan == Converged()
        assert [(one.id, one.name, one.state) for one in bench.containers.made.values()] == [
            (made.id, "web", "running")
        ]


async def test_what_was_put_back_is_adopted_again_before_its_record_is_gone() -> None:
    bench = Bench()
    made = await let_go(bench)
    await bench.made(web(adopt=True, hostname="h"))
    bench.store.unset("web")
    with pytest.raises(Cut):
        await bench.once(before=_cut_behind_put_back(bench))
    made.state = "exited"
    bench.want(web(adopt=True, hostname="i"))
    assert await bench.settle() == Converged()
    assert bench.facts()["former"] == {"id": made.id, "running": False}


def _cut_behind_put_back(bench: Bench) -> Any:
    def forget(name: str) -> None:
        raise Cut

    bench.store.forget = forget  # type: ignore[method-assign]
    return lambda _action: None


async def test_an_orphan_that_is_as_wanted_is_taken_back_without_a_change() -> None:
    bench = Bench()
    made = await bench.made(web(on_remove="orphan"))
    bench.store.unset("web")
    await bench.once()
    assert made.state == "running"
    bench.want(web(on_remove="orphan"))
    assert await bench.settle() == Converged()
    assert bench.done() == []
    assert bench.facts()["id"] == made.id
    assert "former" not in bench.facts()


async def test_an_orphan_that_differs_is_a_conflict_or_is_adopted() -> None:
    bench = Bench()
    made = await bench.made(web(on_remove="orphan"))
    bench.store.unset("web")
    await bench.once()
    bench.want(web(hostname="h"))
    assert (await bench.settle()).reason == "OwnershipConflict"  # type: ignore[union-attr]
    assert bench.done() == []
    bench.want(web(hostname="h", adopt=True))
    assert await bench.settle() == Converged()
    assert (made.state, made.name) == ("exited", f"web.former-{made.id[:12]}")


@pytest.mark.parametrize("state", ["running", "paused", "exited"])
async def test_adopt_sets_aside_and_puts_back(state: str) -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    theirs.state = state  # type: ignore[assignment]
    made = await bench.made(web(adopt=True))
    assert (theirs.state, theirs.name) == ("exited", f"web.former-{theirs.id[:12]}")
    assert bench.facts()["former"] == {"id": theirs.id, "running": state != "exited"}
    assert (await bench.once()).actions == []
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert made.id not in bench.containers.made
    assert (theirs.name, theirs.state) == ("web", "exited" if state == "exited" else "running")


async def test_a_stranger_that_comes_later_is_adopted_too_but_only_one() -> None:
    bench = Bench()
    made = await bench.made(web(adopt=True))
    await bench.containers.remove(made.id)
    first = bench.containers.foreign("web")
    assert await bench.settle() == Converged()
    await bench.containers.remove(bench.containers.get("web").id)
    second = bench.containers.foreign("web")
    assert (await bench.settle()).reason == "OwnershipConflict"  # type: ignore[union-attr]
    assert second.state == "running"
    assert bench.facts()["former"]["id"] == first.id


async def test_an_adopted_one_that_is_gone_is_forgotten() -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    await bench.made(web(adopt=True))
    await bench.containers.remove(theirs.id)
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert bench.containers.made == {}


async def test_setting_aside_what_is_gone() -> None:
    bench = Bench()
    theirs = bench.containers.foreign("web")
    bench.want(web(adopt=True))

    def vanish(action: Any) -> None:
        if type(action).__name__ == "SetAside":
            bench.containers.made.pop(theirs.id)

    await bench.once(before=vanish)
    assert await bench.settle() == Converged()


# Env files.


async def test_env_files() -> None:
    bench = Bench()
    bench.env_files.files["/srv/e"] = b"A=1\nP=file"
    made = await bench.made(web(env_files=["/srv/e"], env={"A": "2"}))
    assert made.payload["env"] == {"A": "2", "P": "file"}
    bench.env_files.files["/srv/e"] = b"A=1\nP=other"
    result = await bench.once()
    assert (result.plan, result.fields) == (Converged(), ["env_files"])
    assert bench.containers.get("web").payload["env"]["P"] == "other"


async def test_a_missing_env_file_blocks_and_stops_nothing() -> None:
    bench = Bench()
    bench.want(web(env_files=["/srv/e"]))
    error = await failure(bench)
    assert (error.reason, error.phase) == ("EnvFileMissing", "Blocked")
    bench.env_files.files["/srv/e"] = b"A=1"
    made = await bench.made(web(env_files=["/srv/e"]))
    bench.env_files.files.clear()
    plan = await bench.settle()
    assert (plan.reason, plan.phase) == ("EnvFileMissing", "Blocked")  # type: ignore[union-attr]
    assert made.state == "running"
    made.state = "paused"
    bench.env_files.files["/srv/e"] = b"hunter2"
    error = await failure(bench)
    assert error.reason == "EnvFileInvalid"
    assert "hunter2" not in str(error)


async def test_words_are_withheld_while_env_files_cannot_be_checked() -> None:
    bench = Bench()
    bench.env_files.files["/srv/e"] = b"A=1"
    await bench.made(web(env_files=["/srv/e"]))
    bench.env_files.files.clear()
    bench.containers.refuse("restart", "hunter2")
    with pytest.raises(Transient) as caught:
        await bench.kind.restart("web")
    assert "hunter2" not in str(caught.value)


# Init containers.

INITS = [
    {"name": "a", "command": ["x"]},
    {"name": "b", "image": "localhost/other", "timeout_seconds": 5},
]


def with_inits(**fields: Any) -> Any:
    return web(init_containers=INITS, **fields)


async def inits_bench() -> Bench:
    bench = Bench()
    bench.containers.registry["localhost/other"] = bench.containers.images[IMAGE]
    bench.want(with_inits())
    return bench


async def test_init_containers_run_in_order_to_their_end_first() -> None:
    bench = await inits_bench()
    plan = await bench.settle()
    assert (plan.reason, plan.phase) == ("InitRunning", "Progressing")  # type: ignore[union-attr]
    assert bench.containers.named("web.init-b") is None
    bench.containers.exits("web.init-a", 0)
    assert (await bench.settle()).reason == "InitRunning"  # type: ignore[union-attr]
    assert bench.containers.named("web.init-a") is None
    assert bench.containers.get("web").state == "created"
    bench.containers.exits("web.init-b", 0)
    assert await bench.settle() == Converged()
    assert [one.name for one in bench.containers.made.values()] == ["web"]
    bench.containers.exits("web", 1)
    bench.containers.calls.clear()
    await bench.settle()
    assert bench.done() == ["start web"]


async def test_an_init_container_whose_ledger_was_lost_is_gone_on_with() -> None:
    bench = await inits_bench()
    await bench.settle()
    await bench.containers.remove(bench.containers.get("web").id)
    bench.store.forget("web")
    bench.want(with_inits(adopt=True))
    await bench.settle()
    assert "former" not in bench.facts()
    assert bench.containers.get("web.init-a").state == "running"


async def test_a_failed_init_container_is_tried_again() -> None:
    bench = await inits_bench()
    await bench.settle()
    bench.containers.exits("web.init-a", 3)
    error = await failure(bench)
    assert error.reason == "InitFailed"
    assert "a exited with 3" in str(error)
    assert bench.containers.named("web.init-a") is None
    assert (await bench.settle()).reason == "InitRunning"  # type: ignore[union-attr]


async def test_an_init_container_that_takes_too_long() -> None:
    bench = await inits_bench()
    await bench.settle()
    bench.containers.exits("web.init-a", 0)
    await bench.settle()
    for _ in range(6):
        bench.containers._tick()
    error = await failure(bench)
    assert "b did not end in time" in str(error)


async def test_an_init_container_that_cannot_start_or_is_broken() -> None:
    bench = await inits_bench()
    bench.containers.missing_commands.add("x")
    assert (await failure(bench)).reason == "InitFailed"
    assert bench.containers.named("web.init-a") is None
    bench.containers.missing_commands.clear()
    await bench.settle()
    bench.containers.lose_storage("web.init-a")
    assert "a is broken" in str(await failure(bench))
    assert (await bench.settle()).reason == "InitRunning"  # type: ignore[union-attr]


async def test_an_init_container_that_ended_is_not_run_again_after_a_crash() -> None:
    bench = await inits_bench()
    await bench.settle()
    bench.containers.exits("web.init-a", 0)
    bench.containers.silence("stop")
    assert (await failure(bench)).reason == "Timeout"
    bench.restart_agent()
    assert (await bench.settle()).reason == "InitRunning"  # type: ignore[union-attr]
    assert bench.done().count("create web.init-a") == 1
    assert bench.containers.named("web.init-a") is None


async def test_init_containers_go_with_the_resource_and_when_it_is_stopped() -> None:
    bench = await inits_bench()
    await bench.settle()
    bench.want(with_inits(state="stopped"))
    assert await bench.settle() == Converged()
    assert bench.containers.named("web.init-a") is None
    bench.want(with_inits())
    await bench.settle()
    bench.store.unset("web")
    assert (await bench.once()).plan == Converged()
    assert bench.containers.made == {}


async def test_an_init_container_left_created_is_started() -> None:
    bench = await inits_bench()
    bench.containers.silence("start")
    assert (await failure(bench)).reason == "Timeout"
    assert bench.containers.get("web.init-a").state == "created"
    await bench.settle()
    assert bench.containers.get("web.init-a").state == "running"


async def test_an_init_container_that_is_wanted_no_more_is_not_run() -> None:
    bench = await inits_bench()
    await bench.settle()
    actor: Applier = bench.kind._applier
    await actor.apply(RunInit(name="web", reason="", init="zzz"))
    bench.store.unset("web")
    bench.containers.calls.clear()
    await actor.apply(RunInit(name="web", reason="", init="a"))
    await actor.apply(Create(name="web", reason=""))
    await actor.apply(EnsureImage(name="web", reason="", image="other"))
    await actor.apply(Remember(name="web", reason="", id="gone"))
    assert bench.done() == []


async def test_a_start_of_what_is_gone_is_a_refusal() -> None:
    bench = Bench()
    await bench.made(web())
    with pytest.raises(Transient) as caught:
        await bench.kind.apply(Start(name="web", reason="", id="gone", run="gone@"))
    assert caught.value.reason == "StartFailed"
