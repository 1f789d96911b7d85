"""One suite for both: a fake server of sessions, and tmux on a socket of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harmony_agent.adapters.tmux.ends import MOST, Ends
from harmony_agent.adapters.tmux.holder import DIRECTORY, SystemdHolder
from harmony_agent.adapters.tmux.process import run
from harmony_agent.adapters.tmux.sessions import TmuxSessions
from harmony_agent.core.errors import Transient
from harmony_agent.topology.sessions import NewSession, SessionMark, Sessions, SessionState
from tests.fakes.sessions import FakeSessions

ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
MARK = SessionMark("installation", "web", "worker", "0123456789abcdef", "1:" + "0" * 64)


class ChildHolder:
    """A holder for a machine without systemd: the server is a child of the test."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[bytes] | None = None

    async def start(self, server: Sequence[str]) -> None:
        self.server = subprocess.Popen(list(server), env=ENV)

    async def revive(self) -> bool:
        if self.server is None or self.server.poll() is not None:
            return False
        os.kill(self.server.pid, 10)
        return True

    def stop(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()


class Real:
    """tmux, and a person who uses it."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.socket = f"{folder}/tmux.sock"
        self.holder = ChildHolder()
        self.sessions: Sessions = TmuxSessions(self.socket, self.holder, ENV)

    def tmux(self, *words: str) -> str:
        argv = ["tmux", "-S", self.socket, *words]
        done = subprocess.run(argv, env=ENV, capture_output=True, text=True, check=True)
        return done.stdout

    def stranger(self, name: str) -> None:
        self.tmux("new-session", "-d", "-s", name, "--", "/usr/bin/env", "/bin/sleep", "1000")

    def end(self, name: str) -> None:
        pid = int(self.tmux("display-message", "-p", "-t", f"={name}:", "#{pane_pid}"))
        os.kill(pid, 9)

    def rename_by_hand(self, name: str, to: str) -> None:
        self.tmux("rename-session", "-t", f"={name}", to)


class Fake(FakeSessions):
    @property
    def sessions(self) -> Sessions:
        return self

    def end(self, name: str, code: int = 137) -> None:
        super().end(name, code)


World = Real | Fake


@pytest.fixture(params=["fake", "tmux"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "fake":
        yield Fake()
        return
    real = Real(tmp_path)
    try:
        yield real
    finally:
        real.holder.stop()


def new(name: str = "worker", *argv: str, **fields: object) -> NewSession:
    made = NewSession(name, list(argv or ("/bin/sleep", "1000")), MARK, 1_800_000_000)
    return replace(made, **fields)  # type: ignore[arg-type]


async def one(world: World, name: str) -> SessionState:
    [found] = [state for state in await world.sessions.list_sessions() if state.name == name]
    return found


async def until(good: Callable[[SessionState], bool], world: World, name: str) -> SessionState:
    end = time.monotonic() + 5
    while not good(state := await one(world, name)):
        assert time.monotonic() < end, state
    return state


async def test_nothing_is_there_before_the_first(world: World) -> None:
    assert list(await world.sessions.list_sessions()) == []
    await world.sessions.kill("$0", MARK.token)


async def test_a_session_is_made_with_its_marks(world: World) -> None:
    await world.sessions.create(new())
    state = await one(world, "worker")
    [pane] = state.panes
    assert state.mark == MARK
    assert (pane.main, pane.dead, pane.exit_code, pane.started) == (
        True,
        False,
        None,
        1_800_000_000,
    )
    assert pane.pid > 0
    assert state.attached == 0


async def test_a_name_that_is_taken_is_left_alone(world: World) -> None:
    await world.sessions.create(new())
    with pytest.raises(Transient) as caught:
        await world.sessions.create(new(mark=replace(MARK, token="another")))
    assert (caught.value.reason, caught.value.phase) == ("SessionChanged", "Progressing")
    assert (await one(world, "worker")).mark == MARK


async def test_a_stranger_has_no_mark(world: World) -> None:
    await world.sessions.create(new())
    world.stranger("other")
    assert (await one(world, "other")).mark is None


async def test_the_end_of_a_command_is_seen_and_it_runs_anew(world: World) -> None:
    await world.sessions.create(new())
    world.end("worker")
    state = await until(lambda state: state.panes[0].dead, world, "worker")
    assert (state.panes[0].exit_code, state.panes[0].main) == (137, True)
    await world.sessions.respawn(state.id, MARK.token, state.panes[0].id, 1_800_000_009)
    [pane] = (await until(lambda state: not state.panes[0].dead, world, "worker")).panes
    assert (pane.started, pane.pid != state.panes[0].pid) == (1_800_000_009, True)


async def test_a_name_is_given_back(world: World) -> None:
    await world.sessions.create(new())
    world.rename_by_hand("worker", "mine")
    state = await one(world, "mine")
    await world.sessions.rename(state.id, MARK.token, "worker")
    assert (await one(world, "worker")).id == state.id


async def test_nothing_is_done_to_another_s_session(world: World) -> None:
    await world.sessions.create(new())
    state = await one(world, "worker")
    await world.sessions.kill(state.id, "another")
    for step in (
        world.sessions.rename(state.id, "another", "x"),
        world.sessions.respawn(state.id, "another", state.panes[0].id, 1),
    ):
        with pytest.raises(Transient) as caught:
            await step
        assert caught.value.reason == "SessionChanged"
    assert await one(world, "worker") == state


async def test_it_is_ended_once(world: World) -> None:
    await world.sessions.create(new())
    world.stranger("other")
    state = await one(world, "worker")
    for _ in range(2):
        await world.sessions.kill(state.id, MARK.token)
    assert [state.name for state in await world.sessions.list_sessions()] == ["other"]


async def test_an_end_is_told(world: World) -> None:
    told: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.sessions.watch, told.append)
        await anyio.wait_all_tasks_blocked()
        await world.sessions.create(new())
        await world.sessions.list_sessions()
        told.clear()
        await anyio.sleep(0.3)
        assert told == []
        world.end("worker")
        await heard(told)
        assert (await one(world, "worker")).panes[0].dead
        tasks.cancel_scope.cancel()
    assert set(told) == {"worker"}


async def heard(told: list[str]) -> None:
    with anyio.fail_after(5):
        while not told:
            await anyio.sleep(0.01)


# -- tmux alone


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Real]:
    found = Real(tmp_path)
    try:
        yield found
    finally:
        found.holder.stop()


HARD = 'it\'s "a" $HOME #{pane_id} #(id) \\ ; { } ~ \n\tü %'


async def test_arguments_and_variables_come_through_as_they_are(real: Real, tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib;"
        f"pathlib.Path({str(tmp_path / 'out')!r}).write_text(repr((sys.argv[1:], os.environ['HARD'], os.getcwd())));"
        "import time; time.sleep(1000)"
    )
    argv = ["/usr/bin/python3", "-c", script, HARD, "-x", ""]
    await real.sessions.create(new("worker", *argv, env={"HARD": HARD}, working_dir="/usr"))
    out, end = tmp_path / "out", time.monotonic() + 10
    while not out.exists() or not out.read_text().endswith(")"):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert out.read_text() == repr(([HARD, "-x", ""], HARD, "/usr"))


async def test_a_single_word_is_no_text_for_a_shell(real: Real, tmp_path: Path) -> None:
    program = tmp_path / "a b;touch c"
    program.symlink_to("/usr/bin/cat")
    await real.sessions.create(new("worker", "/usr/bin/cat"))
    assert real.tmux("list-panes", "-a", "-F", "#{pane_current_command}").strip() in ("cat", "env")
    await real.sessions.create(new("odd", str(program), mark=replace(MARK, token="t2")))
    assert not (await one(real, "odd")).panes[0].dead
    assert not (tmp_path / "c").exists()


async def test_no_value_stands_in_an_argument_list(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harmony_agent.adapters.tmux import sessions as module

    seen: list[str] = []

    async def spy(argv: Sequence[str], env: dict[str, str], given: bytes = b"") -> object:
        seen.extend((*argv, *env.values()))
        return await run(argv, env, given)

    monkeypatch.setattr(module, "run", spy)
    await real.sessions.create(new(env={"TOKEN": "very-secret"}))
    assert len(seen) > 10
    assert not any("very-secret" in word for word in seen)
    assert "very-secret" not in repr(new(env={"TOKEN": "very-secret"}))


async def test_lines_are_read(real: Real) -> None:
    script = "print('\\n'.join(f'line {n}' for n in range(300)), flush=True); import time; time.sleep(1000)"
    await real.sessions.create(new("worker", "/usr/bin/python3", "-c", script))
    end, lines = time.monotonic() + 5, []
    while "line 299" not in lines:
        assert time.monotonic() < end, lines
        lines = await real.sessions.logs("%0", 100)
    assert len(lines) <= 100
    assert lines[-1] == "line 299"


async def test_the_lines_of_what_has_ended(real: Real) -> None:
    script = "print('the last words'); raise SystemExit(3)"
    await real.sessions.create(new("worker", "/usr/bin/python3", "-c", script))
    state = await until(lambda state: state.panes[0].dead, real, "worker")
    assert state.panes[0].exit_code == 3
    assert await real.sessions.logs(state.panes[0].id, 20) == ["the last words"]


async def test_a_server_without_sessions_has_none(real: Real) -> None:
    await real.sessions.create(new())
    real.tmux("kill-session", "-t", "=worker")
    assert list(await real.sessions.list_sessions()) == []
    await real.sessions.create(new())
    assert (await one(real, "worker")).mark == MARK


async def test_a_socket_that_was_taken_away_is_made_again(real: Real) -> None:
    await real.sessions.create(new())
    state = await one(real, "worker")
    Path(real.socket).unlink()
    assert (await one(real, "worker")) == state


async def test_a_server_that_was_killed_is_started_again(real: Real) -> None:
    await real.sessions.create(new())
    real.holder.stop()
    assert list(await real.sessions.list_sessions()) == []
    await real.sessions.create(new())
    assert (await one(real, "worker")).mark == MARK


@pytest.mark.parametrize("how", ["kill-server", "the server is killed", "the socket is removed"])
async def test_what_becomes_of_the_server_is_told_to_all(real: Real, how: str) -> None:
    told: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(real.sessions.watch, told.append)
        await anyio.wait_all_tasks_blocked()
        await real.sessions.create(new())
        await real.sessions.create(new("other", mark=replace(MARK, resource="other", token="t2")))
        real.stranger("stranger")
        await real.sessions.list_sessions()
        await anyio.sleep(0.3)
        told.clear()
        if how == "the socket is removed":
            Path(real.socket).unlink()
        elif how == "kill-server":
            real.tmux("kill-server")
        else:
            real.holder.stop()
        with anyio.fail_after(5):
            while set(told) != {"worker", "other"}:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_what_nobody_reaps_is_told_once() -> None:
    told: list[str] = []
    ends = Ends("/nowhere/sock")
    child = subprocess.Popen(["/bin/sleep", "1000"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.run, told.append)
        await anyio.wait_all_tasks_blocked()
        ends.follow({child.pid: ["worker"], 2**22 + 1: ["no such process"]})
        child.kill()
        await heard(told)
        for _ in range(3):
            ends.follow({child.pid: ["worker"]})
            await anyio.sleep(0.15)
        tasks.cancel_scope.cancel()
    child.wait()
    assert told == ["worker"]


async def test_no_more_descriptors_are_held_than_an_agent_may() -> None:
    ends, before = Ends("/nowhere/sock"), len(os.listdir("/proc/self/fd"))
    children = [subprocess.Popen(["/bin/sleep", "1000"]) for _ in range(3)]
    names = {child.pid: ["worker"] for child in children}
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends.run, str)
            await anyio.wait_all_tasks_blocked()
            watching = len(os.listdir("/proc/self/fd"))
            ends.follow({**dict.fromkeys(range(2**22 + 1, 2**22 + MOST), ()), **names})
            ends.follow(names)
            assert len(os.listdir("/proc/self/fd")) == watching + 3
            ends.follow({})
            assert len(os.listdir("/proc/self/fd")) == watching
            ends.follow(names)
            tasks.cancel_scope.cancel()
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_many_of_others_stand_beside_it(real: Real) -> None:
    await real.sessions.create(new())
    stranger = "-n one -- /usr/bin/env /bin/sleep 1000"
    made = "\n".join(f"new-session -d -s other-{number} {stranger}" for number in range(100))
    subprocess.run(
        ["tmux", "-S", real.socket, "source-file", "-"], input=made.encode(), env=ENV, check=True
    )
    states = await real.sessions.list_sessions()
    assert len(states) == 101
    assert [state.name for state in states if state.mark is not None] == ["worker"]
    await real.sessions.kill((await one(real, "worker")).id, MARK.token)
    assert len(await real.sessions.list_sessions()) == 100


@pytest.mark.parametrize("how", ["link", "linked folder", "open folder", "file", "another's"])
async def test_a_path_that_is_not_safe_is_refused(real: Real, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "deep"
    folder.mkdir(mode=0o700)
    socket = folder / "sock"
    await real.sessions.create(new())
    if how == "link":
        socket.symlink_to(real.socket)
    elif how == "linked folder":
        (tmp_path / "way").symlink_to(tmp_path)
        socket = tmp_path / "way" / "tmux.sock"
    elif how == "open folder":
        folder.chmod(0o777)
    elif how == "file":
        socket.write_text("")
    elif os.getuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        pytest.skip("only root can give a folder away")
    sessions = TmuxSessions(str(socket), real.holder, ENV)
    for step in (sessions.list_sessions(), sessions.create(new("x"))):
        with pytest.raises(Transient) as caught:
            await step
        assert (caught.value.reason, caught.value.phase) == ("SessionSocketUnsafe", "Blocked")


async def test_a_device_without_tmux_says_so(real: Real) -> None:
    sessions = TmuxSessions(real.socket, real.holder, {"PATH": "/nowhere"})
    for step in (sessions.version(), sessions.create(new())):
        with pytest.raises(Transient) as caught:
            await step
        assert (caught.value.reason, caught.value.phase) == ("SessionsUnavailable", "Blocked")
    assert real.holder.server is None


def counted(folder: Path, *programs: str) -> tuple[dict[str, str], Path]:
    """An environment in which each call of these programs leaves a line in the file."""
    calls = folder / "calls"
    calls.touch()
    for name in programs:
        script = folder / name
        script.write_text(f'#!/bin/sh\necho {name} >> "{calls}"\nexec /usr/bin/{name} "$@"\n')
        script.chmod(0o755)
    return {**ENV, "PATH": f"{folder}:{ENV['PATH']}"}, calls


async def test_a_look_is_one_call_of_tmux(real: Real, tmp_path: Path) -> None:
    (programs := tmp_path / "programs").mkdir()
    env, calls = counted(programs, "tmux")
    await real.sessions.create(new())
    await real.sessions.create(new("other"))
    found = await TmuxSessions(real.socket, real.holder, env).list_sessions()
    assert sorted((one.name, len(one.panes)) for one in found) == [("other", 1), ("worker", 1)]
    assert calls.read_text() == "tmux\n"


async def test_a_look_where_no_server_runs_starts_no_program(tmp_path: Path) -> None:
    (programs := tmp_path / "programs").mkdir()
    env, calls = counted(programs, "tmux", "systemctl")
    holder = SystemdHolder("user", str(tmp_path), env)
    sessions = TmuxSessions(f"{tmp_path}/{DIRECTORY}/tmux.sock", holder, env)
    assert await sessions.list_sessions() == ()
    assert calls.read_text() == ""
    (tmp_path / DIRECTORY).mkdir(mode=0o700)
    await sessions.list_sessions()
    assert calls.read_text() == "systemctl\n"


async def test_a_program_that_ends_before_it_has_read_is_no_defect() -> None:
    done = await run(["/bin/false"], ENV, b"x" * 1_000_000)
    assert (done.code, done.output) == (1, b"")
    assert (await run(["/bin/cat"], ENV, b"x" * 1_000_000)).output == b"x" * 1_000_000
