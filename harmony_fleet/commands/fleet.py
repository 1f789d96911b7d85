"""`harmony fleet status`, `doctor` and `verify`: what stands, and how it differs from the roster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harmony_fleet.commands.common import Common, hint, note, run, write
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe import view
from harmony_fleet.observe.state import Device
from harmony_fleet.output import fleet_tables, render
from harmony_fleet.output.render import Output
from harmony_fleet.rollout.copies import admit
from harmony_fleet.rollout.drift import classify
from harmony_fleet.rollout.finding import Finding, failing
from harmony_fleet.rollout.fleet_apply import collecting_later, server_time
from harmony_fleet.rollout.staged.carry import read_staged
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.mark import Behind
from harmony_fleet.roster.model import Roster
from scores.keys import DESIRED, parse_deployment_key
from scores.names import is_name

_SHOWN: Final = 20


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
        findings = [*behind, *classify(await read_staged(store, roster, file))]
        _show_findings(common, roster, findings)
        return ExitCode.NOT_CONVERGED if verify and failing(findings) else ExitCode.DONE

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
        if any(map(_is_of_an_invalid_key, findings)):
            hint("remove a key that names no deployment with: harmony fleet remove-key 'KEY'")
    else:
        note(f"the fleet is as roster generation {roster.generation} says")


def remove_key(common: Common, key: str) -> ExitCode:
    """`harmony fleet remove-key`: one key of ``desired-state`` that names no deployment."""
    if _names_a_deployment(key):
        raise InvalidInput(
            "ValidKey",
            f"cannot remove the key {key}: it names a deployment",
            "take that off its device with: harmony delete DEPLOYMENT --device NAME",
        )

    async def work(store: Store) -> ExitCode:
        there = await store.entries(DESIRED)
        if key not in there:
            odd = [name for name in there if not _names_a_deployment(name)]
            raise InvalidInput(
                "NotFound",
                f"cannot find the key {key} in {DESIRED}",
                f"keys there that name no deployment: {', '.join(odd[:_SHOWN]) or 'not one'}",
            )
        revision = there[key].revision
        await store.delete_any(DESIRED, key, revision)
        if common.output is not Output.TABLE:
            write({"key": key, "revision": revision, "removed": True}, common.output)
        else:
            note(f"removed the key {key} at revision {revision}; devices tell so within a minute")
        return ExitCode.DONE

    return run(common, work)


def _names_a_deployment(key: str) -> bool:
    parts = parse_deployment_key(key)
    return parts is not None and is_name(parts.device) and is_name(parts.deployment)


def _is_of_an_invalid_key(finding: Finding) -> bool:
    place = f"{finding.device}.{finding.deployment}"
    return finding.detail.startswith("InvalidKey ") or (
        bool(finding.deployment) and not _names_a_deployment(place)
    )
