"""What ``harmony-agent plan`` says is what one pass of the engine does: for any desired, ledger and
observed state.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from harmony_agent.adapters.timezones import SystemTimezones
from harmony_agent.core import pauses
from harmony_agent.core.changes import Moment
from harmony_agent.core.decide import Now
from harmony_agent.core.resources import Key
from harmony_agent.core.steps import Claim, Execute, Gone, Hold, Release, Report, Settled, Step
from harmony_agent.engine.desired.enforcing import enforce_if_accepted
from harmony_agent.engine.reconcile.rehearse import Foreseen, Rehearsal
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.container import ContainerReconciler
from harmony_agent.topology.control_plane import StoredManifest
from scores.manifest import FieldError, decode
from tests.fakes.containers import FakeContainers, FakeDeviceNodes, FakeEnvFiles
from tests.fakes.images import puller
from tests.fakes.ledger import FakeLedger
from tests.fakes.memory_kind import MemoryFiles
from tests.unit.engine.world import DEVICE, World

FILES = ("a", "b", "c")


@dataclass
class Recorded:
    """Actions that were applied and statuses that were said, by key, oldest first."""

    applied: dict[Key, list[Any]] = field(default_factory=dict)
    said: dict[Key, list[tuple[str, str, str]]] = field(default_factory=dict)


class Device:
    """Files in memory and containers of a fake podman; an engine, or a rehearsal, over one
    ledger.
    """

    def __init__(self) -> None:
        self.world = World(self.kinds)
        self.containers = FakeContainers()
        self.allowed = {"File", "Container"}
        self.forbidden: set[str] = set()

    def kinds(self, book: DeviceState) -> dict[str, Any]:
        files = MemoryFiles(DeviceStateView(book, "File"))
        files.disk = self.world.disk
        admit = files.admit
        files.admit = lambda spec: [  # type: ignore[method-assign]
            *admit(spec), *([FieldError("path", "PathForbidden")] if spec.path in self.forbidden else [])
        ]  # fmt: skip
        containers = ContainerReconciler(
            self.containers,
            FakeEnvFiles(),
            FakeDeviceNodes(),
            SystemTimezones(),
            DeviceStateView(book, "Container"),
            device=DEVICE,
            boot_id="1",
            env_roots=["/srv"],
            now=lambda: self.containers.now,
            puller=puller(self.containers, DeviceStateView(book, "Container")),
        )
        made = {"File": files, "Container": containers}
        return {kind: one for kind, one in made.items() if kind in self.allowed}

    def book(self) -> tuple[DeviceState, dict[str, Any]]:
        """Memory as after a start, on a copy of the ledger."""
        copy = FakeLedger()
        copy.stored, copy.owned = dict(self.world.ledger.stored), dict(self.world.ledger.owned)
        copy.paused = list(self.world.ledger.paused)
        book = DeviceState(copy, lambda: "2026-01-01T00:00:00.000Z")
        kinds = self.kinds(book)
        for stored in copy.manifests():
            book.enforce(stored, decode(stored.data, device=DEVICE, deployment=stored.deployment))
        return book, kinds

    async def foresee(self) -> list[Foreseen]:
        book, kinds = self.book()
        instances = {name: KindInstance(kind) for name, kind in kinds.items()}
        now = Now(1.0, "2026-01-01T00:00:00.000Z")
        moment = Moment("1", 10**12, 2 * 10**15)  # after all that was
        return await Rehearsal(book, instances, lambda: now, lambda: moment).run()

    async def live(self, seconds: float) -> Recorded:
        """What the engine does and says in its first seconds."""
        found = Recorded()
        kinds = self.kinds

        def recording(book: DeviceState) -> dict[str, Any]:
            made = kinds(book)
            for kind, one in made.items():
                one.apply = _recording(found, kind, one.apply)
            set_status = book.set_status

            def said(key: Key, deployment: str, status: Any) -> bool:
                found.said.setdefault(key, []).append((status.phase, status.reason, status.message))
                return set_status(key, deployment, status)

            book.set_status = said  # type: ignore[method-assign]
            return made

        self.world._kinds = recording
        await self.world.start()
        await asyncio.sleep(seconds)
        await self.world.stop()
        return found


def _recording(found: Recorded, kind: str, apply: Any) -> Any:
    async def recorded(action: Any) -> None:
        found.applied.setdefault(Key(kind, action.name), []).append(action)
        await apply(action)

    return recorded


@st.composite
def scores(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some of three Files and a Container, each needing only what stands before it."""
    found: list[dict[str, Any]] = []
    paths = draw(st.permutations(["/srv/1", "/srv/2", "/srv/3"]))
    for name, path in zip(FILES, paths, strict=True):
        if draw(st.booleans()):
            found.append(
                {"kind": "File", "name": name, "path": path, "content": draw(st.sampled_from("xy"))}
            )
            if draw(st.booleans()):
                found[-1]["adopt"] = True
    if draw(st.booleans()):
        restart = draw(st.sampled_from(["always", "never"]))
        found.append(
            {"kind": "Container", "name": "job", "image": "localhost/busybox", "restart": restart}
        )
        found[-1]["state"] = draw(st.sampled_from(["running", "stopped"]))
    for index, score in enumerate(found):
        score["drift"] = draw(st.sampled_from(["enforce", "report"]))
        score["on_remove"] = draw(st.sampled_from(["delete", "orphan"]))
        before = [f"{one['kind']}/{one['name']}" for one in found[:index]]
        if before and draw(st.booleans()):
            score["after"] = [draw(st.sampled_from(before))]
        if before and score["kind"] == "Container" and draw(st.booleans()):
            score["restart_on"] = [draw(st.sampled_from(before))]
    return found


