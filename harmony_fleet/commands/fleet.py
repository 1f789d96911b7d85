"""`harmony fleet status`, `doctor` and `verify`: what stands, and how it differs from the roster."""

from __future__ import annotations

from collections.abc import Sequence

from harmony_fleet.commands.common import Common, note, run, write
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.errors import ExitCode
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe import view
from harmony_fleet.observe.state import Device
from harmony_fleet.output import fleet_tables, render
from harmony_fleet.output.render import Output
from harmony_fleet.rollout.copies import admit
from harmony_fleet.rollout.drift import classify
from harmony_fleet.rollout.finding import Finding
from harmony_fleet.rollout.fleet_apply import (
    collecting_later,
    read_fleet,
    server_time,
)
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.mark import Behind
from harmony_fleet.roster.model import Roster


def status(common: Common) -> ExitCode:
    """`harmony fleet status`: the roster's devices, and each deployment over all of them."""
    roster = roster_file(common).read()

    async def work(store: Store) -> ExitCode:
        seen = view.FleetView()
        await view.load(store, seen)
        now = await server_time(store)
        if common.output is not Output.TABLE:
            told = {
                "generation": roster.generation,
                "lineage": roster.lineage,
                "members": len(roster.devices),
            }
            write({**told, **seen.as_json(now)}, common.output)
            return ExitCode.DONE
        devices = {name: Device(name, None, seen.heard(name)) for name in seen.devices()}
        to = render.out()
        to.print(
            f"roster generation {roster.generation}, {len(roster.devices)} devices", style="dim"
        )
        if roster.devices:
            fleet_tables.members_table(roster, devices, now, to)
        if tallies := seen.deployments():
            to.print()
            fleet_tables.deployments_table(tallies, to)
        return ExitCode.DONE

    with collecting_later():
        return run(common, work)


def doctor(common: Common, *, verify: bool) -> ExitCode:
    """`harmony fleet doctor`, and `verify`, which ends with 1 where anything is found."""
    file = roster_file(common)
    roster = file.read()

    async def work(store: Store) -> ExitCode:
        behind = await _behind(store, file, roster)
        findings = [*behind, *classify(await read_fleet(store, roster, file.folder))]
        _show_findings(common, roster, findings)
        return ExitCode.NOT_CONVERGED if findings and verify else ExitCode.DONE

    with collecting_later():
        return run(common, work)


async def _behind(store: Store, file: RosterFile, roster: Roster) -> list[Finding]:
    """Describe the newer state that another copy of this home applied."""
    try:
        await admit(store, file, roster)
    except Behind as error:
        return [
            Finding(
                "", "", "", "roster-behind", f"{error.code}: {error.message.partition(': ')[2]}"
            )
        ]
    return []


def _show_findings(common: Common, roster: Roster, findings: Sequence[Finding]) -> None:
    if common.output is not Output.TABLE:
        told = [finding.as_json() for finding in findings]
        write({"generation": roster.generation, "findings": told}, common.output)
    elif findings:
        fleet_tables.findings_table(findings, render.out())
    else:
        note(f"the fleet is as roster generation {roster.generation} says")
