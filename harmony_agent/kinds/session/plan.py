"""Session: what to do next, from what is wanted, what the ledger says and what was observed. Pure.

| observed | wanted | step |
|---|---|---|
| missing | running | create it (missing-session) |
| ours | stopped, or not at all | end it (unexpected-session, disabled-running) |
| another's of our name | running | none: OwnershipConflict |
| ours under another name | running | rename it |
| made from another spec | running | end it and create it |
"""

from __future__ import annotations

from dataclasses import replace

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.changes import Moment, first_token, is_due
from harmony_agent.core.env_files import missing
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.core.runs import final_end, runs_again
from harmony_agent.kinds.session.actions import (
    Conclude,
    Create,
    Kill,
    Rename,
    Respawn,
    SessionAction,
)
from harmony_agent.kinds.session.facts import SessionFacts, read
from harmony_agent.kinds.session.observed import Observed, made_from, main_pane, run_of, start_of
from harmony_agent.topology.sessions import Pane, SessionState
from scores.session import Session

SessionPlan = Plan[SessionAction]


def plan(
    name: str,
    desired: Desired[Session] | None,
    record: OwnershipRecord | None,
    observed: Observed | None,
    boot_id: str,
) -> SessionPlan:
    """Plan the next actions."""
    seen, facts = observed or Observed(), read(record)
    if seen.ambiguous:
        text = f"more than one session says that it is {name} of this agent: end those that aren't"
        return Wait("SessionAmbiguous", text, "Blocked", 10.0)
    if desired is None:
        return _ended(name, record, seen, "no longer wanted")
    if desired.spec.state == "stopped":
        return _ended(name, record, seen, "it is to be stopped")
    made = made_from(desired.spec, seen.env_files)
    return _Case(name, desired, record, facts, seen, boot_id, made).plan()


def _is_ours(name: str, record: OwnershipRecord | None) -> bool:
    return record is not None and f"session:{name}" in record.claims


def _kill(name: str, record: OwnershipRecord | None, main: SessionState, reason: str) -> Kill:
    disruptive = not _is_ours(name, record)
    return Kill(name=name, reason=reason, is_disruptive=disruptive, id=main.id, token=main.token)


def _ended(name: str, record: OwnershipRecord | None, seen: Observed, reason: str) -> SessionPlan:
    if seen.main is None:
        return Converged()
    return Act((_kill(name, record, seen.main, reason),), ("state",))


@frozen()
class _Case:
    name: str
    desired: Desired[Session]
    record: OwnershipRecord | None
    facts: SessionFacts
    seen: Observed
    boot_id: str
    made: str

    def plan(self) -> SessionPlan:  # noqa: PLR0911  # one return a question, in their order
        main, spec = self.seen.main, self.desired.spec
        if self.seen.holder is not None:
            text = f"a session {self.name} that isn't ours is there already: end or rename it"
            return Wait("OwnershipConflict", text, "Blocked", 10.0)
        if (unread := missing(spec.env_files, self.seen.env_files)) is not None:
            return unread
        if main is None:
            return self._missing()
        if main.mark is None or main.mark.spec != self.made:
            return self._anew(main, "it was made from another spec", "command")
        if main.name != self.name:
            rename = Rename(
                name=self.name,
                reason="it was renamed",
                is_disruptive=not _is_ours(self.name, self.record),
                id=main.id,
                token=main.token,
            )
            return Act((rename,), ("name",))
        pane = main_pane(main)
        if pane is None:
            return self._anew(main, "its own terminal was closed", "state")
        return self._over(main, pane) if pane.dead else self._up(main, pane)

    def _missing(self) -> SessionPlan:
        label, _, run = self.facts.concluded.partition(" ")
        concluded = label == self.made  # a run of this very spec was its last
        due = concluded and (self._restart_due(start_of(run)) or self._was_cut(run))
        if (
            concluded
            and not due
            and not runs_again(self.desired.spec.restart, self.facts.final_code)
        ):
            return final_end(self.facts.final_code)
        rebooted = self.facts.boot not in ("", self.boot_id)
        reason = "the device was restarted" if rebooted else "there is no such session"
        # The same again, where somebody ended it: nothing to follow for those that restart on it.
        again = bool(self.facts.token) and self.facts.made in ("", self.made)
        fields = ("state",) if again else ("name",)
        create = Create(name=self.name, reason=reason)
        return Act((create,), fields, drift=not rebooted, for_others=due)

    def _anew(self, main: SessionState, reason: str, field: str) -> SessionPlan:
        kill = _kill(self.name, self.record, main, reason)
        return Act((kill, Create(name=self.name, reason=reason)), (field,))

    def _up(self, main: SessionState, pane: Pane) -> SessionPlan:
        if self._restart_due(pane.started or main.created):
            return self._restart(main, pane)
        if self._was_cut(run_of(main, pane)):
            return self._repeat(main, pane)
        return Converged()

    def _over(self, main: SessionState, pane: Pane) -> SessionPlan:
        """Its command has ended. What is not to run again is concluded."""
        run, code = run_of(main, pane), pane.exit_code
        if self._restart_due(pane.started or main.created):
            return self._restart(main, pane)
        if self._was_cut(run) and self.facts.ended != run:
            return self._repeat(main, pane)
        if runs_again(self.desired.spec.restart, code):
            respawn = self._respawn(main, pane, f"it exited with {code}", ended=run)
            return Act((respawn,), is_restart=True)
        concluded = f"{self.made} {run}"
        if self.facts.concluded != concluded and self.record is not None:
            step = Conclude(name=self.name, reason="it has ended", run=concluded, exit_code=code)
            return Act((step,), drift=False)
        return final_end(code)

    def _restart_due(self, started: int) -> bool:
        """Return whether it was started before the last change of what it restarts on."""
        if self.record is None:
            return False
        began = Moment(self.boot_id, 0, started * 1_000_000) if started else None
        return is_due(self.desired.restart_token, self.facts.restart_token, began)

    def _was_cut(self, run: str) -> bool:
        """Return whether a restart was recorded, and the run that it was to end is still there."""
        return self.record is not None and self.facts.restart_from_run == run

    def _restart(self, main: SessionState, pane: Pane) -> SessionPlan:
        respawn = self._respawn(main, pane, "what it restarts on has changed")
        return Act((respawn,), for_others=True)

    def _repeat(self, main: SessionState, pane: Pane) -> SessionPlan:
        return Act((self._respawn(main, pane, "its restart was cut short"),), drift=False)

    def _respawn(self, main: SessionState, pane: Pane, reason: str, *, ended: str = "") -> Respawn:
        return Respawn(
            name=self.name,
            reason=reason,
            is_disruptive=not _is_ours(self.name, self.record),
            id=main.id,
            token=main.token,
            pane=pane.id,
            run=run_of(main, pane),
            ended=ended,
            exit_code=pane.exit_code,
        )


def first_facts(
    facts: SessionFacts, desired: Desired[Session], observed: Observed | None
) -> SessionFacts:
    """The facts to record at a claim: with a session of ours that no record knows, its token."""
    main = observed.main if observed is not None else None
    if not facts.token and main is not None and main.mark is not None:
        facts = SessionFacts(token=main.mark.token, made=main.mark.spec)
    if not (facts.restart_token and desired.restart_token):
        token = first_token("", desired.restart_token)
        facts = replace(facts, restart_token=token, restart_from_run="")
    return facts
