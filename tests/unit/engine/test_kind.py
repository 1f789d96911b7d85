"""A kind as the engine drives it: what it has is called, what it leaves out has a default."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import get_type_hints

import anyio
import pytest

from harmony_agent import app
from harmony_agent.core.errors import Terminal
from harmony_agent.core.reconciler import (
    Batches,
    Closes,
    EndsPasses,
    Logs,
    Marks,
    Reconciler,
    Releases,
    Remembers,
    Runs,
    RunsCommands,
    Takes,
    Watches,
)
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.kinds.container import ContainerReconciler
from harmony_agent.kinds.file import FileReconciler
from harmony_agent.kinds.network import NetworkReconciler
from harmony_agent.kinds.package import PackageReconciler
from harmony_agent.kinds.session import SessionReconciler
from harmony_agent.kinds.system_upgrade import SystemUpgradeReconciler
from harmony_agent.kinds.systemd_unit import UnitReconciler
from harmony_agent.kinds.volume import VolumeReconciler
from tests.fakes.clock import FakeClock
from tests.fakes.store import FakeStore
from tests.fakes.updater import FakeUpdater

OPTIONAL = (
    Batches,
    Closes,
    EndsPasses,
    Logs,
    Marks,
    Releases,
    Remembers,
    Runs,
    RunsCommands,
    Takes,
    Watches,
)


KINDS = (
    FileReconciler,
    UnitReconciler,
    ContainerReconciler,
    SystemUpgradeReconciler,
    SessionReconciler,
    VolumeReconciler,
    NetworkReconciler,
    PackageReconciler,
)


@pytest.mark.parametrize(
    ("kind", "has"),
    [
        (FileReconciler, {Closes, Releases, Remembers, Takes, Watches}),
        (UnitReconciler, {Batches, Closes, EndsPasses, Logs, Releases, Runs, Watches}),
        (
            ContainerReconciler,
            {Closes, EndsPasses, Logs, Marks, Releases, Runs, RunsCommands, Watches},
        ),
        (SystemUpgradeReconciler, set()),
        (SessionReconciler, {Logs, Marks, Runs, Watches}),
        (VolumeReconciler, {Closes}),
        (NetworkReconciler, {Closes}),
        (PackageReconciler, set()),
    ],
)
def test_each_kind_has_what_it_can_do_and_no_stub(kind: type, has: set[type]) -> None:
    assert {one for one in OPTIONAL if issubclass(kind, one)} == has


def methods(protocol: type) -> Iterator[tuple[str, object]]:
    """What the protocol itself asks for."""
    for name, value in vars(protocol).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield name, value


def taken(method: object) -> list[tuple[str, object, object]]:
    """The parameters of a method: their names, how they are given, and their defaults."""
    found = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", [Reconciler, *OPTIONAL])
def test_a_method_of_a_kind_is_called_as_its_protocol_says(kind: type, protocol: type) -> None:
    """`isinstance` looks at names alone: a method of another form would fail in its first call."""
    for name, method in methods(protocol):
        own = getattr(kind, name, None)
        if own is not None:
            assert taken(own) == taken(method), f"{kind.__name__}.{name}"
            assert inspect.iscoroutinefunction(own) == inspect.iscoroutinefunction(method)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, Logs)])
def test_every_kind_that_logs_gives_lines_of_the_one_form(kind: type[Logs]) -> None:
    assert get_type_hints(kind.logs)["return"] == get_type_hints(Logs.logs)["return"]


def test_every_kind_is_looked_at() -> None:
    assert {kind.kind for kind in KINDS} == set(app.KINDS)


async def test_what_a_kind_leaves_out_has_a_default() -> None:
    kind = KindInstance(
        SystemUpgradeReconciler(FakeUpdater(), FakeStore("SystemUpgrade"), FakeClock(), "pi-01")
    )
    assert kind.cached("os") is None
    assert kind.instance(None) == ""
    assert await kind.logs("os", 10) == []
    for refused in (kind.restart("os"), kind.exec_probe("os", ["true"], 1.0)):
        with pytest.raises(Terminal, match="SystemUpgrade/os: it has no process"):
            await refused
    kind.batch_begin(["os"])
    kind.batch_end("os")
    await kind.release("os")
    await kind.close()
    with anyio.move_on_after(0.01) as waiting:
        await kind.watch(lambda _name: None)
    assert waiting.cancelled_caught
