"""Apply and delete: plan for every device, write each by CAS, wait. Never overwrite another's
write.

It prints nothing: the callbacks in `Show` hear what happens, and the results are returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harmony_fleet.errors import ExitCode, HarmonyError, worst
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Deployment, Device, read_deployment, read_deployments
from harmony_fleet.observe.wait import Observer, Verdict, target_of, wait_for
from harmony_fleet.rollout.plan import ApplyRequest, Plan, plan
from scores.keys import DESIRED, DeploymentKey
from scores.manifest import Manifest

Pair = tuple[Manifest, Device]
"""A manifest, and the device that it is for."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an apply. `wait_seconds` None: don't wait."""

    lineage: str = ""
    take_over: bool = False
    allow_prune: int | None = None
    dry_run: bool = False
    wait_seconds: float | None = None
    replicas: int = 1
    signing: Signing = UNSIGNED
    follow: bool = False
    roster: bool = False
    decide: Callable[[Store, Manifest, Deployment], Awaitable[Manifest]] | None = None
    """what each device's own manifest is, given what it says of itself"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A deployment that isn't written, for a reason that is its device's alone."""

    key: DeploymentKey
    error: HarmonyError

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows, in the form of a Result's."""
        return {
            "device": self.key.device,
            "deployment": self.key.deployment,
            "action": "refused",
            "generation": None,
            "written": False,
            "changes": [],
            "phase": None,
            "reason": self.error.code,
            "message": self.error.message,
            "exit_code": int(self.error.share),
        }


@dataclass(slots=True)
class Result:
    """Result of one plan. `written`: it is in ``desired-state``."""

    plan: Plan
    written: bool = False
    error: HarmonyError | None = None
    verdict: Verdict | None = None

    @property
    def exit_code(self) -> ExitCode:
        """This one's share in the command's exit code."""
        if self.error is not None:
            return self.error.exit_code
        return (
            ExitCode.DONE
            if self.verdict is None or self.verdict.exit_code is None
            else self.verdict.exit_code
        )

    @property
    def hint(self) -> str:
        """The next thing to do; "" where nothing is to be done."""
        told = self.error or self.verdict
        return told.hint if told is not None else ""

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        wire, verdict, error = self.plan.wire, self.verdict, self.error
        return {
            "device": wire.device,
            "deployment": wire.deployment,
            "action": self.plan.action,
            "generation": wire.generation,
            "written": self.written,
            "changes": [change.as_json() for change in self.plan.changes],
            "phase": verdict.phase if verdict else None,
            "reason": error.code if error else verdict.reason if verdict else "",
            "message": error.message if error else verdict.message if verdict else "",
            "exit_code": int(self.exit_code),
        }


