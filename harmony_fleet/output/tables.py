"""Tables of plans, results, deployments and devices. Writes to the console it is given; decides
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from harmony_fleet.client.secrets import SecretRow
from harmony_fleet.errors import HarmonyError
from harmony_fleet.manifests.diff import Change, FieldChange
from harmony_fleet.nats.objects import Object
from harmony_fleet.observe import status
from harmony_fleet.observe.objects import Uses
from harmony_fleet.observe.state import Deployment, Device
from harmony_fleet.output.render import STYLES, Row, grid, moment, plain, stripped
from harmony_fleet.rollout.apply import Result
from harmony_fleet.rollout.plan import Plan
from scores.keys import DeploymentKey
from scores.names import parse_time
from scores.pause import DEVICE
from scores.status import DeploymentStatus

_DONE: Final = {
    "create": "created",
    "update": "updated",
    "remove": "removing",
    "adopt": "adopted",
    "unchanged": "unchanged",
}
_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}


def plans_table(plans: Sequence[Plan], to: Console) -> None:
    """Print the plans before they are written: a line for each deployment, its resources below.

    Devices at which the same becomes of them share it.
    """
    groups: dict[object, list[Plan]] = {}
    for item in plans:
        groups.setdefault((item.wire.deployment, item.action, item.changes), []).append(item)
    for group in groups.values():
        for item in group:
            name = plain(item.name, "bold")
            to.print(
                Text.assemble(name, f"  {item.action}  generation {item.wire.generation}"),
                soft_wrap=True,
            )
            for warning in item.warnings:
                to.print(
                    Text.assemble(("  warning: ", "yellow"), plain(warning, "")), soft_wrap=True
                )
        for change in group[0].changes:
            to.print(change_lines(change), soft_wrap=True)


def change_lines(change: Change) -> Text:
    """``~ File/motd``, and its fields below: ``content: 3 bytes, sha256:… → 4 bytes, sha256:…``."""
    text = Text.assemble(
        "  ", (_SIGNS[change.how], STYLES.get(change.how, "")), " ", plain(change.key, "")
    )
    for item in change.fields:
        text.append(f"\n      {_field_words(item)}")
    return text


def _field_words(item: FieldChange) -> Text:
    name = plain(item.field, "").plain
    if item.before is None and item.after is None:
        return Text(f"{name}: changed")
    if item.before == item.after:
        return Text(f"{name}: changed, not shown")
    before, after = (
        plain("(unset)" if value is None else value, "").plain
        for value in (item.before, item.after)
    )
    return Text(f"{name}: {before} → {after}")


def refusals(found: Iterable[tuple[DeploymentKey, HarmonyError]], to: Console) -> None:
    """Print the refused deployments and the reasons."""
    for key, error in found:
        place = plain(f"{key.device}/{key.deployment}", "")
        words = Text.assemble(
            ("refused: ", "red"), place, f"  {error.code}: ", plain(error.message, "")
        )
        to.print(words, soft_wrap=True)


def results_table(results: Sequence[Result], to: Console) -> None:
    """Print the results of an apply."""
    grid(
        ["DEVICE", "DEPLOYMENT", "RESULT", "GEN>", "PHASE", "REASON"], map(_result_row, results), to
    )


def _result_row(item: Result) -> Row:
    wire, verdict, error = item.plan.wire, item.verdict, item.error
    done = "removed" if verdict and verdict.phase == "Removed" else _DONE[item.plan.action]
    reason = (
        (error.code, error.message)
        if error
        else (verdict.reason, verdict.message)
        if verdict
        else ("", "")
    )
    return [
        plain(wire.device),
        plain(wire.deployment),
        plain("not written", "red") if error else plain(done, None if done != "removed" else ""),
        Text(str(wire.generation)),
        plain(verdict.phase if verdict else "-"),
        _words(*reason),
    ]


def _words(reason: str, message: str) -> Text:
    return plain(": ".join(part for part in (reason, message) if part), "")


def status_table(shown: Sequence[status.Row], to: Console, *, wide: bool = False) -> None:
    """Deployments: where each is, and of what generation (enforced/desired). `wide` has the lineage
    that each is of, and the messages.
    """
    header = ["DEVICE", "DEPLOYMENT", "PHASE", "GEN>", "READY>", "AGE>", "REASON"]
    if not wide:
        grid(header, map(_status_row, shown), to)
        return
    rows = ([*_status_row(row), *_more_of(row)] for row in shown)
    grid([*header, "LINEAGE", "MESSAGE"], rows, to)


def _more_of(row: status.Row) -> Row:
    lineage = row.status.lineage if row.status is not None else None
    return [plain(lineage or "-", ""), plain(row.message or "-", "")]


def _status_row(row: status.Row) -> Row:
    notes = [
        row.reason,
        "device silent" if row.silent else "",
        "of another lineage" if row.lineage_differs else "",
        f"paused until {local(row.paused)}" if row.paused else "",
    ]
    return [
        plain(row.device),
        plain(row.deployment),
        plain(row.phase, "dim" if row.silent else None),
        Text(f"{row.generation or '-'}/{row.wanted or '-'}"),
        Text(f"{row.ready}/{row.total}"),
        Text(status.age(row.age)),
        plain(", ".join(filter(None, notes)), ""),
    ]


def resources_table(shown: Sequence[status.Row], to: Console) -> None:
    """The resources of each deployment, with what is behind told below. SINCE is by the device's own
    clock, in the zone of the reader.
    """
    for at, row in enumerate(shown):
        cells = _status_row(row)
        if at:
            to.print()
        name = plain(f"{row.device}/{row.deployment}", "bold")
        age = f"  {row.ready}/{row.total} ready  {cells[5]} ago" if row.status else ""
        line = Text.assemble(name, "  ", cells[2], f"  generation {cells[3]}{age}  ", cells[6])
        to.print(stripped(line), soft_wrap=True)
        if row.message:
            to.print(Text.assemble("  ", plain(row.message, "dim")), soft_wrap=True)
        if row.status and row.status.resources:
            grid(
                ["  RESOURCE", "PHASE", "SINCE", "DRIFT", "REASON"],
                _resource_rows(row.status, silent=row.silent),
                to,
            )


def local(time: str) -> str:
    """A time of the wire to the minute, as the clock here shows it ($TZ), with its distance from
    UTC.
    """
    return moment(parse_time(time), "minutes")


def _resource_rows(told: DeploymentStatus, *, silent: bool) -> Iterable[Row | Text]:
    for key, item in sorted(told.resources.items()):
        yield [
            Text.assemble("  ", plain(key, "")),
            plain(item.phase, "dim" if silent else None),
            plain(local(item.since), ""),
            plain(f"{item.drift.action} {item.drift.count}x" if item.drift else "-", ""),
            plain(item.reason, ""),
        ]
        if item.message:
            yield Text.assemble("    ", plain(item.message, "dim"))
        if item.drift:
            yield Text.assemble("    ", plain(f"drift in {', '.join(item.drift.fields)}", "dim"))


def desired_table(
    found: Iterable[Deployment], now: datetime, to: Console, *, wide: bool = False
) -> None:
    """Print the desired deployments. `wide` has their lineages in full."""
    rows = (_desired_row(item, now, wide=wide) for item in found)
    grid(["DEVICE", "DEPLOYMENT", "GEN>", "AGE>", "LINEAGE", "RESOURCES"], rows, to)


def _desired_row(item: Deployment, now: datetime, *, wide: bool) -> Row:
    manifest, created = item.desired.manifest, item.desired.created
    if manifest is None:
        told = Text(f"can't be read: {item.desired.problem}", "red")
    elif manifest.removed:
        told = Text("to be removed", "yellow")
    else:
        told = plain(", ".join(score.key for score in manifest.scores) or "none", "")
    return [
        plain(item.key.device),
        plain(item.key.deployment),
        Text(str(manifest.generation) if manifest else "-"),
        Text(status.age(now - created if created else None)),
        plain(manifest.lineage[: None if wide else 8] if manifest else "-", ""),
        told,
    ]


def objects_table(
    found: Sequence[Object], named: Uses, damaged: Sequence[str], to: Console, *, wide: bool = False
) -> None:
    """Objects, and the desired deployments that name each; the digest and what is wrong are told
    below. `wide` has the digest in a column.
    """
    rows: list[Row | Text] = []
    for one in found:
        users = named.of.get(one.name, {})
        places = ", ".join(sorted(users)) or "-"
        digest = plain(one.digest or "of an unknown digest", "dim")
        row = [plain(one.name), Text(str(one.size))]
        rows.append([*row, digest, plain(places, "")] if wide else [*row, plain(places, "")])
        if not wide:
            rows.append(Text.assemble("  ", digest))
        if others := sorted(place for place, digest in users.items() if digest != one.digest):
            rows.append(
                Text.assemble("  ", plain(f"{', '.join(others)} wants another digest", "red"))
            )
        if one.name in damaged:
            rows.append(Text.assemble("  ", plain("its content isn't what was put", "red")))
    grid(["OBJECT", "BYTES>", *(["DIGEST"] if wide else []), "NAMED BY"], rows, to)


def secrets_table(found: Sequence[SecretRow], to: Console) -> None:
    """Names of secrets by device, when each was set, and the desired deployments that name it."""
    rows: list[Row | Text] = []
    for one in found:
        at = datetime.fromtimestamp(one.version / 1000, UTC).strftime("%Y-%m-%d %H:%M")
        state = one.trouble or ("taken back" if one.removed else at)
        tone = "red" if one.trouble else ""
        users = plain(", ".join(one.used_by) or "-", "")
        rows.append([plain(one.device), plain(one.name), plain(state, tone), users])
    grid(["DEVICE", "SECRET", "SET", "NAMED BY"], rows, to)


def devices_table(
    devices: Sequence[Device], now: datetime, to: Console, *, wide: bool = False
) -> None:
    """Devices: whether each is heard of, and below each what it is capable of. `wide` has that in a
    column, and the boot.
    """
    header = ["DEVICE", "STATE", "HEARD>", "OS", "AGENT", "LABELS"]
    header += ["BOOT", "KINDS"] if wide else []
    rows: list[Row | Text] = []
    for device in devices:
        row, kinds = _device_row(device, now), plain(", ".join(status.kinds(device)), "")
        boot = plain(device.info.boot_id[:8] if device.info else "-", "")
        rows.append([*row, boot, kinds] if wide else row)
        if not wide and kinds.plain:
            rows.append(Text.assemble("  ", plain(kinds.plain, "dim")))
        for scope, until in sorted(device.info.paused.items() if device.info else ()):
            what = "all of it" if scope == DEVICE else scope
            rows.append(Text.assemble("  ", plain(f"{what} is paused until {local(until)}", "")))
    grid(header, rows, to)


def _device_row(device: Device, now: datetime) -> Row:
    info = device.info
    return [
        plain(device.name),
        plain(status.heartbeat_state(device, now)),
        Text(status.age(now - device.heard if device.heard else None)),
        plain(
            f"{info.os.id} {info.os.version_id} {info.os.arch}" if info else device.problem or "-",
            "",
        ),
        plain(info.agent_version if info else "-", ""),
        plain(
            ", ".join(f"{key}={value}" for key, value in sorted(info.labels.items()))
            if info
            else "-",
            "",
        ),
    ]
