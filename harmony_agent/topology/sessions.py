"""Sessions: terminals of the device that outlive whoever looks at them.

No library, no I/O. `Sessions` is implemented over tmux and by a fake in memory; both pass one
contract suite. Its methods raise `core.errors.Transient` alone: SessionsUnavailable (no tmux),
SessionSocketUnsafe, SessionChanged (it isn't the one that was seen), SessionRefused, Timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from harmony_agent.core.frozen import frozen


@frozen()
class SessionMark:
    """The marks of a session of ours.

    `installation` is of this agent and its state directory. `token` is made for one session, and
    recorded before that is created. `spec` is what it was made from.
    """

    installation: str
    deployment: str
    resource: str
    token: str
    spec: str


@frozen()
class Pane:
    """One terminal in a session. `exit_code` is 128 and the signal's number where a signal ended it.

    `main` is whether it is the one that the session was made with; `started` and `ended` are
    seconds since 1970, 0 where that isn't known.
    """

    id: str
    pid: int
    dead: bool = False
    exit_code: int | None = None
    main: bool = False
    started: int = 0
    ended: int = 0


@frozen()
class SessionState:
    """A session as listed. `id` is the server's own, which it never gives again while it lives."""

    id: str
    name: str
    created: int
    attached: int = 0
    mark: SessionMark | None = None
    panes: tuple[Pane, ...] = ()

    @property
    def token(self) -> str:
        """The token of its mark; "" where it has none."""
        return self.mark.token if self.mark is not None else ""


@frozen()
class NewSession:
    """A session to create. `env` holds values, so it is in no repr."""

    name: str
    argv: Sequence[str]
    mark: SessionMark
    started: int
    working_dir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


class Sessions(Protocol):
    """The sessions of one socket."""

    async def version(self) -> str:
        """Version of what keeps the sessions."""
        ...

    async def list_sessions(self) -> Sequence[SessionState]:
        """All sessions, whoever made them; empty where nothing listens at the socket."""
        ...

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the resource of a session that was listed, when its command or its
        server ends, or the socket goes; run until cancelled. An event may be missed.
        """
        ...

    async def create(self, new: NewSession) -> None:
        """Create it, with its marks at once. Never takes the name of one that is there:
        SessionChanged.
        """
        ...

    async def kill(self, ident: str, token: str) -> None:
        """End the session `ident` if it still has `token`; one that is gone is no error."""
        ...

    async def rename(self, ident: str, token: str, name: str) -> None:
        """Rename the session `ident` if it still has `token`."""
        ...

    async def respawn(self, ident: str, token: str, pane: str, started: int) -> None:
        """Run the command of `pane` anew, ended or not, if its session still has `token`."""
        ...

    async def logs(self, pane: str, lines: int) -> list[str]:
        """The last lines of a pane, oldest first. A terminal keeps no times."""
        ...
