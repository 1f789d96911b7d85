"""Whatever happens, and wherever the agent is killed: what isn't ours, or was let go of, is there
at the end as it was.

A machine of random steps: two deployments, apply, leave, orphan, adopt, strangers, the agent killed
ahead of any change that it asks of podman or of the ledger. The model is a list of what must be
there, and how.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harmony_agent.core.actions import Converged
from harmony_agent.kinds.container.payload import former_name
from tests.fakes.containers import Made
from tests.fakes.drive import Cut
from tests.unit.container.bench import Bench, web

RUNS = settings(max_examples=300, stateful_step_count=14, deadline=None)


class Life(RuleBasedStateMachine):
    """One name, one device. `spared` is id -> (name, whether it runs) of all that must outlive
    us.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.spared: dict[str, tuple[str, bool]] = {}
        self._left = -1
        engine: Any = self.bench.containers
        change, note = engine._change, self.bench.store.note

        def counted(operation: str, *arguments: str) -> None:
            self._count()
            change(operation, *arguments)

        async def noted(name: str, facts: Any) -> None:
            self._count()
            await note(name, facts)

        engine._change = counted
        self.bench.store.note = noted  # type: ignore[method-assign]

    def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise Cut

    # What people do.

    @precondition(
        lambda self: self.bench.containers.named("web") is None and not self._one_to_put_back()
    )
    @rule(running=st.booleans())
    def stranger(self, *, running: bool) -> None:
        """Somebody makes a container of that name by hand."""
        self._left = -1
        made = self.bench.containers.foreign("web", running=running)
        self.spared[made.id] = ("web", running)

    @precondition(lambda self: self._free())
    @rule(starts=st.booleans())
    def by_hand(self, *, starts: bool) -> None:
        """Its owner starts or stops what is nobody else's."""
        made = self.bench.containers.named("web")
        if made is not None:
            made.state = "running" if starts else "exited"
            self.spared[made.id] = ("web", starts)

    @rule(
        hostname=st.sampled_from(["", "h"]),
        adopt=st.booleans(),
        orphan=st.booleans(),
        stopped=st.booleans(),
        other=st.booleans(),
    )
    def want(self, *, hostname: str, adopt: bool, orphan: bool, stopped: bool, other: bool) -> None:
        """A manifest; of the other deployment only where the first has nothing of it."""
        store = self.bench.store
        if self._free():
            store.deployment = "other" if other else "web"
        fields: dict[str, Any] = {"hostname": hostname} if hostname else {}
        state = "stopped" if stopped else "running"
        on_remove = "orphan" if orphan else "delete"
        store.set_desired(web(adopt=adopt, on_remove=on_remove, state=state, **fields))

    @rule()
    def leave(self) -> None:
        """The manifest has it no more."""
        self.bench.store.unset("web")

    # What the agent does.

    @rule(at=st.integers(0, 12))
    def killed(self, at: int) -> None:
        """It is killed ahead of its change number `at`, if it makes as many, and started again."""
        self._left = at
        self._passes(3)
        self._left = -1
        self.bench.restart_agent()

    @rule()
    def settles(self) -> None:
        """It works until there is nothing to do."""
        self._left = -1
        self._passes(6)

    def _passes(self, most: int) -> None:
        for _ in range(most):
            before = self.bench.store.record("web")
            gone = self.bench.store.desired("web") is None
            try:
                result = asyncio.run(self.bench.once())
            except Cut:
                return
            finally:
                self._follow(before, gone=gone)
            if isinstance(result.plan, Converged):
                return

    def _follow(self, before: Any, *, gone: bool) -> None:
        """What the pass changed about who owns what."""
        record = self.bench.store.record("web")
        if before is not None and record is None and gone and before.on_remove == "orphan":
            self._let_go(before.facts)
        if before is None and record is not None and not record.facts.get("former"):
            self.spared.pop(
                record.facts.get("id", ""), None
            )  # exactly as wanted, without adopt: ours

    def _let_go(self, facts: Any) -> None:
        """What is ours becomes somebody's; what was set aside stays so."""
        kept = [(facts.get(kind) or {}).get("id") for kind in ("former", "retired")]
        for ident in (facts.get("id"), *kept):
            made: Made | None = self.bench.containers.made.get(ident or "")
            if made is not None:
                self.spared[made.id] = (made.name, made.state == "running")
        made = self.bench.containers.named("web")
        if made is not None:
            self.spared[made.id] = ("web", made.state == "running")

    def _free(self) -> bool:
        return self.bench.store.record("web") is None and self.bench.store.desired("web") is None

    def _one_to_put_back(self) -> bool:
        """Whether one is set aside now: a second of its name would be in its way, and that is
        waited for.
        """
        return bool(self.bench.facts().get("former"))

    @invariant()
    def nothing_is_lost(self) -> None:
        """However far it got, all of it still exists, under its name or the one that says whose it
        is.
        """
        for ident, (name, _) in self.spared.items():
            made = self.bench.containers.made.get(ident)
            assert made is not None, f"{name} is lost"
            assert made.name in (name, former_name("web", ident))

    def teardown(self) -> None:
        """All leaves: what must be there is as it was, and nothing else is there."""
        self._left = -1
        self.bench.restart_agent()
        self.bench.store.unset("web")
        self._passes(6)
        there = {
            one.id: (one.name, one.state == "running")
            for one in self.bench.containers.made.values()
        }
        assert there == self.spared
        assert self.bench.store.record("web") is None


TestLife = Life.TestCase
TestLife.settings = RUNS
