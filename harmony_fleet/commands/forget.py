"""`harmony device forget`: nothing of a device is kept but that its credentials are withdrawn.

Each step may be repeated. What the device could still write is refused before its keys go, so that
none comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_fleet.authority import enroll, shared, sync
from harmony_fleet.authority.authority_store import Authority, exists
from harmony_fleet.commands.common import Common, forget_names, note, run, write
from harmony_fleet.context import Context
from harmony_fleet.errors import ExitCode, Refused
from harmony_fleet.nats import buckets
from harmony_fleet.nats.connection import Connection
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import check_name, list_deployments, read_device
from harmony_fleet.output.render import Output
from harmony_fleet.rollout.copies import admit
from harmony_fleet.rollout.fleet_apply import server_time
from harmony_fleet.rollout.runs.store import all_runs
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.model import Roster
from scores.task_run import TaskRun

_ENDED = frozenset({"succeeded", "failed", "skipped"})


@dataclass(frozen=True, slots=True)
class Known:
    """Facts that the buckets tell of a device: seconds since it was heard (None: it is silent), what it
    has by its own word, and the runs that wait for it.
    """

    heard: float | None
    deployments: Sequence[str]
    runs: Sequence[str]


def forget(common: Common, device: str, *, force: bool) -> ExitCode:
    """`harmony device forget`."""
    check_name("device", device)
    context = common.context()
    with _out_of_the_roster(common, context, device):
        known = _look(common, device)
        _check(device, known, force=force)
        authority = Authority.load(context.home) if exists(context.home) else None
        if authority is not None:
            _withdraw(authority, context, device)
        asyncio.run(_purge(context, device))
        ruled = authority is not None and asyncio.run(_bury(authority, context, device))
    forget_names(common, [device])
    left = list(_left(device, known, ruled=ruled))
    if common.output is not Output.TABLE:
        write({"device": device, "forgotten": True, "left": left}, common.output)
        return ExitCode.DONE
    note(f"{device} is forgotten: its credentials are withdrawn for good, and its keys are gone"
         if ruled else f"{device} is forgotten: its keys are gone")  # fmt: skip
    for words in left:
        note(words)
    return ExitCode.DONE


@contextlib.contextmanager
def _out_of_the_roster(common: Common, context: Context, device: str) -> Iterator[None]:
    """Hold the roster, so that no apply writes for the device meanwhile. Raises Refused where the
    device stands in it.
    """
    file = RosterFile(context.home)
    if not file.path.exists() and not file.seal_path.exists():
        yield
        return
    with file.locked() as roster:

        async def newest(store: Store) -> ExitCode:
            await admit(store, file, roster, any_keys=True)
            return ExitCode.DONE

        _check_roster(roster, device)
        run(common, newest)
        yield


def _check_roster(roster: Roster, device: str) -> None:
    if roster.device(device) is not None:
        raise Refused(
            "InRoster",
            f"cannot forget {device}: it stands in the roster, and apply would write for it again",
            f"first: harmony fleet device remove {device}",
        )


def _look(common: Common, device: str) -> Known:
    found: list[Known] = []

    async def work(store: Store) -> ExitCode:
        told, now = await read_device(store, device), await server_time(store)
        silent = told.heard is None or told.silent(now)
        age = None if told.heard is None or silent else (now - told.heard).total_seconds()
        has = [
            one.key.deployment
            for one in await list_deployments(store, device, None)
            if one.actual.problem
            or (one.actual.status is not None and one.actual.status.phase != "Removed")
        ]
        waiting = [one.run_uid[:8] for one in await all_runs(store) if _waits(one, device)]
        found.append(Known(age, has, waiting))
        return ExitCode.DONE

    run(common, work)
    return found[0]


def _waits(one: TaskRun, device: str) -> bool:
    """Return whether the run may ask the device yet: a cancelled one asks nobody any more."""
    targets = [target for target in one.targets if target.device == device]
    goes_on = one.phase == "Running" and not one.cancelled
    return goes_on and any(target.state not in _ENDED for target in targets)


def _check(device: str, known: Known, *, force: bool) -> None:
    if force:
        return
    if known.heard is not None:
        raise Refused(
            "DeviceHeard",
            f"cannot forget {device}: it was heard {known.heard:.0f} s ago",
            f"take it out first: docs/operate.md, or harmony device revoke {device}; --force goes on, and tells what "
            "is left undone",
        )
    if known.runs:
        raise Refused(
            "RunActive",
            f"cannot forget {device}: the run {known.runs[0]} hasn't ended, and may ask it",
            f"first: harmony upgrade cancel {known.runs[0]}; or --force",
        )


def _withdraw(authority: Authority, context: Context, device: str) -> None:
    """Withdraw what it has, here and at the servers."""
    with authority.locked():
        asyncio.run(sync.learn(authority, context))
        if device in authority.state.devices:
            enroll.revoke(authority, device)
        asyncio.run(sync.push(authority, context))


async def _purge(context: Context, device: str) -> None:
    async with Connection(context) as connection:
        await buckets.forget_wholly(connection, device)


async def _bury(authority: Authority, context: Context, device: str) -> bool:
    async with Store(context) as store:
        return await shared.bury(authority, store, device)


def _left(device: str, known: Known, *, ruled: bool) -> Iterator[str]:
    """Sentences on what is left undone. `ruled`: by this home's authority the device has credentials."""
    if known.deployments:
        yield f"left on {device}: what it had of {', '.join(known.deployments)}, as its Scores made it"
    if known.heard is not None:
        yield f"{device} is there still: it goes on with what it has"
        if not ruled:
            yield f"{device} writes its keys again: this home gave it no credentials to withdraw"
    for name in known.runs:
        yield f"the run {name} goes on to wait for {device}: harmony upgrade cancel {name}"
