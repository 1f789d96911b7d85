"""`topology.sessions.Sessions` over tmux.

Every command is read by tmux from its standard input (``source-file -``), so that no value of an
environment stands in an argument list, which all users of a device can read. The server has no
configuration file.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio

from harmony_agent.adapters.tmux import socket_path, wire
from harmony_agent.adapters.tmux.ends import Ends
from harmony_agent.adapters.tmux.holder import Holder
from harmony_agent.adapters.tmux.process import Done, run
from harmony_agent.core.errors import Transient
from harmony_agent.topology.sessions import NewSession, SessionState

_ABSENT: Final = ("no server running", "error connecting to", "server exited")
_EMPTY: Final = ("no sessions", "no current target")
_GONE: Final = ("can't find session", "can't find pane", "no such session", "no such pane")
_START_SECONDS: Final = 5.0


class TmuxSessions:
    """The sessions of one socket. `env` is the environment of tmux, which has nothing secret."""

    def __init__(self, socket: str, holder: Holder, env: Mapping[str, str]) -> None:
        self._socket, self._holder, self._env = socket, holder, env
        self._tmux = ("tmux", "-u", "-S", socket)
        self._ends = Ends(socket)

    async def version(self) -> str:
        """Version of tmux, as ``3.3a``."""
        done = await run(["tmux", "-V"], self._env)
        return done.output.decode(errors="replace").strip().removeprefix("tmux ")

    async def list_sessions(self) -> Sequence[SessionState]:
        """All sessions. Where the socket was taken away from a server that lives, it is made
        again.
        """
        listed = await self._list()
        if listed is None and await self._holder.revive():
            await self._answers()
            listed = await self._list()
        self._ends.follow(wire.processes(listed or b""))
        return wire.sessions_of(listed) if listed is not None else ()

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Tell of ends and of the socket; a name that somebody gave a session is found by a list."""
        await self._ends.run(changed)

    async def _list(self) -> bytes | None:
        """All that there is, as `wire.sessions_of` reads it; None where no server listens."""
        if not socket_path.check(self._socket, os.getuid()):
            return None
        done = await run([*self._tmux, *wire.LIST], self._env)
        if done.code == 0:
            _have_it_reap(done.output)
            return done.output
        if any(text in done.error for text in _EMPTY):
            return b""
        if any(text in done.error for text in _ABSENT):
            return None
        raise _refused("list the sessions", done)

    async def create(self, new: NewSession) -> None:
        """Create it; start the server where there is none."""
        if not await self._answers(0.0):
            await self.version()  # a holder can't tell that tmux isn't there
            server = ["tmux", "-u", "-f", "/dev/null", "-S", self._socket, "-D"]
            await self._holder.start(server)
            if not await self._answers():
                text = "cannot start the server of the sessions: its socket doesn't answer"
                raise Transient("SessionServerDown", text, phase="Blocked", delay=5.0)
        done = await self._say(wire.creation(new))
        if "duplicate session" in done.error:
            raise _changed(f"cannot create {new.name}: a session has this name already")
        if done.code != 0:
            text = (
                f"cannot create {new.name}: tmux refused; its command or working_dir may be wrong"
            )
            raise Transient("SessionRefused", text)

    async def _answers(self, seconds: float = _START_SECONDS) -> bool:
        """Wait until a server listens; False where none does in time."""
        end = time.monotonic() + seconds
        while await self._list() is None:
            if time.monotonic() >= end:
                return False
            await anyio.sleep(0.05)
        return True

    async def _say(self, text: str) -> Done:
        """Have the server read a command, which is in no argument list."""
        socket_path.check(self._socket, os.getuid())
        return await run([*self._tmux, "source-file", "-"], self._env, f"{text}\n".encode())

    async def _guarded(self, what: str, ident: str, token: str, steps: str) -> bool:
        """Do it to the session that is meant; False where that is gone."""
        done = await self._say(wire.guarded(ident, token, steps))
        if any(text in done.error for text in (*_GONE, *_ABSENT)):
            return False
        if done.code != 0:
            raise _refused(what, done)
        return done.output.decode(errors="replace").strip() != wire.GONE

    async def kill(self, ident: str, token: str) -> None:
        """End it; one that is gone is no error."""
        steps = wire.command("kill-session", "-t", ident)
        await self._guarded("end a session", ident, token, steps)

    async def rename(self, ident: str, token: str, name: str) -> None:
        """Give it this name."""
        steps = wire.command("rename-session", "-t", ident, name)
        if not await self._guarded(f"rename {name}", ident, token, steps):
            raise _changed(f"cannot rename {name}: it isn't there any more")

    async def respawn(self, ident: str, token: str, pane: str, started: int) -> None:
        """Run its command anew."""
        steps = wire.sequence(
            [
                wire.command("respawn-pane", "-k", "-t", pane),
                wire.command("set-option", "-p", "-t", pane, "@harmony_started", str(started)),
            ]
        )
        if not await self._guarded("start a session's command", ident, token, steps):
            raise _changed("cannot start the command of a session: it isn't there any more")

    async def logs(self, pane: str, lines: int) -> list[str]:
        """The last lines that stand in its terminal."""
        words = ("capture-pane", "-p", "-J", "-S", f"-{lines}", "-t", pane)
        done = await run([*self._tmux, *words], self._env)
        if done.code != 0:
            text = "cannot read the lines of a session: is it running?"
            raise Transient("LogsFailed", text)
        return wire.lines_of(done.output)[-lines:]


def _have_it_reap(output: bytes) -> None:
    """Remind the server of a process that has ended, so that the next look shows how.

    tmux 3.3 now and then misses the one signal that tells it; then the process would stay a zombie
    that counts as running.
    """
    for server in wire.unreaped(output):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(server, signal.SIGCHLD)


def _changed(text: str) -> Transient:
    return Transient("SessionChanged", text, delay=0.5, phase="Progressing")


def _refused(what: str, done: Done) -> Transient:
    return Transient("SessionRefused", f"cannot {what}: tmux refused (exit code {done.code})")
