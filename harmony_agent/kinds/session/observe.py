"""Session: one list call shows all that there is. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harmony_agent.core.reconciler import KindView, Mark
from harmony_agent.core.resources import Key
from harmony_agent.kinds.session.facts import read
from harmony_agent.kinds.session.observed import Observed, sort_out
from harmony_agent.topology.env_files import EnvFiles
from harmony_agent.topology.sessions import Sessions, SessionState
from scores.session import Session


class Observer:
    """Looks at the sessions of one socket."""

    def __init__(
        self,
        sessions: Sessions,
        env_files: EnvFiles,
        view: KindView[Session],
        installation: str,
    ) -> None:
        self._sessions, self._env_files, self._view = sessions, env_files, view
        self._installation = installation

    async def relist(self) -> dict[str, Observed]:
        """All that is wanted or owned and exists. Sessions that aren't ours show only where they
        have a name that is wanted.
        """
        found = await self._observe(self._view.names())
        return {name: seen for name, seen in found.items() if seen is not None}

    async def one(self, name: str) -> Observed | None:
        """Observe `name` now. None if there is nothing."""
        return (await self._observe((name,)))[name]

    async def _observe(self, names: Iterable[str]) -> dict[str, Observed | None]:
        listed = await self._sessions.list_sessions()
        near: dict[str, list[SessionState]] = {}
        for one in listed:
            for name in {one.name, one.mark.resource if one.mark is not None else one.name}:
                near.setdefault(name, []).append(one)
        return {name: await self._seen(name, near.get(name, ())) for name in names}

    async def _seen(self, name: str, sessions: Sequence[SessionState]) -> Observed | None:
        desired = self._view.desired(name)
        paths = desired.spec.env_files if desired is not None else ()
        digests = await self._env_files.digests(paths) if paths else {}
        found = sort_out(name, sessions, self._view.record(name), self._installation)
        if found == Observed() and not digests:
            return None
        return Observed(found.main, found.holder, found.ambiguous, digests)

    async def marked(self) -> list[Mark]:
        """List all sessions of the socket: those with this agent's marks, and strangers, which are
        told and left alone.
        """
        return [self._mark(one) for one in await self._sessions.list_sessions()]

    def _mark(self, one: SessionState) -> Mark:
        mark = one.mark
        if mark is None or mark.installation != self._installation:
            return Mark("", Key("Session", one.name), f"Session/{one.name}", frozenset(), {})
        name = mark.resource
        return Mark(
            mark.deployment,
            Key("Session", name),
            f"Session/{one.name}",
            frozenset({f"session:{name}"}),
            {"token": mark.token},
            known=read(self._view.record(name)).token == mark.token,
        )