def unheard(*_args: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Show:
    """Callbacks: the plans before anything is written, the waits, the statuses."""

    planned: Callable[[Sequence[Plan]], None] = unheard
    waiting: Callable[[Sequence[Result]], None] = unheard
    observe: Observer = unheard


@dataclass(slots=True)
class Run:
    """An apply under way. It lives outside, so that an interrupted command can still say what was
    written.
    """

    show: Show = field(default_factory=Show)
    results: list[Result] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        """The worst of all; 0 where each is done, or wasn't waited for."""
        results = [result.exit_code for result in self.results]
        return worst([*results, *(item.error.share for item in self.refused)])

    @property
    def written(self) -> bool:
        """Return whether anything was."""
        return any(result.written for result in self.results)


async def plan_all(
    store: Store, pairs: Sequence[Pair], options: Options
) -> tuple[list[Plan], list[Refusal]]:
    """The plans for each manifest at its device. One refusal refuses all, but where it is its
    device's word alone.

    Raises HarmonyError, also where such words leave nothing to go on with.
    """
    keys = [DeploymentKey(device.name, manifest.deployment) for manifest, device in pairs]
    found = await read_deployments(store, keys)
    wish = (
        options.lineage,
        options.take_over,
        options.allow_prune,
        options.signing,
        options.follow,
        options.roster,
    )
    plans: list[Plan] = []
    refused: list[Refusal] = []
    for (manifest, device), deployment in zip(pairs, found, strict=True):
        try:
            own = (
                manifest
                if options.decide is None
                else await options.decide(store, manifest, deployment)
            )
            plans.append(plan(ApplyRequest(own, *wish), deployment, device))
        except HarmonyError as error:
            if not error.alone:
                raise
            refused.append(Refusal(deployment.key, error))
    if refused and not plans:
        raise next(
            item.error
            for item in refused
            if item.error.share is worst(one.error.share for one in refused)
        )
    return plans, refused


async def apply(store: Store, pairs: Sequence[Pair], options: Options, run: Run) -> ExitCode:
    """Plan, show, write, wait. The results are in `run`."""
    plans, run.refused = await plan_all(store, pairs, options)
    run.show.planned(plans)
    run.results = measured(store, plans)
    if options.dry_run:
        await check_allowed(store, run.results)
    else:
        if any(item.action != "unchanged" for item in plans):
            await store.ensure_buckets(options.replicas)
        await write_all(store, run)
        if options.wait_seconds is not None:
            run.show.waiting(run.results)
            await wait_all(store, run, options.wait_seconds)
    return run.exit_code


def measured(store: Store, plans: Sequence[Plan]) -> list[Result]:
    """The results before anything is written: of what is too large for the server, an error."""
    results = [Result(item) for item in plans]
    for result in results:
        wire = result.plan.wire
        try:
            if result.plan.action != "unchanged":
                store.check_size(str(DeploymentKey(wire.device, wire.deployment)), wire.canonical())
        except HarmonyError as error:
            result.error = error
    return results


async def check_allowed(store: Store, results: Sequence[Result]) -> None:
    """Have the server say whether these credentials may write what is planned; what they may not is
    an error of its result. Writes nothing.
    """
    going = [item for item in results if item.plan.action != "unchanged" and item.error is None]
    if not going:
        return
    await store.check_buckets()

    async def check(result: Result) -> None:
        wire = result.plan.wire
        try:
            await store.check_write(DESIRED, str(DeploymentKey(wire.device, wire.deployment)))
        except HarmonyError as error:
            result.error = error

    await gather_bounded(check, going)


async def write_all(store: Store, run: Run) -> None:
    """Write what isn't as planned, each by CAS; what went wrong is in the results."""

    async def write(result: Result) -> None:
        wire = result.plan.wire
        try:
            key = str(DeploymentKey(wire.device, wire.deployment))
            at = result.plan.revision
            await store.put(DESIRED, key, wire.canonical(), at, result.plan.note)
            result.written = True
        except HarmonyError as error:
            result.error = error

    await gather_bounded(
        write,
        [
            result
            for result in run.results
            if result.plan.action != "unchanged" and result.error is None
        ],
    )


async def wait_all(store: Store, run: Run, seconds: float) -> None:
    """Wait for every device's answer; the verdicts are in the results."""
    waiting = [
        (target_of(item.plan.wire, item.plan.answered), item)
        for item in run.results
        if item.error is None
    ]
    verdicts = await wait_for(store, [target for target, _ in waiting], seconds, run.show.observe)
    for target, result in waiting:
        result.verdict = verdicts[target.key]


async def delete(
    store: Store, deployment: str, devices: Sequence[Device], options: Options, run: Run
) -> ExitCode:
    """Desire the deployment's removal, wait for it, then purge the key. Devices that have it no
    more are left alone.
    """
    found = await read_deployments(
        store, [DeploymentKey(device.name, deployment) for device in devices]
    )
    present = {item.key.device for item in found if not gone(item)}
    removal = Manifest(deployment=deployment, removed=True)
    await apply(store, [(removal, item) for item in devices if item.name in present], options, run)
    for result in run.results:
        if result.verdict is not None and result.verdict.exit_code is ExitCode.DONE:
            await purge(store, result)
    return run.exit_code


def gone(found: Deployment) -> bool:
    """Neither desired nor, as far as is known, on the device."""
    status = found.actual.status
    left = found.actual.problem or (status is not None and status.phase != "Removed")
    return found.desired.manifest is None and not found.desired.problem and not left


async def purge(store: Store, result: Result) -> None:
    """Take the desired key away, unless somebody wrote a newer generation meanwhile."""
    wire = result.plan.wire
    found = await read_deployment(store, DeploymentKey(wire.device, wire.deployment))
    standing = found.desired.manifest
    if standing is None or standing.generation != wire.generation:
        return
    try:
        await store.purge(DESIRED, str(found.key), found.desired.revision)
    except HarmonyError as error:
        result.error = error
