"""`harmony tree`, `harmony events` and `harmony status --watch`: looks at devices, also as they change."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from harmony_fleet.client.client import Client
from harmony_fleet.commands.common import Common, note, remember_names, run_client, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.observe.state import check_name
from harmony_fleet.observe.status import device_json, rows
from harmony_fleet.observe.tree import branch
from harmony_fleet.output import render
from harmony_fleet.output.device_tree import device_tree
from harmony_fleet.output.event_lines import event_line
from harmony_fleet.output.live_status import RowChanges, StatusView, Table, row_line
from harmony_fleet.output.render import Output


@dataclass(frozen=True, slots=True)
class Wanted:
    """Events of one device or deployment, or of all; the last `lines`, and with `follow` each that
    comes.
    """

    device: str | None
    deployment: str | None
    lines: int
    follow: bool


def events(common: Common, wanted: Wanted) -> ExitCode:
    """`harmony events`."""
    check_places(wanted.device, wanted.deployment)

    async def work(client: Client) -> ExitCode:
        found = client.events(
            wanted.device, wanted.deployment, last=wanted.lines, follow=wanted.follow
        )
        seen = False
        async with contextlib.aclosing(found) as coming:
            async for event in coming:
                seen = True
                show_line(common, event.as_json(), event_line(event))
        if not seen and wanted.lines and common.output is Output.TABLE:
            note("nothing happened yet: no device told of anything")
        return ExitCode.DONE

    return run_client(common, work)


@dataclass(frozen=True, slots=True)
class Watched:
    """Deployments of one device, or of one name, or all; `removed` ones as well."""

    device: str | None
    deployment: str | None
    removed: bool


def watch_status(common: Common, watched: Watched, table: Table) -> ExitCode:
    """`harmony status --watch`: until Ctrl-C."""
    check_places(watched.device, watched.deployment)
    out = render.out()
    if common.output is Output.TABLE and out.is_terminal:
        with StatusView(out, table) as view:
            return run_client(common, lambda client: _show_all(client, watched, view))
    return run_client(common, lambda client: _show_changes(common, client, watched))


async def _show_all(client: Client, watched: Watched, view: StatusView) -> ExitCode:
    found = client.watch_status(watched.device, watched.deployment)
    async with contextlib.aclosing(found) as looks:
        async for look in looks:
            view.show([row for row in look if watched.removed or not row.hidden])
    return ExitCode.DONE


async def _show_changes(common: Common, client: Client, watched: Watched) -> ExitCode:
    changes = RowChanges(removed=watched.removed)
    found = client.watch_status(watched.device, watched.deployment)
    async with contextlib.aclosing(found) as looks:
        async for look in looks:
            now = await client.now()
            for row in changes.of(look):
                show_line(common, row.as_json(), row_line(row, now))
    return ExitCode.DONE


def tree(common: Common, name: str) -> ExitCode:
    """`harmony tree`: 0 where all that the device has is converged."""
    check_name("device", name)

    async def work(client: Client) -> ExitCode:
        device, found = await asyncio.gather(client.device(name), client.deployments(name))
        if device.info is None and device.heard is None and not found:
            raise InvalidInput(
                "NotFound", f"cannot find the device {name}", "see them with: harmony devices"
            )
        now = await client.now()
        shown = [
            branch(row, item)
            for row, item in zip(rows(found, [device], now), found, strict=True)
            if not row.hidden
        ]
        keys = [node.key for item in shown for node in item.nodes]
        remember_names(common, [name], [item.row.deployment for item in shown], keys)
        if common.output is Output.TABLE:
            device_tree(device, shown, now, render.out())
        else:
            told = [item.as_json() for item in shown]
            write({**device_json(device, now), "deployments": told}, common.output)
        done = all(item.row.converged for item in shown)
        return ExitCode.DONE if done else ExitCode.NOT_CONVERGED

    return run_client(common, work)


def show_line(common: Common, value: Any, words: Text) -> None:
    """A line for people, an object a line as JSON, a document as YAML; seen at once."""
    if common.output is Output.TABLE:
        render.out().print(words, soft_wrap=True)
    else:
        sys.stdout.write(render.one_line(value, common.output) + "\n")
    sys.stdout.flush()


def check_places(device: str | None, deployment: str | None) -> None:
    """Raise InvalidInput where one can't be a name."""
    for what, name in (("device", device), ("deployment", deployment)):
        if name is not None:
            check_name(what, name)
