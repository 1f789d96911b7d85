"""Session: takes the steps that the plan asks for, each safe to repeat, and records what later steps
lean on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.session.actions import (
    Conclude,
    Create,
    Kill,
    Rename,
    Respawn,
    SessionAction,
)
from harmony_agent.kinds.session.facts import SessionFacts, read, write
from harmony_agent.kinds.session.observed import made_from
from harmony_agent.topology import Clock
from harmony_agent.topology.env_files import EnvFiles, read_variables
from harmony_agent.topology.sessions import NewSession, SessionMark, Sessions
from scores.session import Session


class Applier:
    """Changes the sessions of one socket. `new_token` gives what nobody can guess."""

    def __init__(
        self,
        sessions: Sessions,
        env_files: EnvFiles,
        view: KindView[Session],
        clock: Clock,
        *,
        installation: str,
        boot_id: str,
        new_token: Callable[[], str],
    ) -> None:
        self._sessions, self._env_files, self._view = sessions, env_files, view
        self._clock, self._installation, self._boot_id = clock, installation, boot_id
        self._new_token = new_token

    async def apply(self, action: SessionAction) -> None:
        """Take one step."""
        name = action.name
        match action:
            case Create():
                await self._create(name)
            case Kill():
                await self._sessions.kill(action.id, action.token)
            case Rename():
                await self._sessions.rename(action.id, action.token, name)
            case Respawn():
                await self._respawn(action)
            case Conclude():
                facts = replace(
                    self._facts(name), concluded=action.run, final_code=action.exit_code
                )
                await self._note(name, facts)
            case _:
                assert_never(action)

    def _facts(self, name: str) -> SessionFacts:
        return read(self._view.record(name))

    async def _note(self, name: str, facts: SessionFacts) -> None:
        if facts != self._facts(name):
            await self._view.note(name, write(facts))

    def _now(self) -> int:
        return int(self._clock.now())

    async def _create(self, name: str) -> None:
        """Record the token first: a session that no record knows is never left behind."""
        desired = self._view.desired(name)
        if desired is None:
            return
        digests, variables = await read_variables(self._env_files, desired.spec.env_files)
        mark = SessionMark(
            self._installation,
            desired.deployment,
            name,
            self._new_token(),
            made_from(desired.spec, digests),
        )
        await self._note(name, self._first_facts(desired, mark))
        await self._sessions.create(
            NewSession(
                name=name,
                argv=desired.spec.command,
                mark=mark,
                started=self._now(),
                working_dir=desired.spec.working_dir,
                env={**variables, **desired.spec.env},
            )
        )

    def _first_facts(self, desired: Desired[Session], mark: SessionMark) -> SessionFacts:
        """The facts of a new session; what was counted stays while the spec is the same."""
        old = self._facts(desired.spec.name)
        kept = old if old.boot == self._boot_id else SessionFacts()
        return SessionFacts(
            token=mark.token,
            made=mark.spec,
            boot=self._boot_id,
            restarts=kept.restarts,
            ended=kept.ended,
            exit_code=kept.exit_code,
            restart_token=desired.restart_token,
        )

    async def _respawn(self, action: Respawn) -> None:
        """Note it, then do it: as long as that run is still there, it wasn't done."""
        facts, desired = self._facts(action.name), self._view.desired(action.name)
        token = desired.restart_token if desired is not None else ""
        new = replace(facts, boot=self._boot_id, restart_token=token, restart_from_run=action.run)
        if action.ended and facts.ended != action.ended:
            new = replace(
                new,
                restarts=facts.restarts + 1,
                ended=action.ended,
                exit_code=action.exit_code,
            )
        await self._note(action.name, new)
        await self._sessions.respawn(action.id, action.token, action.pane, self._now())

    async def revive(self, name: str, ident: str, pane: str) -> None:
        """Restart it for its liveness probe, counted first."""
        facts = self._facts(name)
        await self._note(name, replace(facts, restarts=facts.restarts + 1))
        await self._sessions.respawn(ident, facts.token, pane, self._now())
