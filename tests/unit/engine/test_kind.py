"""A kind as the engine drives it: what it has is called, what it leaves out has a default."""

from __future__ import annotations

import anyio
import pytest

from harmony_agent.core.errors import Terminal
from harmony_agent.core.reconciler import (
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
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.kinds.container import ContainerReconciler
from harmony_agent.kinds.file import FileReconciler
from harmony_agent.kinds.session import SessionReconciler
from harmony_agent.kinds.system_upgrade import SystemUpgradeReconciler
from harmony_agent.kinds.systemd_unit import UnitReconciler
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
        (SessionReconciler, {Logs, Marks, Runs}),
    ],
)
def test_each_kind_has_what_it_can_do_and_no_stub(kind: type, has: set[type]) -> None:
    assert {one for one in OPTIONAL if issubclass(kind, one)} == has


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
