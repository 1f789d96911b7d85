"""`harmony upgrade start`, `watch`, `list`, `show`, `cancel`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rich.text import Text

from harmony_fleet.client.client import Client
from harmony_fleet.commands.common import Common, note, run_client, write
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.commands.roster_values import selector
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.observe.state import check_name
from harmony_fleet.output import render
from harmony_fleet.output.render import Output, plain
from harmony_fleet.output.run_progress import RunProgress
from harmony_fleet.rollout.runs.plan import Request
from harmony_fleet.roster.model import Roster, RosterDevice, Selector
from scores.task_run import TaskRun, TaskTarget

_STYLES: Final = {
    "succeeded": "green",
    "failed": "red",
    "repair-required": "red",
    "skipped": "dim",
    "pending": "dim",
}
_PHASES: Final = {"Succeeded": "green", "Failed": "red", "Cancelled": "yellow", "Running": "yellow"}


@dataclass(frozen=True, slots=True)
class Start:
    """Options of `upgrade start`."""

    devices: Sequence[str]
    selectors: Sequence[str]
    device_class: str | None
    everywhere: bool
    deadline: float
    max_unavailable: int
    canary: int | None
    dry_run: bool
    watch: bool


def start(common: Common, how: Start) -> ExitCode:
    """`harmony upgrade start`: freeze the plan, write the run, carry it on."""
    roster = roster_file(common).read()
    chosen = _choose(roster, how)

    async def work(client: Client) -> ExitCode:
        if not how.dry_run:
            await client.store.ensure_buckets(client.context.replicas)
        request = Request(
            str(uuid.uuid4()),
            roster.lineage,
            timedelta(seconds=how.deadline),
            how.max_unavailable,
            how.canary,
        )
        made = await client.upgrades.plan([member.name for member in chosen], request)
        if how.dry_run:
            _show(common, made)
            return ExitCode.DONE
        await client.upgrades.start(made)
        if not how.watch:
            _show(common, made)
            note(f"carry it on with: harmony upgrade watch {made.run_uid[:8]}")
            return ExitCode.DONE
        note(
            f"run {made.run_uid[:8]} has begun; should this end early: harmony upgrade watch {made.run_uid[:8]}"
        )
        return await _carry_on(common, client, made.run_uid)

    return _interruptible(common, work)


def _choose(roster: Roster, how: Start) -> list[RosterDevice]:
    """The enabled devices that were asked for; all of them only by `--all`."""
    named = set(how.devices)
    for name in sorted(named):
        check_name("device", name)
        member = roster.device(name)
        if member is None or not member.enabled:
            why = "it isn't in the roster" if member is None else "it is disabled"
            raise InvalidInput(
                "NotFound", f"cannot upgrade {name}: {why}", "see: harmony fleet status"
            )
    select = selector(how.device_class, how.selectors)
    if not (named or select or how.everywhere):
        raise InvalidInput(
            "NoDevice", "cannot choose devices", "give --select, --class, --device, or --all"
        )
    by_label = roster.picked(Selector.model_validate(select)) if select or how.everywhere else []
    picked = named | {member.name for member in by_label}
    return [member for member in roster.devices if member.name in picked]


def watch(common: Common, name: str) -> ExitCode:
    """`harmony upgrade watch`: carry a run on, from anywhere."""

    async def work(client: Client) -> ExitCode:
        return await _carry_on(common, client, name)

    return _interruptible(common, work)


def _interruptible(common: Common, work: Any) -> ExitCode:
    try:
        return run_client(common, work)
    except KeyboardInterrupt:
        note(
            "stopped: what began goes on at the devices, and no further wave begins until: harmony upgrade watch"
        )
        return ExitCode.INTERRUPTED


async def _carry_on(common: Common, client: Client, name: str) -> ExitCode:
    with RunProgress(render.err(), live=common.output is Output.TABLE) as progress:
        ended = await client.upgrades.carry_on(name, progress.show)
    _show(common, ended)
    return ExitCode.DONE if ended.phase == "Succeeded" else ExitCode.NOT_CONVERGED


def list_runs(common: Common) -> ExitCode:
    """`harmony upgrade list`."""

    async def work(client: Client) -> ExitCode:
        runs = await client.upgrades.all()
        if common.output is not Output.TABLE:
            write([_summary(item) for item in runs], common.output)
        elif runs:
            header = [
                "RUN",
                "PHASE",
                "STARTED",
                "DEADLINE",
                "DEVICES>",
                "SUCCEEDED>",
                "SCHEDULE",
                "REASON",
            ]
            render.grid(header, map(_run_row, runs), render.out())
        else:
            note("no runs yet: harmony upgrade start begins one")
        return ExitCode.DONE

    return run_client(common, work)


def _summary(item: TaskRun) -> dict[str, Any]:
    told = item.wire()
    states = [target.state for target in item.targets]
    return {
        **told,
        "targets": len(states),
        "states": {state: states.count(state) for state in sorted(set(states))},
    }


def _run_row(item: TaskRun) -> list[Text]:
    done = sum(1 for target in item.targets if target.state == "succeeded")
    times = [Text(moment[:16].replace("T", " ")) for moment in (item.created_at, item.deadline)]
    return [
        plain(item.run_uid[:8]),
        Text(item.phase, _PHASES[item.phase]),
        *times,
        Text(str(len(item.targets))),
        Text(str(done)),
        plain(item.schedule or "-", ""),
        plain(item.reason, ""),
    ]


def show(common: Common, name: str) -> ExitCode:
    """`harmony upgrade show`: 0 where it succeeded or is on its way."""

    async def work(client: Client) -> ExitCode:
        found = await client.upgrades.get(name)
        _show(common, found)
        return ExitCode.DONE if found.phase in ("Succeeded", "Running") else ExitCode.NOT_CONVERGED

    return run_client(common, work)


def cancel(common: Common, name: str) -> ExitCode:
    """`harmony upgrade cancel`: no further wave begins, and what no device has begun is taken back;
    an active apt is left to its end.
    """

    async def work(client: Client) -> ExitCode:
        found = await client.upgrades.get(name)
        if found.phase != "Running":
            note(f"run {found.run_uid[:8]} has ended already: {found.phase}")
            return ExitCode.DONE
        made = await client.upgrades.cancel(found.run_uid)
        _show(common, made)
        note(
            f"no further wave begins; what began is followed by: harmony upgrade watch {made.run_uid[:8]}"
        )
        return ExitCode.DONE

    return run_client(common, work)


def _show(common: Common, item: TaskRun) -> None:
    if common.output is not Output.TABLE:
        write(item.wire(), common.output)
        return
    to = render.out()
    told = f"  {item.reason}" if item.reason else "  cancelled" if item.cancelled else ""
    head = Text.assemble(
        (f"run {item.run_uid}", "bold"), "  ", (item.phase, _PHASES[item.phase]), plain(told, "")
    )
    to.print(head, soft_wrap=True)
    to.print(
        Text(
            f"deadline {item.deadline[:19].replace('T', ' ')} UTC, at most {item.max_unavailable} at once",
            "dim",
        )
    )
    render.grid(
        ["DEVICE", "WAVE>", "STATE", "UPDATER", "PACKAGES>", "REASON"],
        map(_target_row, item.targets),
        to,
    )


def _target_row(target: TaskTarget) -> list[Text]:
    return [
        plain(target.device),
        Text(str(target.wave)),
        Text(target.state, _STYLES.get(target.state, "yellow")),
        plain(target.phase or "-", ""),
        Text(str(target.upgraded) if target.completed_at else "-"),
        plain(target.reason, ""),
    ]
