"""`harmony fleet plan`, `apply`, `reconcile`, `pull` and `controller`: what carries the roster out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_
from pathlib import Path
from typing import Any, Final

from harmony_fleet.commands.common import Common, hint, note, run, run_on, write
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.errors import ExitCode, InvalidInput, worst
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.wait import Target, Verdict
from harmony_fleet.output import fleet_tables, render, rollout_progress, tables
from harmony_fleet.output.progress import Progress
from harmony_fleet.output.render import Output
from harmony_fleet.output.rollout_progress import RolloutProgress
from harmony_fleet.rollout.apply import Result, Run, Show
from harmony_fleet.rollout.controller import Controller
from harmony_fleet.rollout.copies import admit, check_claim, take_over
from harmony_fleet.rollout.copies import pull as pull_roster
from harmony_fleet.rollout.drift import classify
from harmony_fleet.rollout.finding import failing
from harmony_fleet.rollout.fleet_apply import (
    collecting_later,
    refused_by_server,
    resync,
    settle,
    unwritten,
)
from harmony_fleet.rollout.fleet_plan import FleetPlan, Scope, refused_code
from harmony_fleet.rollout.saved_plan import check_saved, save, saved_scope
from harmony_fleet.rollout.staged.carry import (
    GOING,
    Applied,
    How,
    apply_once,
    follow,
    plan_step,
    read_staged,
)
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.model import Roster
from harmony_fleet.storage.durable import replace
from harmony_fleet.storage.regular import read_regular
from scores.keys import DeploymentKey
from scores.status import DeploymentStatus

_FEW: Final = 200
"""Results that are shown one by one."""
_SAY_SECONDS: Final = 2.0


def plan(common: Common, scope: Scope, save_to: str | None, *, dry_run: bool = False) -> ExitCode:
    """`harmony fleet plan`, and `apply --dry-run`: what an apply would do, and what differs.
    Changes nothing. With `dry_run` the server is also asked if it would take all of it.
    """
    file = roster_file(common)
    roster = file.read()
    _check_scope(roster, scope)

    async def work(store: Store) -> ExitCode:
        if not scope.take_over:
            await admit(store, file, roster)
        done = await plan_step(store, roster, file, How(scope))
        made, findings = done.plan, classify(done.fleet)
        if dry_run:
            await check_claim(store, roster.lineage)
            made = replace_(made, refusals=(*made.refusals, *await refused_by_server(store, made)))
        if common.output is Output.TABLE:
            fleet_tables.plan_table(made, render.out())
            if findings:
                fleet_tables.findings_table(findings, render.out())
        else:
            write(
                {**made.as_json(), "findings": [finding.as_json() for finding in findings]},
                common.output,
            )
        if save_to is not None and all(error.alone for _, error in made.refusals):
            _save(save_to, made)
        return refused_code(made)

    with collecting_later():
        return run(common, work)


def _save(name: str, made: FleetPlan) -> None:
    path = Path(name).resolve()
    try:
        replace(str(path), save(made))
    except OSError as error:
        raise InvalidInput(
            "PlanUnwritable", f"cannot write {path}: {error.strerror}", "choose another place"
        ) from None
    note(f"saved; carry it out with: harmony fleet apply {name}")


@dataclass(frozen=True, slots=True)
class Apply:
    """Options of an apply.

    `saved` is the file of a plan to hold to. `settled` asks for a fleet without drift.
    """

    scope: Scope = field(default_factory=Scope)
    saved: str | None = None
    wait_seconds: float | None = None
    settled: bool = False


class _Watching:
    """Progress device by device for a few, by count for many."""

    def __init__(self, shown: Progress) -> None:
        self.shown = shown
        self._settled: set[DeploymentKey] = set()
        self._total = 0
        self._said = time.monotonic()

    def waiting(self, results: Sequence[Result]) -> None:
        """These are waited for."""
        self._total = len(results)
        if self._total <= _FEW:
            self.shown.waiting(results)

    def observe(self, target: Target, status: DeploymentStatus | None, verdict: Verdict) -> None:
        """One status came."""
        if self._total <= _FEW:
            self.shown.observe(target, status, verdict)
            return
        (self._settled.discard if verdict.exit_code is None else self._settled.add)(target.key)
        if time.monotonic() - self._said >= _SAY_SECONDS:
            self._said = time.monotonic()
            note(f"{len(self._settled)} of {self._total} settled")


def apply(common: Common, how: Apply) -> ExitCode:
    """`harmony fleet apply` and `reconcile`: apply the roster under its lock, until all is written."""
    progress = _Watching(Progress(render.err(), live=common.output is Output.TABLE))
    under_way = Run(Show(waiting=progress.waiting, observe=progress.observe))
    saved = None if how.saved is None else _read_plan(how.saved)
    scope = how.scope if saved is None else saved_scope(saved)
    told: dict[str, Any] = {}

    def check(made: FleetPlan) -> None:
        if saved is not None:
            check_saved(saved, made)
        if common.output is Output.TABLE:
            fleet_tables.plan_table(made, render.out())

    async def work(store: Store) -> ExitCode:
        file = roster_file(common)
        if scope.take_over:
            await take_over(store, file, note)
        _check_scope(file.read(), scope)
        options = How(scope, replicas=common.context().replicas, check=check)
        done = await apply_once(store, file, options, under_way)
        made = done.plan
        told.update(made.as_json())
        await resync(store, classify(done.fleet))
        if how.wait_seconds is not None:
            with progress.shown:
                rolled = {name for name, one in done.staged.records.items() if one.phase in GOING}
                await settle(store, under_way, how.wait_seconds, rolled)
        codes = [*(result.exit_code for result in under_way.results), refused_code(made)]
        codes += await _rollouts(common, store, file, done, wait=how.wait_seconds is not None)
        if how.settled and worst(codes) is ExitCode.DONE:
            return await _settled(common, store, file)
        return worst(codes)

    try:
        with collecting_later():
            code = run(common, work)
    except KeyboardInterrupt:
        note(
            "stopped: what was written stays written, the roster stays as it is; go on with: harmony fleet apply"
        )
        return ExitCode.INTERRUPTED
    _show_results(common, under_way, told)
    return code


def pull(common: Common) -> ExitCode:
    """`harmony fleet pull`: the roster that was applied last, in the place of the one here."""
    file = roster_file(common)

    async def work(store: Store) -> ExitCode:
        roster, elsewhere, changed = await pull_roster(store, file)
        if common.output is not Output.TABLE:
            write(
                {"generation": roster.generation, "changed": changed, "elsewhere": elsewhere},
                common.output,
            )
            return ExitCode.DONE
        if not changed:
            note(f"nothing to pull: generation {roster.generation} is what was applied last")
            return ExitCode.DONE
        note(f"the roster is at generation {roster.generation}; the one before is {file.path}.old")
        for name in elsewhere:
            note(
                f"bring {name} from where it was applied: copies hold only what lies in {file.folder}"
            )
        return ExitCode.DONE

    return run(common, work)


async def _rollouts(
    common: Common, store: Store, file: RosterFile, done: Applied, *, wait: bool
) -> list[ExitCode]:
    """Carry on the rollouts that the apply began, or found under way; else say who does."""
    going = [one for one in done.staged.records.values() if one.phase != "Succeeded"]
    codes = []
    for record in going:
        name = record.deployment
        if not wait or record.phase not in GOING:
            note(f"{name}: {rollout_progress.words(record)}")
            hint(rollout_progress.next_step(record))
            codes.append(rollout_progress.exit_code(record))
            continue
        with RolloutProgress(render.err(), live=common.output is Output.TABLE) as progress:
            ended = await follow(store, file, name, progress.show)
        note(f"{name}: {rollout_progress.words(ended)}")
        hint(rollout_progress.next_step(ended))
        codes.append(rollout_progress.exit_code(ended))
    return codes


async def _settled(common: Common, store: Store, file: RosterFile) -> ExitCode:
    """Return whether anything differs still."""
    findings = classify(await read_staged(store, file.read(), file))
    if findings and common.output is Output.TABLE:
        fleet_tables.findings_table(findings, render.out())
    return ExitCode.NOT_CONVERGED if failing(findings) else ExitCode.DONE


def _check_scope(roster: Roster, scope: Scope) -> None:
    for name in sorted(scope.devices):
        if roster.device(name) is None:
            raise InvalidInput(
                "NotFound", f"cannot find {name} in the roster", "see: harmony fleet status"
            )


def _read_plan(name: str) -> bytes:
    try:
        return read_regular(Path(name))
    except OSError as error:
        raise InvalidInput(
            "FileUnreadable", f"cannot read {name}: {error.strerror}", "check the name"
        ) from None


def _show_results(common: Common, under_way: Run, told: dict[str, Any]) -> None:
    results = under_way.results
    if common.output is not Output.TABLE:
        write({**told, "results": [result.as_json() for result in results]}, common.output)
        return
    bad = [result for result in results if result.exit_code is not ExitCode.DONE]
    if results:
        tables.results_table(results if len(results) <= _FEW else bad[:_FEW], render.out())
    lost = unwritten(results)
    if lost:
        note(f"{len(results) - len(lost)} of {len(results)} were written; the roster stays at generation "
             f"{told.get('generation')}: go on with: harmony fleet apply")  # fmt: skip
    hints = {item.error.hint for item in under_way.refused}
    hints |= {result.hint for result in results}
    for words in sorted(hints)[:_FEW]:
        hint(words)


def controller(common: Common, seconds: float) -> ExitCode:
    """Until SIGTERM or an interrupt: exit code 0."""
    file = roster_file(common)
    file.read()

    async def work(store: Store) -> None:
        note("carrying the roster out; Ctrl-C ends it")
        await Controller(store, file, note, common.context().replicas).run(seconds)

    return run_on(common, work)
