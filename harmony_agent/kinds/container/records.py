"""The ledger's records of containers, and what is wanted of each, as the steps need them."""

from __future__ import annotations

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.container.facts import DEFAULT_GRACE, ContainerFacts, read, write
from scores.container import Container


class ContainerRecords:
    """The kind's view of the state, in its own types."""

    def __init__(self, view: KindView[Container]) -> None:
        self._view = view

    def facts(self, name: str) -> ContainerFacts:
        """Facts of `name` in the ledger."""
        return read(self._view.record(name))

    async def note(self, name: str, facts: ContainerFacts) -> None:
        """Record the facts, unless they are recorded already."""
        if facts != self.facts(name):
            await self._view.note(name, write(facts))

    def id(self, name: str) -> str:
        """Return the recorded id. Raises Transient if there is none."""
        ident = self.facts(name).id
        if not ident:
            raise Transient(
                "NoContainer", f"cannot find a container of ours for {name}: it isn't made yet"
            )
        return ident

    def desired(self, name: str) -> Desired[Container] | None:
        """Desired spec of `name`, with its context."""
        return self._view.desired(name)

    def spec(self, name: str) -> Container | None:
        """Desired spec of `name`."""
        desired = self.desired(name)
        return None if desired is None else desired.spec

    def token(self, name: str) -> str:
        """The restart token that is wanted of `name`."""
        desired = self.desired(name)
        return "" if desired is None else desired.restart_token

    def grace(self, name: str) -> int:
        """Seconds to stop in: the wanted ones, else those that were wanted last."""
        spec, recorded = self.spec(name), self.facts(name).grace
        if spec is not None:
            return spec.stop_grace_seconds
        return recorded if recorded is not None else DEFAULT_GRACE
