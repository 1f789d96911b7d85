"""Commands `harmony get`, `status`, `devices` and `schema`: desired state, actual state, devices.

They write nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harmony_fleet.commands.common import Common, note, run, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import (
    Deployment,
    check_name,
    list_deployments,
    list_devices,
    parse_selectors,
)
from harmony_fleet.observe.status import Row, device_json, masked, rows
from harmony_fleet.output import render, tables
from harmony_fleet.output.render import Output
from scores.manifest import SCORE_TYPES, Manifest


def get(
    common: Common, deployment: str | None, device: str | None, *, show_values: bool
) -> ExitCode:
    """`harmony get`."""

    async def work(store: Store) -> ExitCode:
        found = [
            item
            for item in await _find(store, device, deployment)
            if item.desired.manifest or item.desired.problem
        ]
        _must_exist(found, deployment, "desired-state")
        if common.output is Output.TABLE:
            if found:
                tables.desired_table(found, await store.now(), render.out())
            else:
                note("no deployments are desired: harmony apply writes the first")
        else:
            write([_manifest_json(item, show_values=show_values) for item in found], common.output)
        return ExitCode.DONE

    return run(common, work)


def _manifest_json(found: Deployment, *, show_values: bool) -> dict[str, Any]:
    manifest = found.desired.manifest
    if manifest is None:
        return {
            "device": found.key.device,
            "deployment": found.key.deployment,
            "problem": found.desired.problem,
        }
    return manifest.wire() if show_values else masked(manifest)


async def _find(store: Store, device: str | None, deployment: str | None) -> list[Deployment]:
    for what, name in (("device", device), ("deployment", deployment)):
        if name is not None:
            check_name(what, name)
    return await list_deployments(store, device, deployment)


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


def status(
    common: Common, deployment: str | None, device: str | None, view: StatusView
) -> ExitCode:
    """`harmony status`: 0 where all that is shown is converged."""

    async def work(store: Store) -> ExitCode:
        found = await _find(store, device, deployment)
        _must_exist(found, deployment, "desired-state or actual-state")
        if not found:
            note("no deployments yet: harmony apply writes the first")
            if common.output is not Output.TABLE:
                write([], common.output)
            return ExitCode.DONE
        shown = [
            row
            for row in rows(found, await list_devices(store), await store.now())
            if view.removed or not row.hidden
        ]
        _show_rows(common, shown, view)
        return ExitCode.DONE if all(row.converged for row in shown) else ExitCode.NOT_CONVERGED

    return run(common, work)


def _show_rows(common: Common, shown: Sequence[Row], view: StatusView) -> None:
    if common.output is not Output.TABLE:
        write([row.as_json() for row in shown], common.output)
    elif view.resources:
        tables.resources_table(shown, render.out())
    else:
        tables.status_table(shown, render.out())
        if len(shown) == 1 and shown[0].message:
            note(shown[0].message)


def devices(common: Common, selectors: Sequence[str]) -> ExitCode:
    """`harmony devices`."""
    labels = parse_selectors(selectors)

    async def work(store: Store) -> ExitCode:
        found = await list_devices(store, labels)
        if common.output is not Output.TABLE:
            now = await store.now() if found else None
            write([device_json(device, now) for device in found if now], common.output)
        elif found:
            tables.devices_table(found, await store.now(), render.out())
        else:
            what = (
                "carries these labels"
                if labels
                else "told of itself yet: does harmony-agent run there?"
            )
            note(f"no device {what}")
        return ExitCode.DONE

    return run(common, work)


def schema(kind: str | None, output: Output) -> ExitCode:
    """`harmony schema`: JSON Schema of what an author writes."""
    if kind is not None and kind not in SCORE_TYPES:
        raise InvalidInput(
            "UnknownKind",
            "cannot show the schema: no such kind",
            f"kinds are {', '.join(SCORE_TYPES)}",
        )
    model = SCORE_TYPES[kind] if kind else Manifest
    value = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    write(json.loads(json.dumps(value)), Output.YAML if output is Output.YAML else Output.JSON)
    return ExitCode.DONE
