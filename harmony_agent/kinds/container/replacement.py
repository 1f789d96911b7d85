"""Container: one container gives way to its successor, and comes back where that can't be made or
started.

The old one is stopped and gets another name before the new one is made, and is removed after the
new one has started. `retired` in its facts says so from before the first of these steps until after
the last one. Must not remove the old one: that is a step of the plan.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from harmony_agent.kinds.container import payload as made_of
from harmony_agent.kinds.container.create import Creator
from harmony_agent.kinds.container.facts import RetiredContainer
from harmony_agent.kinds.container.records import ContainerRecords
from harmony_agent.topology.containers import Containers, ContainerState, EngineRefused


class StartRefused(EngineRefused):
    """The trial was created, but can't be started."""


class Replacer:
    """Replaces containers of one device."""

    def __init__(self, containers: Containers, creator: Creator, records: ContainerRecords) -> None:
        self._containers, self._creator, self._records = containers, creator, records

    async def rehearse(self, name: str, old: str) -> None:
        """Have the engine say now, while `old` runs on, what it would say of its successor."""
        state = await self._containers.inspect(old)
        trial = await self._creator.trial(name, state.ports if state is not None else ())
        if trial is None:
            return
        try:
            await self._containers.init(trial)
        except EngineRefused as refusal:
            raise StartRefused(refusal.status, refusal.text) from None
        finally:
            with suppress(EngineRefused):  # else the next pass takes it away
                await self._containers.remove(trial)

    async def retire(self, name: str, ident: str, *, paused: bool) -> None:
        """Stop `ident` and give it another name."""
        state = await self._containers.inspect(ident)
        if state is None:
            return
        facts = self._records.facts(name)
        if facts.retired_id != ident:
            running = state.state in ("running", "paused", "stopping")
            retired = RetiredContainer(ident, running, facts.concluded, facts.concluded_with)
            await self._records.note(name, replace(facts, retired=retired))
        if paused:
            await self._containers.unpause(ident)
        await self._containers.stop(ident, self._records.grace(name))
        await self._containers.rename(ident, made_of.retired_name(name, ident))

    async def bring_back(self, name: str) -> None:
        """Put the old one in the place of what was made instead of it, and have it run if it ran."""
        facts = self._records.facts(name)
        if facts.retired is None:
            return
        old = await self._containers.inspect(facts.retired.id)
        if old is not None:
            await self._put_back(name, facts.retired, old)
        facts = self._records.facts(name)
        await self._records.note(name, replace(facts, retired=None))

    async def _put_back(self, name: str, retired: RetiredContainer, old: ContainerState) -> None:
        facts = self._records.facts(name)
        if facts.id and facts.id != old.id:
            await self._containers.remove(facts.id)
        label = old.labels.get(made_of.SPEC)
        facts = replace(facts, concluded=retired.concluded, concluded_with=retired.concluded_with)
        facts = replace(facts, id=old.id, label=label, made=None, inits=None)
        await self._records.note(name, facts)
        if old.name != name:
            await self._containers.rename(old.id, name)
        if retired.running and old.state in ("created", "exited"):
            await self._containers.start(old.id)

    async def forget(self, name: str, ident: str) -> None:
        """`ident` was removed: nothing is to be brought back any more, where it was that."""
        facts = self._records.facts(name)
        if facts.retired_id == ident:
            await self._records.note(name, replace(facts, retired=None))

    async def finish(self, name: str) -> None:
        """Leave one container of the two: the new one if it is made, else the old one. No trial
        stays.
        """
        for trial in await self._creator.trials(name):
            await self._containers.remove(trial)
        facts = self._records.facts(name)
        if facts.retired is None:
            return
        new = await self._containers.inspect(facts.id or name)
        made = new is not None and new.labels.get(made_of.SPEC) == facts.label
        if new is None or not made or new.id == facts.retired.id:
            await self.bring_back(name)
        else:
            await self._containers.remove(facts.retired.id)
            await self.forget(name, facts.retired.id)
