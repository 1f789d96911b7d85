"""The queue of distinct keys, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from harmony_agent.core.resources import Key
from harmony_agent.engine.reconcile.work_queue import WORKERS, WorkQueue
from tests.fakes.clock import FakeClock

A, B, C = (Key("File", name) for name in "abc")


class World:
    """A queue at work: when each key was worked on, and gates behind which a pass can be kept."""

    def __init__(self) -> None:
        self.clock = FakeClock(0.0)
        self.queue = WorkQueue(self.clock)
        self.began: list[tuple[Key, float]] = []
        self.active: Counter[Key] = Counter()
        self.most = 0
        self.gates: dict[Key, asyncio.Event] = {}
        self.during: dict[Key, list[Callable[[], None]]] = defaultdict(list)

    async def work(self, key: Key) -> None:
        self.began.append((key, self.clock.monotonic()))
        self.active[key] += 1
        assert self.active[key] == 1, "two workers for one key"
        self.most = max(self.most, self.active.total())
        if key in self.gates:
            await self.gates[key].wait()
        if self.during[key]:
            self.during[key].pop(0)()
        self.active[key] -= 1

    def close(self, key: Key) -> None:
        """From now on a pass over `key` stops in its middle."""
        self.gates[key] = asyncio.Event()

    def open(self, key: Key) -> None:
        self.gates.pop(key).set()

    def times(self, key: Key) -> list[float]:
        return [moment for other, moment in self.began if other == key]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    task = asyncio.create_task(made.queue.run(made.work))
    await made.clock.settle()
    yield made
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_key_is_worked_on_once_however_often_it_is_added(world: World) -> None:
    for _ in range(10):
        world.queue.add(A)
    world.queue.add(B)
    assert len(world.queue) == 2
    await world.clock.settle()
    assert sorted(key for key, _ in world.began) == [A, B]
    assert len(world.queue) == 0


async def test_a_key_added_while_it_is_worked_on_is_worked_on_once_more(world: World) -> None:
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    for _ in range(5):
        world.queue.add(A)
    await world.clock.settle()
    assert world.times(A) == [0]
    world.open(A)
    await world.clock.settle()
    assert world.times(A) == [0, 0]


async def test_a_key_due_while_it_is_worked_on_is_worked_on_once_more(world: World) -> None:
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    world.queue.add(A, 5)
    await world.clock.advance(10)
    assert world.times(A) == [0]
    world.open(A)
    await world.clock.settle()
    assert world.times(A) == [0, 10]


async def test_a_delay_is_kept_to_the_moment(world: World) -> None:
    world.queue.add(A, 5)
    world.queue.add(B, 2)
    await world.clock.advance(1.9)
    assert world.began == []
    await world.clock.advance(10)
    assert world.began == [(B, 2), (A, 5)]


async def test_of_two_delays_the_shorter_counts(world: World) -> None:
    world.queue.add(A, 5)
    world.queue.add(A, 9)
    world.queue.add(A, 3)
    await world.clock.advance(20)
    assert world.times(A) == [3]


async def test_an_event_makes_a_poll_sooner(world: World) -> None:
    world.queue.add(A, 60)
    await world.clock.advance(10)
    world.queue.add(A)
    await world.clock.advance(100)
    assert world.times(A) == [10]


async def test_no_event_undercuts_a_hold(world: World) -> None:
    world.queue.hold(A, 60)
    for _ in range(50):
        world.queue.add(A)
        world.queue.add(A, 0.5)
        await world.clock.advance(1)
    assert world.began == []
    await world.clock.advance(60)
    assert world.times(A) == [60]


async def test_an_event_makes_a_hold_end_sooner_that_says_so_but_not_before_its_time(
    world: World,
) -> None:
    def disturbed() -> None:
        world.queue.add(C)
        world.queue.hold(C, 5, latest=60)

    world.queue.hold(A, 5, latest=60)
    world.queue.hold(B, 5, latest=60)
    world.during[C].append(disturbed)
    world.queue.add(C)
    await world.clock.advance(1)
    world.queue.add(A)
    await world.clock.advance(100)
    assert (world.times(A), world.times(B), world.times(C)) == ([5], [60], [0, 5])


async def test_a_hold_takes_the_place_of_what_was_due(world: World) -> None:
    world.queue.add(A, 5)
    world.queue.hold(A, 60)
    await world.clock.advance(59)
    assert world.began == []
    world.queue.hold(A, 60)
    await world.clock.advance(59)
    assert world.began == []
    await world.clock.advance(1)
    assert world.times(A) == [119]


async def test_after_a_hold_is_over_events_count_again(world: World) -> None:
    world.queue.hold(A, 10)
    await world.clock.advance(10)
    world.queue.add(A)
    await world.clock.advance(5)
    world.queue.add(A)
    await world.clock.settle()
    assert world.times(A) == [10, 10, 15]


async def test_a_pass_that_holds_its_own_key_forgets_events_that_came_meanwhile(
    world: World,
) -> None:
    world.during[A].append(lambda: world.queue.hold(A, 30))
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    world.queue.add(A)
    world.open(A)
    await world.clock.advance(29)
    assert world.times(A) == [0]
    await world.clock.advance(1)
    assert world.times(A) == [0, 30]


async def test_a_newer_spec_voids_an_older_retry(world: World) -> None:
    world.queue.hold(A, 60)
    await world.clock.advance(5)
    world.queue.release(A)
    world.queue.add(A)
    await world.clock.settle()
    assert world.times(A) == [5]


async def test_a_newer_spec_voids_the_retry_of_a_pass_under_way(world: World) -> None:
    """The pass over the older spec fails after the newer one came: its backoff must not delay the
    newer one.
    """
    world.during[A].append(lambda: world.queue.hold(A, 60))
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    world.queue.release(A)
    world.queue.add(A)
    world.open(A)
    await world.clock.settle()
    assert world.times(A) == [0, 0]


async def test_the_newer_spec_itself_may_be_held(world: World) -> None:
    world.during[A] += [lambda: world.queue.hold(A, 60), lambda: world.queue.hold(A, 7)]
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    world.queue.release(A)
    world.queue.add(A)
    world.open(A)
    await world.clock.advance(6)
    assert world.times(A) == [0, 0]
    await world.clock.advance(1)
    assert world.times(A) == [0, 0, 7]


async def test_a_hung_key_blocks_no_other(world: World) -> None:
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    for second in range(1, 20):
        world.queue.add(B)
        world.queue.add(C, 0.5)
        await world.clock.advance(1)
        assert len(world.times(B)) == second
        assert len(world.times(C)) == second
    assert world.times(A) == [0]
    world.open(A)


async def test_many_side_by_side_up_to_a_bound(world: World) -> None:
    keys = [Key("File", f"f{index}") for index in range(3 * WORKERS + 5)]
    for key in keys:
        world.close(key)
        world.queue.add(key)
    await world.clock.settle()
    assert len(world.began) == WORKERS == world.most
    assert len(world.queue) == len(keys)
    first = world.began[0][0]
    world.open(first)
    await world.clock.settle()
    assert len(world.began) == WORKERS + 1
    for key in list(world.gates):
        world.open(key)
    await world.clock.advance(0)
    assert {key for key, _ in world.began} == set(keys)
    assert len(world.began) == len(keys)
    assert world.most == WORKERS


async def test_when_all_workers_hang_time_alone_starts_nothing(world: World) -> None:
    for index in range(WORKERS):
        key = Key("File", f"f{index}")
        world.close(key)
        world.queue.add(key)
    await world.clock.settle()
    world.queue.add(A, 1)
    await world.clock.advance(10)
    assert world.times(A) == []
    world.open(Key("File", "f0"))
    await world.clock.settle()
    assert world.times(A) == [10]
    for key in list(world.gates):
        world.open(key)


async def test_when_all_of_one_kind_hang_another_kind_goes_on(world: World) -> None:
    """As with a hundred containers, and podman that answers nothing."""
    hung = [Key("Container", f"c{index}") for index in range(3 * WORKERS)]
    for key in hung:
        world.close(key)
        world.queue.add(key)
    await world.clock.settle()
    for second in range(1, 5):
        world.queue.add(A)
        world.queue.add(Key("SystemdUnit", "u.service"), 0.5)
        await world.clock.advance(1)
        assert len(world.times(A)) == len(world.times(Key("SystemdUnit", "u.service"))) == second
    assert world.most == WORKERS + 1
    turns = world.queue.turns
    await world.clock.advance(10)
    assert world.queue.turns == turns  # what waits for a worker turns nothing
    for key in hung:
        world.open(key)
    await world.clock.advance(0)
    assert {key for key, _ in world.began} >= set(hung)


async def test_an_idle_queue_sleeps_without_a_timer(world: World) -> None:
    world.queue.add(A)
    await world.clock.settle()
    assert world.clock.sleeping == 0
    world.queue.add(A, 5)
    await world.clock.settle()
    assert world.clock.sleeping == 1


async def test_work_that_raises_stops_the_queue() -> None:
    """`work` handles its own errors; one that gets out is a defect and must not be lost."""
    queue = WorkQueue(FakeClock())

    async def work(_key: Key) -> None:
        raise RuntimeError("defect")

    queue.add(A)
    with pytest.raises(ExceptionGroup) as caught:
        await queue.run(work)
    assert caught.group_contains(RuntimeError, match="defect")


async def test_cancelling_stops_passes_under_way() -> None:
    queue, ended = WorkQueue(FakeClock()), []

    async def work(_key: Key) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    queue.add(A)
    with anyio.move_on_after(0.01):
        await queue.run(work)
    assert ended == [True]


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_each_wish_is_met_and_no_hold_broken(
    world: World, seed: int
) -> None:
    """A random history against a model: the last wish for a key is always followed by a pass that
    began after it.
    """
    chance = random.Random(seed)
    keys = [Key("File", name) for name in "abcd"]
    wished: dict[Key, float] = {}
    held: dict[Key, float] = {}
    for _ in range(200):
        key = chance.choice(keys)
        what = chance.random()
        if what < 0.4:
            world.queue.add(key)
            wished[key] = world.clock.monotonic()
        elif what < 0.5:
            world.queue.add(key, chance.uniform(0, 3))
        elif what < 0.6 and not world.active[key]:
            delay = chance.uniform(0, 4)
            world.queue.hold(key, delay)
            held[key] = world.clock.monotonic() + delay
        elif what < 0.7:
            world.queue.release(key)
            world.queue.add(key)
            held.pop(key, None)
            wished[key] = world.clock.monotonic()
        elif what < 0.8 and key not in world.gates:
            world.close(key)
        elif key in world.gates:
            world.open(key)
        before = len(world.began)
        await world.clock.advance(chance.choice([0, 0.1, 1]))
        for worked, moment in world.began[before:]:
            assert moment >= held.get(worked, 0) - 1e-9
    for key in list(world.gates):
        world.open(key)
    await world.clock.advance(10)
    for key, moment in wished.items():
        assert world.times(key)[-1] >= moment
    assert len(world.queue) == 0


async def test_a_poke_turns_the_dispatcher_though_there_is_nothing_to_do(world: World) -> None:
    world.close(A)
    world.queue.add(A)
    await world.clock.settle()
    for _ in range(3):
        before = world.queue.turns
        world.queue.poke()
        await world.clock.settle()
        assert world.queue.turns == before + 1
    assert world.times(A) == [0]
    world.open(A)
