"""Container: what the ledger says of one, and what is wanted of it, as the steps need it."""

from __future__ import annotations

from typing import Any, Final

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from scores.container import Container

DEFAULT_GRACE: Final = 10


class ContainerFacts:
    """The store, in the words of this kind."""

    def __init__(self, store: KindView) -> None:
        self.store = store

    def facts(self, name: str) -> dict[str, Any]:
        """Facts of `name` in the ledger."""
        record = self.store.record(name)
        return dict(record.facts) if record is not None else {}

    async def note(self, name: str, **changes: Any) -> None:
        """Record changes, unless they are recorded already; None takes a fact away."""
        facts = self.facts(name)
        changed = {key: value for key, value in (facts | changes).items() if value is not None}
        if changed != facts:
            await self.store.note(name, changed)

    def id(self, name: str) -> str:
        """Return the recorded id. Raises Transient if there is none."""
        ident = str(self.facts(name).get("id", ""))
        if not ident:
            raise Transient(
                "NoContainer", f"cannot find a container of ours for {name}: it isn't made yet"
            )
        return ident

    def spec(self, name: str) -> Container | None:
        """Desired spec of `name`."""
        desired = self.store.desired(name)
        return None if desired is None else desired.spec

    def token(self, name: str) -> str:
        """The restart token that is wanted of `name`."""
        desired = self.store.desired(name)
        return "" if desired is None else desired.restart_token

    def grace(self, name: str) -> int:
        """Seconds to stop in: the wanted ones, else those that were wanted last."""
        spec = self.spec(name)
        return (
            spec.stop_grace_seconds
            if spec is not None
            else int(self.facts(name).get("grace", DEFAULT_GRACE))
        )