OUTSIDE = st.sampled_from([None, "x", "y", "edited"])
"""Content that somebody puts at a path; None takes it away."""


@settings(max_examples=100, deadline=None)
@given(
    first=scores(),
    second=st.none() | scores(),
    foreign=st.dictionaries(st.sampled_from(["/srv/1", "/srv/2", "/srv/3"]), st.sampled_from("xz")),
    edits=st.dictionaries(st.sampled_from(["/srv/1", "/srv/2", "/srv/3"]), OUTSIDE),
    podman=st.sampled_from(["", "exits 0", "exits 1", "removed"]),
    forbidden=st.sets(st.sampled_from(["/srv/1", "/srv/2"]), max_size=1),
    denied=st.sampled_from(["", "", "", "Container"]),
    paused=st.sampled_from(["", "", "web", "*"]),
)
def test_a_plan_says_what_one_pass_does(
    first: list[dict[str, Any]],
    second: list[dict[str, Any]] | None,
    foreign: dict[str, str],
    edits: dict[str, str | None],
    podman: str,
    forbidden: set[str],
    denied: str,
    paused: str,
) -> None:
    device = Device()
    world = device.world

    async def test() -> None:
        world.disk.update({path: content.encode() for path, content in foreign.items()})
        await world.start()
        world.publish(1, *first)
        await asyncio.sleep(30)
        await world.stop()
        await _meddle(device, edits, podman)
        if second is not None:
            _accept(device, second)
        device.forbidden, device.allowed = forbidden, device.allowed - {denied}
        if paused:
            moment = world.engine.pausing._moment()
            world.ledger.paused = [pauses.paused(paused, 600, moment)]
        foreseen = await device.foresee()
        world.plane.entries["desired-state"].clear()  # only what is in the ledger is enforced
        done = await device.live(8)
        for one in foreseen:
            event(type(one.step).__name__)
            _compare(one.key, one.step, done, device)
        assert done.applied.keys() <= {one.key for one in foreseen}
        assert not (paused and done.applied)

    world.run(test())


async def _meddle(device: Device, edits: dict[str, str | None], podman: str) -> None:
    for path, content in edits.items():
        if content is None:
            device.world.disk.pop(path, None)
        else:
            device.world.disk[path] = content.encode()
    job = device.containers.named("job")
    if job is not None and podman == "removed":
        await device.containers.remove(job.id)
    elif job is not None and job.state == "running" and podman:
        device.containers.exits("job", int(podman.split()[1]))


def _accept(device: Device, scores: list[dict[str, Any]]) -> None:
    """Persist the next generation, if the device would accept it, before anything is done for
    it.
    """
    book, kinds = device.book()
    data = device.world.publish(2, *scores, allow_prune=9)
    manifest = decode(data, device=DEVICE, deployment="web")
    if enforce_if_accepted(book, kinds, manifest) is None:
        stored = book.deployment("web").stored
        assert isinstance(stored, StoredManifest)
        device.world.ledger.stored["web"] = stored


def _compare(key: Key, step: Step, done: Recorded, device: Device) -> None:
    applied = done.applied.get(key, [])
    said = [one for one in done.said.get(key, []) if one[1] != "WaitsFor"]
    match step:
        case Execute(plan=plan):
            assert tuple(applied[: len(plan.actions)]) == plan.actions
        case Settled(phase=phase):
            assert (applied, said[0][:2]) == ([], (phase, ""))
        case Report(message=message):
            assert (applied, said[0]) == ([], ("Degraded", "DriftReported", message))
        case Hold(phase=phase, reason=reason, message=message):
            everything = done.said[key] if reason == "WaitsFor" else said
            assert (applied, everything[-1 if reason == "WaitsFor" else 0]) == (
                [],
                (phase, reason, message),
            )
        case Release() | Gone():
            assert (applied, device.world.ledger.owned.get(key)) == ([], None)
        case Claim():
            raise AssertionError("a claim leads to another step")
