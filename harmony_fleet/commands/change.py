"""`harmony apply`, `diff` and `delete`: what changes desired state, or would."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harmony_fleet.commands.common import Common, hint, note, run, write
from harmony_fleet.context import load_lineage
from harmony_fleet.errors import ExitCode, HarmonyError, InvalidInput, worst
from harmony_fleet.manifests.draft import Draft
from harmony_fleet.manifests.load import drafts
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.manifests.variables import Scalar
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Device, check_name, choose_devices
from harmony_fleet.output import render, tables
from harmony_fleet.output.progress import Progress
from harmony_fleet.output.render import Output
from harmony_fleet.rollout.apply import Options, Pair, Result, Run, Show, measured, plan_all
from harmony_fleet.rollout.apply import apply as apply_manifests
from harmony_fleet.rollout.apply import delete as delete_deployment
from harmony_fleet.rollout.plan import Plan
from harmony_fleet.rollout.remains import adopt as take_back
from scores.keys import DeploymentKey, parse_deployment_key


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
    return _change(
        common,
        _chosen(choice, found),
        options,
        lineage,
        lambda store, devices, made, run: apply_manifests(
            store, _pairs(found, devices, wanted.variables), made, run
        ),
    )


def _chosen(choice: Choice, found: Sequence[Draft]) -> Choice:
    """The devices that the file names, where none is chosen."""
    if choice.devices or choice.selectors:
        return choice
    return replace(choice, devices=sorted({draft.device for draft in found if draft.device}))


def _pairs(
    found: Sequence[Draft], devices: Sequence[Device], variables: Mapping[str, Scalar]
) -> list[Pair]:
    """Each manifest for each device, with the device's name and labels among its variables."""
    pairs: list[Pair] = []
    for device in devices:
        told = device.info.labels if device.info is not None else {}
        labels = {f"labels.{name}": value for name, value in told.items()}
        known = {**labels, "device": device.name, **variables}
        pairs += [(draft.manifest(known, device.name), device) for draft in found]
    return pairs


def adopt(common: Common, place: str, options: Options, lineage: str | None) -> ExitCode:
    """`harmony adopt`."""
    key = parse_deployment_key(place.replace("/", ".", 1))
    if key is None:
        raise InvalidInput("InvalidName", f"cannot read {place}", "write it as DEVICE/DEPLOYMENT")
    check_name("device", key.device)
    check_name("deployment", key.deployment)
    return _change(
        common,
        Choice([key.device], []),
        options,
        lineage,
        lambda store, devices, made, run: take_back(store, key, devices, made, run),
    )


def delete(
    common: Common, deployment: str, choice: Choice, options: Options, lineage: str | None
) -> ExitCode:
    """`harmony delete`."""
    check_name("deployment", deployment)
    return _change(
        common,
        choice,
        options,
        lineage,
        lambda store, devices, made, run: delete_deployment(store, deployment, devices, made, run),
    )


def _change(
    common: Common,
    choice: Choice,
    options: Options,
    lineage: str | None,
    work: Callable[..., Awaitable[ExitCode]],
) -> ExitCode:
    """Choose the devices, do the work with progress, show the results; an interrupt says what
    stays.
    """
    context = common.context()
    progress = Progress(render.err(), live=common.output is Output.TABLE)
    lineage, signing = load_lineage(context, lineage), load_signing(context.home)
    made = replace(options, lineage=lineage, replicas=context.replicas, signing=signing)
    under_way = Run(_show(common, progress))

    async def connected(store: Store) -> ExitCode:
        devices = await choose_devices(store, choice.devices, choice.selectors)
        with progress:
            return await work(store, devices, made, under_way)

    try:
        code = run(common, connected, options.wait_seconds)
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
    choice = _chosen(choice, found)
    context = common.context()
    made = replace(
        options, lineage=load_lineage(context, lineage), signing=load_signing(context.home)
    )

    async def work(store: Store) -> ExitCode:
        devices = await choose_devices(store, choice.devices, choice.selectors)
        plans, refused = await plan_all(store, _pairs(found, devices, wanted.variables), made)
        results = measured(store, plans)
        if common.output is Output.TABLE:
            tables.plans_table(plans, render.out())
            tables.refusals(
                [*((item.key, item.error) for item in refused), *_failed(results)], render.out()
            )
        else:
            told = [item.as_json() for item in results] + [item.as_json() for item in refused]
            write({"dry_run": True, "results": told}, common.output)
        if any(item.error for item in results):
            return worst(item.exit_code for item in results)
        same = not refused and all(plan.action == "unchanged" for plan in plans)
        return ExitCode.DONE if same else ExitCode.NOT_CONVERGED

    return run(common, work)
