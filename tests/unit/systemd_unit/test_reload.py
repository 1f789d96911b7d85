"""One reload serves a burst; a unit that hangs holds it up boundedly; who comes too late gets
another.
"""

from __future__ import annotations

import anyio
import pytest

from harmony_agent.adapters.systemd.reload_batch import Reloads
from harmony_agent.core.errors import Terminal, Transient


class Manager:
    """Counts reloads; `gate` holds one back; `error` fails it."""

    def __init__(self, *, open_gate: bool = True) -> None:
        self.begun = self.ended = 0
        self.gate = anyio.Event()
        self.error: Transient | Terminal | None = None
        if open_gate:
            self.gate.set()

    async def reload(self) -> None:
        self.begun += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.ended += 1


async def test_one_reload_for_all_that_are_expected() -> None:
    manager = Manager()
    reloads = Reloads(manager.reload, patience=30)
    names = [f"{number}.service" for number in range(50)]
    reloads.batch_begin([*names, "unchanged.service"])

    async def write(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        await reloads.served(name)
        assert manager.ended == 1

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(write, name)
        await anyio.wait_all_tasks_blocked()
        assert manager.begun == 0
        reloads.batch_end("unchanged.service")
        reloads.batch_end("unknown.service")
    assert manager.begun == 1


async def test_nobody_is_waited_for_when_nobody_is_expected() -> None:
    manager = Manager()
    reloads = Reloads(manager.reload, patience=30)
    await reloads.served("a.service")
    await reloads.served("a.service")
    assert manager.ended == 2


async def test_what_hangs_is_waited_for_boundedly() -> None:
    manager = Manager()
    reloads = Reloads(manager.reload, patience=0.02)
    reloads.batch_begin(["hangs.service", "a.service"])
    await reloads.served("a.service")
    assert manager.ended == 1


async def test_who_writes_while_a_reload_runs_gets_the_next() -> None:
    manager = Manager(open_gate=False)
    reloads = Reloads(manager.reload)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloads.served, "a.service")
        await anyio.wait_all_tasks_blocked()
        assert manager.begun == 1
        tasks.start_soon(reloads.served, "b.service")
        tasks.start_soon(reloads.served, "c.service")
        await anyio.wait_all_tasks_blocked()
        assert manager.begun == 1
        manager.gate.set()
    assert manager.ended == 2


@pytest.mark.parametrize(
    "error", [Transient("A", "no", delay=3.0, phase="Unknown"), Terminal("B", "never")]
)
async def test_all_hear_of_a_failure(error: Transient | Terminal) -> None:
    manager = Manager(open_gate=False)
    manager.error = error
    reloads = Reloads(manager.reload)
    reloads.batch_begin(["a.service", "b.service"])
    heard: list[Transient | Terminal] = []

    async def write(name: str) -> None:
        try:
            await reloads.served(name)
        except (Transient, Terminal) as caught:
            heard.append(caught)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, "a.service")
        tasks.start_soon(write, "b.service")
        await anyio.wait_all_tasks_blocked()
        manager.gate.set()
    assert [(type(one), one.reason, str(one)) for one in heard] == [
        (type(error), error.reason, str(error))
    ] * 2
    assert [getattr(one, "delay", None) for one in heard] == [getattr(error, "delay", None)] * 2
    assert manager.begun == 1
    manager.error = None
    await reloads.served("a.service")
    assert manager.ended == 1


async def test_a_leader_that_is_cancelled_leaves_the_work_to_the_others() -> None:
    manager = Manager()
    reloads = Reloads(manager.reload, patience=30)
    reloads.batch_begin(["late.service"])
    async with anyio.create_task_group() as tasks:
        leader = anyio.CancelScope()

        async def lead() -> None:
            with leader:
                await reloads.served("a.service")

        tasks.start_soon(lead)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(reloads.served, "b.service")
        await anyio.wait_all_tasks_blocked()
        leader.cancel()
        await anyio.wait_all_tasks_blocked()
        assert manager.begun == 0
        reloads.batch_end("late.service")
    assert manager.ended == 1
