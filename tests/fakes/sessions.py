"""Sessions in memory: what a server of terminals does and shows, for the tests of the kind Session.

It stands under the same contract suite as tmux.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from harmony_agent.core.errors import Transient
from harmony_agent.topology.sessions import NewSession, Pane, SessionMark, SessionState

STRANGER = ["/bin/sleep", "1000"]


@dataclass
class Made:
    """A session, with what it was made from."""

    state: SessionState
    argv: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    working_dir: str | None = None


class FakeSessions:
    """Implements `topology.sessions.Sessions`. `calls` are the changes that were asked for."""

    def __init__(self) -> None:
        self.made: dict[str, Made] = {}
        self.calls: list[tuple[str, ...]] = []
        self.lines: list[str] = []
        self.fault: Transient | None = None
        self._next = 0
        self._pid = 100
        self._clock = 1_800_000_000
        self._changed: Callable[[str], None] | None = None

    # What the kind sees.

    async def version(self) -> str:
        self._fail()
        return "3.3a"

    async def list_sessions(self) -> Sequence[SessionState]:
        self._fail()
        return [made.state for made in self.made.values()]

    async def watch(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        try:
            await anyio.sleep_forever()
        finally:
            self._changed = None

    async def create(self, new: NewSession) -> None:
        self._fail()
        self.calls.append(("create", new.name))
        if any(made.state.name == new.name for made in self.made.values()):
            raise Transient("SessionChanged", "the name is taken", delay=0.5, phase="Progressing")
        made = self._add(new.name, new.argv, new.mark, new.started)
        made.env, made.working_dir = dict(new.env), new.working_dir

    async def kill(self, ident: str, token: str) -> None:
        self._fail()
        self.calls.append(("kill", ident))
        if self._is(ident, token):
            del self.made[ident]

    async def rename(self, ident: str, token: str, name: str) -> None:
        self._fail()
        self.calls.append(("rename", ident, name))
        self._need(ident, token)
        made = self.made[ident]
        made.state = replace(made.state, name=name)

    async def respawn(self, ident: str, token: str, pane: str, started: int) -> None:
        self._fail()
        self.calls.append(("respawn", ident))
        self._need(ident, token)
        self._pid += 1
        fresh = Pane(pane, self._pid, main=True, started=started)
        made = self.made[ident]
        panes = tuple(fresh if one.id == pane else one for one in made.state.panes)
        made.state = replace(made.state, panes=panes)

    async def logs(self, pane: str, lines: int) -> list[str]:
        self._fail()
        return self.lines[-lines:]

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _is(self, ident: str, token: str) -> bool:
        made = self.made.get(ident)
        mark = made.state.mark if made is not None else None
        return mark is not None and mark.token == token

    def _need(self, ident: str, token: str) -> None:
        if not self._is(ident, token):
            raise Transient("SessionChanged", "it isn't there", delay=0.5, phase="Progressing")

    # What a person or the device does.

    def _add(
        self, name: str, argv: Sequence[str], mark: SessionMark | None, started: int = 0
    ) -> Made:
        ident = f"${self._next}"
        pane = Pane(f"%{self._next}", self._pid, main=mark is not None, started=started)
        self._next += 1
        self._pid += 1
        made = Made(SessionState(ident, name, self._clock, mark=mark, panes=(pane,)), argv)
        self.made[ident] = made
        return made

    def stranger(self, name: str, mark: SessionMark | None = None) -> Made:
        """Somebody makes a session."""
        return self._add(name, STRANGER, mark)

    def get(self, name: str) -> Made:
        """The one session of this name."""
        [found] = [made for made in self.made.values() if made.state.name == name]
        return found

    def names(self) -> list[str]:
        return sorted(made.state.name for made in self.made.values())

    def end(self, name: str, code: int) -> None:
        """The command of the session ends."""
        made = self.get(name)
        dead = [
            replace(one, dead=True, exit_code=code, ended=self._clock) if one.main else one
            for one in made.state.panes
        ]
        made.state = replace(made.state, panes=tuple(dead))
        self._tell(made)

    def _tell(self, *all_made: Made) -> None:
        for made in all_made:
            if self._changed is not None and made.state.mark is not None:
                self._changed(made.state.mark.resource)

    def close_pane(self, name: str) -> None:
        """Its own terminal is closed by hand, another one stays."""
        made = self.get(name)
        made.state = replace(made.state, panes=(Pane("%999", 7),))

    def rename_by_hand(self, name: str, to: str) -> None:
        made = self.get(name)
        made.state = replace(made.state, name=to)

    def kill_by_hand(self, name: str) -> None:
        self._tell(self.made.pop(self.get(name).state.id))

    def server_dies(self) -> None:
        gone = list(self.made.values())
        self.made.clear()
        self._tell(*gone)
