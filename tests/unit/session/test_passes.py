"""The kind Session, by passes over a fake server: what is done, and what is left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.changes import Moment, is_change
from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine
from harmony_agent.core.resources import Key
from harmony_agent.engine.report.commands import Commands
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.topology.sessions import SessionMark
from scores.manifest import FieldError
from tests.fakes.clock import FakeClock
from tests.fakes.drive import Cut
from tests.unit.session.bench import INSTALLATION, Bench, worker


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_one_that_is_missing_is_made(bench: Bench) -> None:
    bench.want(worker(working_dir="/srv", env={"A": "1"}))
    assert isinstance(await bench.settle(), Converged)
    made = bench.sessions.get("worker")
    assert (made.argv, made.env, made.working_dir) == (["/usr/bin/top"], {"A": "1"}, "/srv")
    assert made.state.mark is not None
    assert made.state.mark.token == bench.facts()["token"] == "token-1"
    result = await bench.once()
    assert (result.plan, result.actions) == (Converged(), [])


async def test_what_is_killed_by_hand_is_made_again(bench: Bench) -> None:
    await bench.made(worker())
    bench.sessions.kill_by_hand("worker")
    result = await bench.once()
    assert result.fields == ["state"]
    assert bench.facts()["token"] == "token-2"
    assert bench.sessions.names() == ["worker"]


async def test_a_name_is_given_back(bench: Bench) -> None:
    await bench.made(worker())
    bench.sessions.rename_by_hand("worker", "mine")
    assert isinstance(await bench.settle(), Converged)
    assert (bench.done(), bench.sessions.names()) == (["rename"], ["worker"])


async def test_a_twin_of_its_name_is_left_alone(bench: Bench) -> None:
    bench.sessions.stranger("worker")
    bench.want(worker())
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, plan.phase, bench.done()) == ("OwnershipConflict", "Blocked", [])
    bench.sessions.kill_by_hand("worker")
    assert isinstance(await bench.settle(), Converged)


async def test_a_twin_beside_a_renamed_one_is_left_alone(bench: Bench) -> None:
    await bench.made(worker())
    bench.sessions.rename_by_hand("worker", "mine")
    bench.sessions.stranger("worker")
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, bench.sessions.names()) == ("OwnershipConflict", ["mine", "worker"])


@pytest.mark.parametrize("stopped", [True, False])
async def test_what_is_not_to_run_is_ended_and_a_twin_stays(bench: Bench, stopped: bool) -> None:
    await bench.made(worker())
    bench.sessions.rename_by_hand("worker", "mine")
    bench.sessions.stranger("worker")
    if stopped:
        bench.want(worker(state="stopped"))
    else:
        bench.store.unset("worker")
    assert isinstance(await bench.settle(), Converged)
    assert (bench.done(), bench.sessions.names()) == (["kill"], ["worker"])
    assert bench.sessions.get("worker").state.mark is None


def ours(token: str, **fields: str) -> SessionMark:
    return replace(SessionMark(INSTALLATION, "web", "worker", token, "1:x"), **fields)


@pytest.mark.parametrize(
    "mark",
    [ours("wrong"), ours("token-1", installation="another"), ours("token-1", resource="other")],
)
async def test_a_session_that_only_seems_ours_is_left_alone(
    bench: Bench, mark: SessionMark
) -> None:
    await bench.made(worker())
    bench.sessions.kill_by_hand("worker")
    bench.sessions.stranger("worker", mark)
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, bench.done()) == ("OwnershipConflict", [])
    bench.store.unset("worker")
    assert isinstance(await bench.settle(), Converged)
    assert bench.sessions.names() == ["worker"]


@pytest.mark.parametrize("wanted", [True, False])
async def test_two_that_say_they_are_ours_are_left_alone(bench: Bench, wanted: bool) -> None:
    await bench.made(worker())
    bench.sessions.stranger("forged", bench.sessions.get("worker").state.mark)
    if not wanted:
        bench.store.unset("worker")
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, plan.phase, bench.done()) == ("SessionAmbiguous", "Blocked", [])


async def test_a_new_spec_takes_effect_in_a_new_session(bench: Bench) -> None:
    await bench.made(worker())
    bench.want(worker(command=["/usr/bin/top", "-b"]))
    assert isinstance(await bench.settle(), Converged)
    assert bench.done() == ["kill", "create"]


@pytest.mark.parametrize("fields", [{"restart": "never"}, {"drift": "report"}])
async def test_what_is_not_part_of_the_session_changes_nothing(
    bench: Bench, fields: dict[str, Any]
) -> None:
    await bench.made(worker())
    bench.want(worker(**fields))
    assert isinstance(await bench.settle(), Converged)
    assert bench.done() == []


async def test_its_own_terminal_was_closed(bench: Bench) -> None:
    await bench.made(worker())
    bench.sessions.close_pane("worker")
    assert (await bench.detail()).state == "Exited"
    assert isinstance(await bench.settle(), Converged)
    assert bench.done() == ["kill", "create"]


@pytest.mark.parametrize(
    ("restart", "code", "done", "plan"),
    [
        ("always", 0, ["respawn"], Converged()),
        ("always", 3, ["respawn"], Converged()),
        ("on-failure", 3, ["respawn"], Converged()),
        ("on-failure", 0, [], Converged("Completed")),
        ("never", 0, [], Converged("Completed")),
        ("never", 3, [], "ExitedNonZero"),
    ],
)
async def test_its_command_has_ended(
    bench: Bench, restart: str, code: int, done: list[str], plan: Any
) -> None:
    await bench.made(worker(restart=restart))
    bench.sessions.end("worker", code)
    detail = await bench.detail()
    assert (detail.state, detail.exit_code, len(detail.dead_panes)) == ("Exited", code, 1)
    found = await bench.settle()
    assert (found.reason if isinstance(found, Wait) else found) == plan
    assert bench.done() == done
    assert (await bench.detail()).restarts == len(done)
    again = await bench.once()
    assert again.actions == []


async def test_a_restart_is_paced(bench: Bench) -> None:
    await bench.made(worker())
    bench.sessions.end("worker", 1)
    record = bench.store.record("worker")
    plan = bench.kind.plan(
        "worker", bench.store.desired("worker"), record, await bench.kind.observe("worker")
    )
    assert isinstance(plan, Act)
    assert plan.is_restart


async def test_after_a_reboot_what_is_to_run_is_made_and_no_more(bench: Bench) -> None:
    await bench.made(worker())
    bench.want(worker(name="off", state="stopped"))
    await bench.settle("off")
    bench.reboot()
    record = bench.store.record("worker")
    plan = bench.kind.plan("worker", bench.store.desired("worker"), record, None)
    assert isinstance(plan, Act)
    assert not plan.drift
    assert isinstance(await bench.settle(), Converged)
    assert isinstance(await bench.settle("off"), Converged)
    assert bench.sessions.names() == ["worker"]


async def test_what_concluded_is_not_run_again_after_a_reboot(bench: Bench) -> None:
    await bench.made(worker(restart="never"))
    bench.sessions.end("worker", 0)
    await bench.settle()
    bench.reboot()
    assert await bench.settle() == Converged("Completed")
    assert bench.sessions.names() == []
    bench.want(worker(restart="always"))
    assert await bench.settle() == Converged()
    bench.want(worker(restart="never", command=["/usr/bin/top", "-b"]))
    assert await bench.settle() == Converged()
    assert bench.sessions.names() == ["worker"]


async def test_what_concluded_is_run_again_for_what_it_restarts_on(bench: Bench) -> None:
    await bench.made(worker(restart="never"), restart_token="1")
    bench.sessions.end("worker", 2)
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    bench.sessions.kill_by_hand("worker")
    assert isinstance(await bench.settle(), Wait)
    assert (await bench.detail()).exit_code == 2
    bench.want(worker(restart="never"), restart_token="2")
    assert await bench.settle() == Converged()


@pytest.mark.parametrize("ended", [True, False])
async def test_it_restarts_once_for_what_it_restarts_on(bench: Bench, ended: bool) -> None:
    await bench.made(worker(restart="never"), restart_token="1")
    if ended:
        bench.sessions.end("worker", 0)
    bench.want(worker(restart="never"), restart_token="2")
    assert await bench.settle() == Converged()
    assert bench.done() == ["respawn"]
    bench.sessions.calls.clear()
    assert (await bench.once()).actions == []


@pytest.mark.parametrize("ended", [True, False])
async def test_a_restart_that_was_cut_is_done(bench: Bench, ended: bool) -> None:
    await bench.made(worker(restart="never"), restart_token="1")
    bench.want(worker(restart="never"), restart_token="2")
    bench.sessions.fault = None

    async def cut(*_args: Any) -> None:
        raise Cut

    respawn, bench.sessions.respawn = bench.sessions.respawn, cut  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.once()
    bench.sessions.respawn = respawn  # type: ignore[method-assign]
    bench.restart_agent()
    if ended:
        bench.sessions.end("worker", 0)
    plan = await planned(bench)
    assert (plan.actions[0].reason, is_change(plan)) == ("its restart was cut short", False)
    assert await bench.settle() == Converged()
    assert bench.done() == ["respawn"]


def changed(seconds: int, boot: str = "boot-1") -> str:
    """The token of a change so many seconds after the sessions of these tests are made."""
    return str(Moment(boot, 0, int((FakeClock().now() + seconds) * 1e6)))


async def planned(bench: Bench) -> Act[Any]:
    record, desired = bench.store.record("worker"), bench.store.desired("worker")
    plan = bench.kind.plan("worker", desired, record, await bench.kind.observe("worker"))
    assert isinstance(plan, Act)
    return plan


@pytest.mark.parametrize(
    ("token", "restarts"),
    [(changed(-60), 0), (changed(60), 1), (changed(60, "boot-0"), 0)],
    ids=["before it began", "after it began", "in another boot"],
)
@pytest.mark.parametrize("spec", [{}, {"restart": "on-failure"}], ids=["same spec", "new spec"])
async def test_it_restarts_for_what_changed_after_it_began(
    bench: Bench, token: str, restarts: int, spec: dict[str, Any]
) -> None:
    """Also for the first token, which comes with `restart_on` or with what that names."""
    await bench.made(worker())
    bench.want(worker(**spec), restart_token=token)
    assert await bench.settle() == Converged()
    assert bench.done() == ["respawn"] * restarts
    assert (await bench.once()).actions == []


async def test_to_restart_on_fewer_is_no_restart(bench: Bench) -> None:
    await bench.made(worker())
    bench.want(worker(), restart_token=changed(60))
    await bench.settle()
    bench.want(worker(), restart_token=changed(30))
    assert await bench.settle() == Converged()
    assert bench.done() == ["respawn"]


@pytest.mark.parametrize(("seconds", "runs"), [(-60, 0), (60, 1)])
async def test_what_concluded_and_is_gone_runs_again_for_a_later_change(
    bench: Bench, seconds: int, runs: int
) -> None:
    await bench.made(worker(restart="never"))
    bench.sessions.end("worker", 0)
    await bench.settle()
    bench.sessions.kill_by_hand("worker")
    bench.want(worker(restart="never"), restart_token=changed(seconds))
    await bench.settle()
    assert bench.done() == ["create"] * runs


@pytest.mark.parametrize("ended", [True, False])
async def test_a_restart_is_no_change_for_others(bench: Bench, ended: bool) -> None:
    await bench.made(worker(restart="never"))
    if ended:
        bench.sessions.end("worker", 0)
    bench.want(worker(restart="never"), restart_token=changed(60))
    plan = await planned(bench)
    assert plan.actions[0].reason == "what it restarts on has changed"
    assert not is_change(plan)


@pytest.mark.parametrize("by_hand", ["kill_by_hand", "close_pane"])
async def test_what_was_ended_by_hand_is_no_change_for_others(bench: Bench, by_hand: str) -> None:
    await bench.made(worker())
    getattr(bench.sessions, by_hand)("worker")
    assert not is_change(await planned(bench))
    bench.want(worker(command=["/usr/bin/top", "-b"]))
    assert is_change(await planned(bench))


async def test_a_first_session_is_a_change_for_others(bench: Bench) -> None:
    bench.want(worker())
    assert is_change(await planned(bench))


async def test_beginning_to_depend_on_others_is_no_restart(bench: Bench) -> None:
    await bench.made(worker())
    bench.want(worker(restart="on-failure"), restart_token="1")
    assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_another_spec_under_the_same_token_is_no_restart(bench: Bench) -> None:
    await bench.made(worker(), restart_token="1")
    bench.want(worker(restart="on-failure"), restart_token="1")
    assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_variables_of_files_are_read_and_a_change_is_found(bench: Bench) -> None:
    bench.env_files.files["/srv/env"] = b"A=file\nB=file\n"
    await bench.made(worker(env_files=["/srv/env"], env={"B": "spec"}))
    assert bench.sessions.get("worker").env == {"A": "file", "B": "spec"}
    bench.env_files.files["/srv/env"] = b"A=other\n"
    assert await bench.settle() == Converged()
    assert bench.sessions.get("worker").env == {"A": "other", "B": "spec"}
    del bench.env_files.files["/srv/env"]
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, bench.sessions.names()) == ("EnvFileMissing", ["worker"])


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "EnvFileMissing"), (b"no equals", "EnvFileInvalid")]
)
async def test_a_file_that_goes_bad_meanwhile(
    bench: Bench, content: bytes | None, reason: str
) -> None:
    bench.env_files.files["/srv/env"] = b"A=1"
    bench.want(worker(env_files=["/srv/env"]))

    def before(_action: Any) -> None:
        if content is None:
            bench.env_files.files.pop("/srv/env", None)
        else:
            bench.env_files.files["/srv/env"] = content

    with pytest.raises(Transient) as caught:
        await bench.once("worker", before)
    assert (caught.value.reason, caught.value.phase) == (reason, "Blocked")
    assert bench.sessions.names() == []


async def test_what_no_record_knows_is_ours_by_its_marks(bench: Bench) -> None:
    await bench.made(worker())
    bench.store.forget("worker")
    assert await bench.settle() == Converged()
    assert (bench.done(), bench.facts()["token"]) == ([], "token-1")


async def test_what_no_record_knows_and_was_made_otherwise_is_left_alone(bench: Bench) -> None:
    await bench.made(worker())
    bench.store.forget("worker")
    bench.want(worker(command=["/usr/bin/top", "-b"]))
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, plan.phase, bench.done()) == ("OwnershipConflict", "Blocked", [])


async def test_marks_name_what_is_ours_and_strangers(bench: Bench) -> None:
    await bench.made(worker())
    bench.sessions.stranger("theirs")
    bench.sessions.stranger("stray", ours("lost", deployment="old", resource="gone"))
    known, theirs, stray = await bench.kind.marked()
    assert (known.known, known.key.name, known.facts) == (True, "worker", {"token": "token-1"})
    assert (theirs.known, theirs.name, theirs.deployment) == (False, "Session/theirs", "")
    assert (stray.known, stray.name, stray.key.name) == (False, "Session/stray", "gone")
    assert stray.claims == {"session:gone"}


async def test_what_is_shown_of_it(bench: Bench) -> None:
    assert (await bench.detail()).state == "Absent"
    await bench.made(worker())
    made = bench.sessions.get("worker")
    made.state = replace(made.state, attached=2)
    detail = await bench.detail()
    assert (detail.state, detail.ready, detail.attached) == ("Running", True, 2)
    assert detail.pid == made.state.panes[0].pid
    assert detail.since is not None
    observed = await bench.kind.observe("worker")
    assert bench.kind.instance(observed).startswith("token-1/")
    assert bench.kind.instance(None) == ""
    assert set(await bench.kind.relist()) == {"worker"}


async def test_lines_and_restarts_of_probes(bench: Bench) -> None:
    for ask in (bench.kind.logs("worker", 5), bench.kind.restart("worker")):
        with pytest.raises(Transient) as caught:
            await ask
        assert caught.value.reason == "NoSession"
    await bench.made(worker())
    bench.sessions.lines = ["one", "two"]
    assert await bench.kind.logs("worker", 1) == [LogLine("", "two")]
    await bench.kind.restart("worker")
    assert (bench.done(), (await bench.detail()).restarts) == (["respawn"], 1)


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({}, ["one", "two"]),
        ({"lines": 1}, ["two"]),
        ({"timestamps": True}, [" one", " two"]),  # each begins with its time, which is empty
        ({"since_seconds": 60}, None),
    ],
)
async def test_lines_as_an_operator_asks_for_them(
    bench: Bench, asked: dict[str, Any], lines: list[str] | None
) -> None:
    await bench.made(worker())
    bench.sessions.lines = ["one", "two"]
    state = cast(DeviceState, SimpleNamespace(desired={Key("Session", "worker"): None}))
    commands = Commands(state, {"Session": KindInstance(bench.kind)}, {}, lambda: None)
    request = json.dumps({"resource": "Session/worker", **asked}).encode()
    reply = json.loads(await commands.answer("logs", request))
    if lines is not None:
        assert reply == {"ok": True, "lines": lines}
        return
    assert reply["error"]["code"] == "NoLineTimes"
    assert "leave out --since and --follow" in reply["error"]["message"]


def test_what_the_configuration_forbids(bench: Bench) -> None:
    spec = worker(env_files=["/etc/x", "/srv/closed/x", "/srv/env"])
    assert list(bench.kind.admit(spec)) == [
        FieldError("env_files[0]", "PathOutsideRoots"),
        FieldError("env_files[1]", "PathForbidden"),
    ]
    assert bench.kind.claims(spec) == {"session:worker"}


async def test_a_spec_that_goes_away_meanwhile_makes_nothing(bench: Bench) -> None:
    bench.want(worker())
    await bench.once("worker", lambda _action: bench.store.unset("worker"))
    assert bench.sessions.names() == []


async def test_no_value_is_recorded_or_shown(bench: Bench) -> None:
    bench.env_files.files["/srv/env"] = b"B=very-secret\n"
    spec = worker(env={"A": "very-secret"}, env_files=["/srv/env"])
    bench.want(spec)
    result = await bench.once()
    shown = [repr(spec), repr(result), repr(bench.facts()), repr(await bench.detail())]
    assert not any("very-secret" in text for text in shown)
