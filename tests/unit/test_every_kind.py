"""What holds of every kind, over the registry: it converges, also after a crash behind any prefix of
its actions; a second pass does nothing; removal ends absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from harmony_agent.app import KINDS
from harmony_agent.core.actions import Converged
from tests.fakes.drive import Cut, Pass, run
from tests.unit.kinds_in_memory import DEVICES, Device

PASSES = 8
each_kind = pytest.mark.parametrize("kind", sorted(DEVICES))
"""The ways to a state: what was wanted before, and what is wanted then. 0 is nothing."""
WAYS = {"made": (0, 1), "changed": (1, 2), "changed back": (2, 1), "removed": (2, 0)}
each_way = pytest.mark.parametrize("way", WAYS)


def test_no_kind_is_missing() -> None:
    assert set(DEVICES) == set(KINDS)


def want(device: Device, spec: int) -> None:
    if spec:
        device.store.set_desired((device.first, device.second)[spec - 1])
    else:
        device.store.unset(device.first.name)


async def once(device: Device, before: Callable[[Any], None] = lambda _action: None) -> Pass:
    return await run(device.kind(), device.store, device.first.name, before)


async def settle(device: Device, before: Callable[[Any], None] = lambda _action: None) -> None:
    for _ in range(PASSES):
        if isinstance((await once(device, before)).plan, Converged):
            return
        await device.goes_on()
    raise AssertionError(f"{device.kind().kind} doesn't converge")


async def at_rest(device: Device) -> None:
    """A second pass does nothing, nor does one of an agent that was just started."""
    before = device.changes(), device.stands(), len(device.store.noted)
    for restart in (lambda: None, device.restart):
        restart()
        done = await once(device)
        assert (done.plan, done.actions) == (Converged(done.plan.phase), [])  # type: ignore[union-attr]
        assert (device.changes(), device.stands(), len(device.store.noted)) == before


async def clean(kind: str, way: str) -> list[str]:
    """What stands at the end of a way that nothing cuts."""
    device = DEVICES[kind]()
    for spec in WAYS[way]:
        want(device, spec)
        await settle(device)
        await at_rest(device)
    return device.stands()


def cut_behind(steps: int) -> Callable[[Any], None]:
    left: Iterator[int] = count(steps, -1)

    def before(_action: Any) -> None:
        if next(left) == 0:
            raise Cut

    return before


@each_way
@each_kind
async def test_after_a_crash_behind_any_prefix_it_ends_as_without_one(kind: str, way: str) -> None:
    end = await clean(kind, way)
    old, new = WAYS[way]
    for steps in count():
        assert steps < 30, "it never came to its end"
        device, was_cut = DEVICES[kind](), True
        want(device, old)
        await settle(device)
        want(device, new)
        with suppress(Cut):
            await settle(device, cut_behind(steps))
            was_cut = False
        device.restart()
        await settle(device)
        assert device.stands() == end
        await at_rest(device)
        if not was_cut:
            break


@each_kind
async def test_it_acts_to_converge_and_nothing_is_left_after_removal(kind: str) -> None:
    device = DEVICES[kind]()
    empty = device.stands()
    for spec in (1, 2):
        done = device.changes()
        want(device, spec)
        await settle(device)
        assert device.changes() > done or kind in ("Volume", "Package"), "it did nothing"
        assert device.store.record(device.first.name) is not None
    assert device.stands() != empty or kind in ("SystemUpgrade", "Package")
    want(device, 0)
    await settle(device)
    assert device.store.record(device.first.name) is None
    assert device.stands() == empty
