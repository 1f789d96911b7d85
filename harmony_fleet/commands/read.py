"""Commands that write nothing: `harmony get`, `status`, `devices`, `schema`; `wait` and `logs`, which
need a device to answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from harmony_fleet.client.client import Client
from harmony_fleet.client.revoked import with_revoked
from harmony_fleet.commands.common import Common, hint, note, remember_names, run_client, write
from harmony_fleet.commands.watch import Watched, watch_status
from harmony_fleet.errors import ExitCode, HarmonyError, InvalidInput
from harmony_fleet.observe.state import Deployment, Device, check_name, parse_selectors
from harmony_fleet.observe.status import Row, device_json, masked
from harmony_fleet.observe.wait import Verdict
from harmony_fleet.output import render, tables
from harmony_fleet.output.forms import FORMS, output_schema
from harmony_fleet.output.progress import Progress
from harmony_fleet.output.render import Output
from scores.author_schema import author_schema
from scores.keys import DeploymentKey
from scores.manifest import SCORE_TYPES


def get(
    common: Common, deployment: str | None, device: str | None, *, show_values: bool
) -> ExitCode:
    """`harmony get`."""

    async def work(client: Client) -> ExitCode:
        found = [
            item
            for item in await client.deployments(device, deployment)
            if item.desired.manifest or item.desired.problem
        ]
        remember_names(
            common, {item.key.device for item in found}, {item.key.deployment for item in found}
        )
        _must_exist(found, deployment, "desired-state")
        if common.output is Output.TABLE:
            if found:
                tables.desired_table(found, await client.now(), render.out(), wide=common.wide)
            else:
                note("no deployments are desired: harmony apply writes the first")
        else:
            write([_manifest_json(item, show_values=show_values) for item in found], common.output)
        return ExitCode.DONE

    return run_client(common, work)


def _manifest_json(found: Deployment, *, show_values: bool) -> dict[str, Any]:
    manifest = found.desired.manifest
    if manifest is None:
        return {
            "device": found.key.device,
            "deployment": found.key.deployment,
            "problem": found.desired.problem,
        }
    return manifest.wire() if show_values else masked(manifest)


def _must_exist(found: Sequence[object], deployment: str | None, where: str) -> None:
    if deployment is not None and not found:
        raise InvalidInput(
            "NotFound",
            f"cannot find {deployment} in {where}",
            "see what there is with: harmony status",
        )


@dataclass(frozen=True, slots=True)
class StatusView:
    """Columns and rows that `harmony status` shows."""

    resources: bool = False
    removed: bool = False
    watch: bool = False


def status(
    common: Common, deployment: str | None, device: str | None, view: StatusView
) -> ExitCode:
    """`harmony status`: 0 where all that is shown is converged."""
    if view.watch:
        table = tables.resources_table if view.resources else _status_table(common)
        return watch_status(common, Watched(device, deployment, view.removed), table)

    async def work(client: Client) -> ExitCode:
        found = await client.status(device, deployment)
        remember_names(common, *_names(found))
        _must_exist(found, deployment, "desired-state or actual-state")
        if not found:
            note("no deployments yet: harmony apply writes the first")
            if common.output is not Output.TABLE:
                write([], common.output)
            return ExitCode.DONE
        shown = [row for row in found if view.removed or not row.hidden]
        _show_rows(common, shown, view)
        return ExitCode.DONE if all(row.converged for row in shown) else ExitCode.NOT_CONVERGED

    return run_client(common, work)


def _names(found: Sequence[Row]) -> tuple[set[str], set[str], set[str]]:
    """Names of devices, deployments and resources."""
    keys = {key for row in found if row.status is not None for key in row.status.resources}
    return {row.device for row in found}, {row.deployment for row in found}, keys


def _show_rows(common: Common, shown: Sequence[Row], view: StatusView) -> None:
    if common.output is not Output.TABLE:
        write([row.as_json() for row in shown], common.output)
    elif view.resources:
        tables.resources_table(shown, render.out())
    else:
        _status_table(common)(shown, render.out())
        if len(shown) == 1 and shown[0].message:
            note(shown[0].message)


def _status_table(common: Common) -> Callable[[Sequence[Row], Console], None]:
    return functools.partial(tables.status_table, wide=common.wide)


def devices(common: Common, selectors: Sequence[str]) -> ExitCode:
    """`harmony devices`."""
    labels = parse_selectors(selectors)

    async def work(client: Client) -> ExitCode:
        found = await _devices(client, labels)
        remember_names(common, [device.name for device in found], ())
        if common.output is not Output.TABLE:
            now = await client.now() if found else None
            write([device_json(device, now) for device in found if now], common.output)
        elif found:
            tables.devices_table(found, await client.now(), render.out(), wide=common.wide)
        else:
            what = (
                "carries these labels"
                if labels
                else "told of itself yet: does harmony-agent run there?"
            )
            note(f"no device {what}")
        return ExitCode.DONE

    return run_client(common, work)


async def _devices(client: Client, labels: Mapping[str, str]) -> list[Device]:
    """The devices with these labels; without labels the revoked ones, too."""
    found = await client.devices(labels)
    if labels:
        return found
    try:
        return await with_revoked(client.context, client.store, found)
    except HarmonyError as error:  # the others are shown all the same
        note(f"cannot tell which devices are revoked: {error.message}")
        return found


def schema(kind: str | None, of: str | None, output: Output) -> ExitCode:
    """`harmony schema`: JSON Schema of what an author writes, or of what a command prints."""
    if kind is not None and kind not in SCORE_TYPES:
        raise InvalidInput(
            "UnknownKind",
            "cannot show the schema: no such kind",
            f"kinds are {', '.join(SCORE_TYPES)}",
        )
    if of is not None and (kind is not None or of not in FORMS):
        raise InvalidInput(
            "UnknownCommand",
            "cannot show the schema: --of takes a command, and no --kind beside it",
            f"these have one: {', '.join(FORMS)}",
        )
    value = author_schema(kind) if of is None else output_schema(of)
    write(value, Output.YAML if output is Output.YAML else Output.JSON)
    return ExitCode.DONE


def wait(common: Common, key: DeploymentKey, seconds: float, *, removed: bool) -> ExitCode:
    """`harmony wait`."""
    check_name("device", key.device)
    check_name("deployment", key.deployment)
    progress = Progress(render.err(), live=common.output is Output.TABLE)

    async def work(client: Client) -> ExitCode:
        with progress:
            verdict = await client.wait(*key, seconds, removed=removed, observe=progress.observe)
        _show_verdict(common, key, verdict)
        return verdict.exit_code or ExitCode.DONE

    try:
        return run_client(common, work, seconds)
    except KeyboardInterrupt:
        note("stopped waiting: what was applied stays applied")
        return ExitCode.INTERRUPTED


def _show_verdict(common: Common, key: DeploymentKey, verdict: Verdict) -> None:
    if common.output is not Output.TABLE:
        told = {"phase": verdict.phase, "reason": verdict.reason, "message": verdict.message}
        write({"device": key.device, "deployment": key.deployment, **told}, common.output)
        return
    words = ": ".join(
        part for part in (verdict.reason, verdict.message) if part and verdict.exit_code
    )
    line = Text.assemble(f"{key.device}/{key.deployment}  ", render.plain(verdict.phase))
    render.out().print(
        line.append(f"  {render.plain(words, '').plain}" if words else ""), soft_wrap=True
    )
    hint(verdict.hint)
