"""Tables of the fleet: devices, deployments, findings, plans. Writes to the console it is given,
decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from harmony_fleet.observe.state import Device
from harmony_fleet.observe.status import age, heartbeat_state
from harmony_fleet.observe.view import DeploymentCounts
from harmony_fleet.output.render import Row, grid, plain
from harmony_fleet.output.tables import change_lines, refusals
from harmony_fleet.rollout.finding import RESPONSES, Finding, codes
from harmony_fleet.rollout.fleet_plan import FleetPlan
from harmony_fleet.rollout.plan import Plan
from harmony_fleet.roster.model import Roster

MOST: Final = 200
"""Lines of a table for people; ``-o json`` has them all."""
_NAMES: Final = 5


def _more(count: int, to: Console) -> None:
    if count > MOST:
        to.print(Text(f"and {count - MOST} more: -o json shows all", "dim"))


def deployments_table(counted: Sequence[DeploymentCounts], to: Console) -> None:
    """Deployments over all their devices."""
    header = ["DEPLOYMENT", "SUCCEEDED>", "FAILED>", "PENDING>", "HELD>", "LAST ERROR"]
    grid(header, map(_deployment_row, counted), to)


def _deployment_row(tally: DeploymentCounts) -> Row:
    last = tally.last_error
    counts = tally.counts
    styles = {"succeeded": "green", "failed": "red", "pending": "yellow", "held": "yellow"}
    numbers = [
        Text(str(counts[group]), styles[group] if counts[group] else "dim") for group in counts
    ]
    return [
        plain(tally.deployment),
        *numbers,
        plain(f"{last.device}: {last.phase} {last.reason}" if last else "-", ""),
    ]


def roster_table(roster: Roster, to: Console) -> None:
    """Show the roster: its generation, and the names of each section."""
    to.print(f"roster generation {roster.generation}, {len(roster.devices)} devices", style="dim")
    rows: list[Row] = [
        [Text("device"), plain(item.name), plain(item.device_class if item.enabled else "disabled")]
        for item in roster.devices[:MOST]
    ]
    rows += [
        [Text("deployment"), plain(item.name), plain(item.file or "inline", "")]
        for item in roster.deployments[:MOST]
    ]
    rows += [
        [Text("schedule"), plain(item.name), plain(item.cron if item.enabled else "disabled", "")]
        for item in roster.schedules[:MOST]
    ]
    if rows:
        grid(["WHAT", "NAME", "SAYS"], rows, to)
    sections = (roster.devices, roster.deployments, roster.schedules)
    _more(max(len(section) for section in sections), to)


def items_table(items: Sequence[Mapping[str, Any]], to: Console, *, wide: bool = False) -> None:
    """Items of one section of the roster, as `roster.views` has them. `wide` has all names."""
    rows: list[Row] = []
    for item in items[:MOST]:
        devices = item.get("devices")
        where = item["deployments"] if devices is None else devices
        rows.append(
            [
                plain(item["name"]),
                plain(_says(item), ""),
                Text(str(len(where))),
                plain((", ".join(where) if wide else _some(where)) or "-", ""),
            ]
        )
    of, at = ("DEVICE", "DEPLOYMENTS") if "deployments" in items[0] else ("NAME", "DEVICES")
    grid([of, "SAYS", "COUNT>", at], rows, to)
    _more(len(items), to)


def _says(item: Mapping[str, Any]) -> str:
    """The rest of an item in a few words."""
    if "deployments" in item:
        state = item["desired_state"] if item["enabled"] else "disabled"
        more = [f"overrides {name}" for name in item["overrides"]]
        return ", ".join([item["class"], state, *_labels(item["labels"]), *more])
    select = item["select"]
    chosen = [*([select["class"]] if select["class"] else []), *_labels(select["labels"])]
    less = [f"not {name}" for name in select["exclude"]]
    what = item["source"] if "source" in item else item["cron"] if item["enabled"] else "disabled"
    return ", ".join([what, *(chosen or ["every device"]), *less])


def _labels(labels: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in labels.items()]


def members_table(
    roster: Roster, devices: Mapping[str, Device], now: datetime, to: Console
) -> None:
    """The roster's devices, and whether each is heard."""
    rows: list[Row] = []
    for member in roster.devices[:MOST]:
        device = devices.get(member.name) or Device(member.name, None)
        heard = age(now - device.heard if device.heard else None)
        state = member.desired_state if member.enabled else "disabled"
        labels = ", ".join(f"{key}={value}" for key, value in sorted(member.labels.items()))
        told = [plain(heartbeat_state(device, now)), Text(heard)]
        rows.append(
            [
                plain(member.name),
                plain(member.device_class, ""),
                plain(state, ""),
                *told,
                plain(labels, ""),
            ]
        )
    grid(["DEVICE", "CLASS", "WANTED", "STATE", "HEARD>", "LABELS"], rows, to)
    _more(len(roster.devices), to)


def findings_table(findings: Sequence[Finding], to: Console) -> None:
    """Each difference, and below what is safe to do about each kind."""
    rows: list[Row] = []
    for finding in findings[:MOST]:
        place = "/".join(part for part in (finding.device, finding.deployment) if part)
        rows.append(
            [
                Text(finding.code, "red"),
                plain(place, ""),
                plain(finding.resource, ""),
                plain(finding.detail, ""),
            ]
        )
    grid(["CODE", "WHERE", "RESOURCE", "DETAIL"], rows, to)
    _more(len(findings), to)
    for code, count in sorted(codes(findings).items()):
        to.print(
            Text.assemble((f"{code}", "bold"), f" ({count}): {RESPONSES[code]}"), soft_wrap=True
        )


def plan_table(made: FleetPlan, to: Console) -> None:
    """Print a plan. Devices with the same changes share their lines."""
    groups: dict[object, list[Plan]] = {}
    for item in made.plans:
        groups.setdefault((item.wire.deployment, item.action, item.changes), []).append(item)
    for group in groups.values():
        first = group[0]
        names = _some([item.wire.device for item in group])
        to.print(
            Text.assemble(plain(first.wire.deployment, "bold"), f"  {first.action}  at {names}"),
            soft_wrap=True,
        )
        for change in first.changes:
            to.print(change_lines(change), soft_wrap=True)
    for words, keys in (
        ("purge the key of", [key for key, _ in made.purges]),
        ("being removed at", made.removing),
    ):
        if keys:
            to.print(
                Text(f"{words} {_some([f'{key.device}/{key.deployment}' for key in keys])}"),
                soft_wrap=True,
            )
    for key, fields in made.overridden[:MOST]:
        to.print(
            Text(f"otherwise at {key.device} alone: {key.deployment}/{', '.join(fields)}"),
            soft_wrap=True,
        )
    refusals(made.refusals[:MOST], to)
    told = f"{len(made.plans)} to write, {len(made.purges)} to purge, {made.unchanged} unchanged"
    refused = f", {len(made.refusals)} refused" if made.refusals else ""
    to.print(Text(f"{told}{refused}; roster generation {made.generation}", "dim"), soft_wrap=True)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES])
    return shown + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
