"""Session: the reconciler that the engine drives; it hands each question to `observe`, `plan` or
`apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from harmony_agent.core.env_files import EnvFilePolicy
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.core.paths import PathSet
from harmony_agent.core.reconciler import KindView, LogLine, Mark
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.session.actions import SessionAction
from harmony_agent.kinds.session.apply import Applier
from harmony_agent.kinds.session.facts import read, write
from harmony_agent.kinds.session.observe import Observer
from harmony_agent.kinds.session.observed import Observed, main_pane, run_of
from harmony_agent.kinds.session.plan import SessionPlan, first_facts, plan
from harmony_agent.topology import Clock
from harmony_agent.topology.env_files import EnvFiles
from harmony_agent.topology.sessions import Pane, Sessions, SessionState
from scores.manifest import FieldError
from scores.names import format_time
from scores.session import Session
from scores.status import MAX_PANES, DeadPane, SessionDetail


class SessionReconciler:
    """Sessions of one socket. `env_roots` are the folders under which env files may be read; none
    of them may be at, in or above one of `closed_files`. `installation` tells this agent from
    another one of the same user.
    """

    kind = "Session"
    spec_type = Session

    def __init__(
        self,
        sessions: Sessions,
        env_files: EnvFiles,
        store: KindView[Session],
        clock: Clock,
        *,
        installation: str,
        boot_id: str,
        new_token: Callable[[], str],
        env_roots: Sequence[str],
        closed_files: Sequence[str] = (),
    ) -> None:
        self._sessions, self._boot_id = sessions, boot_id
        self._policy = EnvFilePolicy(env_roots, PathSet(closed_files))
        self._observer = Observer(sessions, env_files, store, installation)
        self._applier = Applier(
            sessions,
            env_files,
            store,
            clock,
            installation=installation,
            boot_id=boot_id,
            new_token=new_token,
        )

    def admit(self, spec: Session) -> Iterable[FieldError]:
        """List what the configuration forbids."""
        return self._policy.violations(spec.env_files)

    def claims(self, spec: Session) -> frozenset[str]:
        """Its name on the socket."""
        return frozenset({f"session:{spec.name}"})

    async def relist(self) -> Mapping[str, Observed]:
        """All that is wanted or owned and exists."""
        return await self._observer.relist()

    async def observe(self, name: str) -> Observed | None:
        """One, fresh."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[Session] | None,
        record: OwnershipRecord | None,
        observed: Observed | None,
    ) -> SessionPlan:
        """Plan the next actions."""
        return plan(name, desired, record, observed, self._boot_id)

    async def apply(self, action: SessionAction) -> None:
        """Take one step."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[Session],
        record: OwnershipRecord | None,
        observed: Observed | None,
    ) -> Facts:
        """Collect the facts to record at a claim."""
        return write(first_facts(read(record), desired, observed))

    def detail(self, record: OwnershipRecord | None, observed: Observed | None) -> SessionDetail:
        """The typed status."""
        facts, main = read(record), observed.main if observed is not None else None
        if main is None:
            code = facts.final_code if facts.concluded else facts.exit_code
            return SessionDetail(state="Absent", restarts=facts.restarts, exit_code=code)
        pane = main_pane(main)
        running = pane is not None and not pane.dead
        since = main.created if pane is None else pane.ended if pane.dead else pane.started
        return SessionDetail(
            state="Running" if running else "Exited",
            pid=pane.pid if pane is not None and running else None,
            since=format_time(datetime.fromtimestamp(since, UTC)) if since else None,
            attached=main.attached,
            restarts=facts.restarts,
            exit_code=facts.exit_code if pane is None or running else pane.exit_code,
            dead_panes=_dead(main),
            ready=running,
        )

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Hear of what ends."""
        await self._sessions.watch(changed)

    def instance(self, observed: Observed | None) -> str:
        """Its token, terminal and process."""
        main, pane = _running(observed)
        return run_of(main, pane) if main is not None and pane is not None else ""

    async def restart(self, name: str) -> None:
        """Restart its command, counted."""
        main, pane = _running(await self._observer.one(name))
        if main is None or pane is None:
            raise _nothing(name)
        await self._applier.revive(name, main.id, pane.id)

    async def marked(self) -> list[Mark]:
        """List the sessions of the socket, known to the ledger or not. One list call."""
        return await self._observer.marked()

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        """The last lines in its own terminal. It keeps no times, so none can be asked for."""
        if seconds is not None:
            text = (
                f"cannot tell the lines of Session/{name} by time: a terminal keeps no times; "
                "leave out --since and --follow"
            )
            raise Terminal("NoLineTimes", text)
        observed = await self._observer.one(name)
        pane = main_pane(observed.main) if observed is not None and observed.main else None
        if pane is None:
            raise _nothing(name)
        return [LogLine("", text) for text in await self._sessions.logs(pane.id, lines)]


def _running(observed: Observed | None) -> tuple[SessionState | None, Pane | None]:
    main = observed.main if observed is not None else None
    pane = main_pane(main) if main is not None else None
    return (main, pane) if pane is not None and not pane.dead else (None, None)


def _dead(main: SessionState) -> list[DeadPane]:
    dead = [pane for pane in main.panes if pane.dead]
    return [DeadPane(pane=pane.id, exit_code=pane.exit_code) for pane in dead[:MAX_PANES]]


def _nothing(name: str) -> Transient:
    return Transient("NoSession", f"cannot find a session of ours for {name}: it isn't made yet")
