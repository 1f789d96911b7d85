"""The agent is killed behind any step, and begins anew: it comes to the same end, and leaves nothing
over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harmony_agent.core.actions import Converged
from tests.fakes.drive import Cut
from tests.unit.session.bench import Bench, worker


def fresh(bench: Bench) -> None:
    bench.want(worker())


def other_spec(bench: Bench) -> None:
    bench.want(worker(command=["/usr/bin/top", "-b"]))


def removed(bench: Bench) -> None:
    bench.store.unset("worker")


def stopped(bench: Bench) -> None:
    bench.want(worker(state="stopped"))


def ended(bench: Bench) -> None:
    bench.sessions.end("worker", 1)


def renamed(bench: Bench) -> None:
    bench.sessions.rename_by_hand("worker", "mine")


CHANGES: list[tuple[bool, Callable[[Bench], None], list[str]]] = [
    (False, fresh, ["worker"]),
    (True, other_spec, ["worker"]),
    (True, removed, []),
    (True, stopped, []),
    (True, ended, ["worker"]),
    (True, renamed, ["worker"]),
]


@pytest.mark.parametrize(
    ("made", "change", "names"), CHANGES, ids=lambda value: getattr(value, "__name__", str(value))
)
@pytest.mark.parametrize("cut_before_note", [True, False])
async def test_killed_behind_any_prefix(
    made: bool, change: Callable[[Bench], None], names: list[str], cut_before_note: bool
) -> None:
    for steps in range(8):
        bench = Bench()
        if made:
            await bench.made(worker())
        bench.sessions.stranger("theirs")
        change(bench)
        if not await _cut_after(bench, steps, before_note=cut_before_note):
            break
        bench.restart_agent()
        assert await bench.settle() == Converged()
        assert bench.sessions.names() == sorted([*names, "theirs"])
        again = await bench.once()
        assert again.actions == []
    else:
        raise AssertionError("it never came to its end")


async def _cut_after(bench: Bench, steps: int, *, before_note: bool) -> bool:
    """Make a pass that is cut at the given change; False where it ended before."""
    left = [steps]

    def count() -> None:
        if left[0] == 0:
            raise Cut
        left[0] -= 1

    def cutting(call: Any) -> Any:
        async def wrapped(*args: Any) -> None:
            if before_note:
                count()
            await call(*args)
            if not before_note:
                count()

        return wrapped

    changed = {"create": bench.sessions, "kill": bench.sessions, "rename": bench.sessions}
    changed |= {"respawn": bench.sessions}
    originals = {name: getattr(place, name) for name, place in changed.items()}
    note = bench.store.note
    for name, place in changed.items():
        setattr(place, name, cutting(originals[name]))
    bench.store.note = cutting(note)  # type: ignore[method-assign]
    try:
        await bench.settle()
    except Cut:
        return True
    finally:
        for name, place in changed.items():
            setattr(place, name, originals[name])
        bench.store.note = note  # type: ignore[method-assign]
    return False
