"""`harmony apply`, `diff` and `delete`: what changes desired state, or would."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harmony_fleet.client.client import Client, Source
from harmony_fleet.commands.common import Common, hint, note, run_client, write
from harmony_fleet.errors import ExitCode, HarmonyError, worst
from harmony_fleet.manifests.draft import Draft
from harmony_fleet.manifests.load import drafts
from harmony_fleet.manifests.variables import Scalar
from harmony_fleet.observe.state import Device, check_name, check_place, parse_selectors
from harmony_fleet.output import render, tables
from harmony_fleet.output.progress import Progress
from harmony_fleet.output.render import Output
from harmony_fleet.rollout.apply import Options, Result, Run, Show
from harmony_fleet.rollout.plan import Plan
from scores.keys import DeploymentKey
from scores.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file of manifests, and the variables that were given for it."""

    file: str
    variables: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen devices: by name, by labels."""

    devices: Sequence[str]
    selectors: Sequence[str]

    @property
    def labels(self) -> dict[str, str]:
        """The labels. Raises InvalidInput."""
        return parse_selectors(self.selectors)


Work = Callable[[Client, Options, Run], Awaitable[Run]]


def _show(common: Common, progress: Progress) -> Show:
    def planned(plans: Sequence[Plan]) -> None:
        if common.output is Output.TABLE:
            tables.plans_table(plans, render.out())
        for plan in plans if common.output is not Output.TABLE else ():
            for warning in plan.warnings:
                sys.stderr.write(f"warning: {warning}\n")

    return Show(planned, progress.waiting, progress.observe)


def apply(
    common: Common, wanted: Wanted, choice: Choice, options: Options, lineage: str | None
) -> ExitCode:
    """`harmony apply`."""
    found = drafts(wanted.file)
    chosen = _chosen(choice, found)
    names, labels = chosen.devices, chosen.labels
    source = _source(found, wanted.variables)
    return _change(
        common,
        replace(options, lineage=lineage or ""),
        lambda client, made, run: client.apply(source, names, labels, made, run),
    )


def _chosen(choice: Choice, found: Sequence[Draft]) -> Choice:
    """The devices that the file names, where none is chosen."""
    if choice.devices or choice.selectors:
        return choice
    return replace(choice, devices=sorted({draft.device for draft in found if draft.device}))


def _source(found: Sequence[Draft], variables: Mapping[str, Scalar]) -> Source:
    """Each manifest for a device, with the device's name and labels among its variables."""

    def manifests(device: Device) -> list[Manifest]:
        told = device.info.labels if device.info is not None else {}
        labels = {f"labels.{name}": value for name, value in told.items()}
        known = {**labels, "device": device.name, **variables}
        return [draft.manifest(known, device.name) for draft in found]

    return manifests


def adopt(common: Common, place: str, options: Options, lineage: str | None) -> ExitCode:
    """`harmony adopt`."""
    key = check_place(place)
    return _change(
        common,
        replace(options, lineage=lineage or ""),
        lambda client, made, run: client.adopt(key, made, run),
    )


def delete(
    common: Common, deployment: str, choice: Choice, options: Options, lineage: str | None
) -> ExitCode:
    """`harmony delete`."""
    check_name("deployment", deployment)
    names, labels = choice.devices, choice.labels
    return _change(
        common,
        replace(options, lineage=lineage or ""),
        lambda client, made, run: client.delete(deployment, names, labels, made, run),
    )


def _change(common: Common, options: Options, work: Work) -> ExitCode:
    """Do the work with progress, show the results; an interrupt says what stays."""
    progress = Progress(render.err(), live=common.output is Output.TABLE)
    under_way = Run(_show(common, progress))

    async def connected(client: Client) -> ExitCode:
        with progress:
            return (await work(client, options, under_way)).exit_code

    try:
        code = run_client(common, connected, options.wait_seconds)
    except KeyboardInterrupt:
        told = (
            "stopped waiting: what was applied stays applied, and the devices go on"
            if under_way.written
            else "stopped"
        )
        note(f"{told}; see harmony status")
        return ExitCode.INTERRUPTED
    _show_results(common, under_way, dry_run=options.dry_run)
    return code


def _show_results(common: Common, under_way: Run, *, dry_run: bool) -> None:
    results, refused = under_way.results, under_way.refused
    if common.output is not Output.TABLE:
        told = [item.as_json() for item in results] + [item.as_json() for item in refused]
        write({"dry_run": dry_run, "results": told}, common.output)
        return
    tables.refusals([(item.key, item.error) for item in refused], render.out())
    if not results:
        note("nothing to do: no such deployment on the chosen devices, or nothing of it was lost")
    elif dry_run:
        tables.refusals(_failed(results), render.out())
        note("dry run: nothing was written")
    else:
        tables.results_table(results, render.out())
    hints = {item.error.hint for item in refused}
    hints |= {result.hint for result in results}
    for words in sorted(hints):
        hint(words)


def _failed(results: Sequence[Result]) -> list[tuple[DeploymentKey, HarmonyError]]:
    """The deployments that can't be written."""
    return [
        (DeploymentKey(item.plan.wire.device, item.plan.wire.deployment), item.error)
        for item in results
        if item.error is not None
    ]


def diff(
    common: Common, wanted: Wanted, choice: Choice, options: Options, lineage: str | None
) -> ExitCode:
    """`harmony diff`: 1 where an apply would write."""
    found = drafts(wanted.file)
    chosen = _chosen(choice, found)
    names, labels = chosen.devices, chosen.labels
    made = replace(options, lineage=lineage or "")

    async def work(client: Client) -> ExitCode:
        planned = await client.plan(_source(found, wanted.variables), names, labels, made)
        results, refused = planned.results, planned.refused
        if common.output is Output.TABLE:
            tables.plans_table([result.plan for result in results], render.out())
            tables.refusals(
                [*((item.key, item.error) for item in refused), *_failed(results)], render.out()
            )
        else:
            told = [item.as_json() for item in results] + [item.as_json() for item in refused]
            write({"dry_run": True, "results": told}, common.output)
        if any(item.error for item in results):
            return worst(item.exit_code for item in results)
        same = not refused and all(item.plan.action == "unchanged" for item in results)
        return ExitCode.DONE if same else ExitCode.NOT_CONVERGED

    return run_client(common, work)
