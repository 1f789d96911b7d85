"""The client: one connection, and all that can be asked or done over it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType

from harmony_fleet.client import logs, watch
from harmony_fleet.client.events import Event, EventLog, coming, stored
from harmony_fleet.client.goals import goal_of
from harmony_fleet.client.live import watch_rows
from harmony_fleet.client.logs import LogLine, LogQuery
from harmony_fleet.client.pauses import Asker, Paused, Resumed
from harmony_fleet.client.rollouts import Rollouts
from harmony_fleet.client.secrets import Secrets
from harmony_fleet.client.upgrades import Upgrades
from harmony_fleet.client.watch import Change
from harmony_fleet.context import Context, load_context
from harmony_fleet.errors import ExitCode
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.connection import CONNECT_SECONDS
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe import state
from harmony_fleet.observe.state import Deployment, Device, check_name, read_deployment
from harmony_fleet.observe.status import Row, rows
from harmony_fleet.observe.wait import Observer, Verdict, judge, wait_for
from harmony_fleet.rollout import apply as changes
from harmony_fleet.rollout.apply import Options, Run, unheard
from harmony_fleet.rollout.remains import adopt
from harmony_fleet.roster.lineage import REMOVE_THERE, SET_THERE, check_by_hand, home_lineage
from scores.keys import DeploymentKey
from scores.manifest import Manifest
from scores.status import DeploymentStatus, DeviceInfo, Heartbeat

Source = Manifest | Sequence[Manifest] | Callable[[Device], Iterable[Manifest]]
"""One manifest, several, or those for each device."""


def connect(
    *,
    server: str | None = None,
    creds: str | None = None,
    tls_ca: str | None = None,
    insecure: bool = False,
) -> Client:
    """A client, to be used as ``async with connect() as harmony``.

    What isn't given is found as the command `harmony` finds it: in ``$HARMONY_SERVER``,
    ``$HARMONY_CREDS``, ``$HARMONY_TLS_CA`` and ``$HARMONY_HOME``. Raises InvalidInput.
    """
    return Client(load_context(server=server, creds=creds, tls_ca=tls_ca, insecure=insecure))


class Client:
    """The fleet; `upgrades` are its runs, `rollouts` say how far changed deployments have come.
    Each method may raise Unreachable; the watches try again without end instead.
    """

    def __init__(self, context: Context, seconds: float = CONNECT_SECONDS) -> None:
        self.context = context
        self.store = Store(context, seconds)
        self.upgrades = Upgrades(context, self.store)
        self.rollouts = Rollouts(context, self.store)

    @property
    def secrets(self) -> Secrets:
        """Values that only a device can read. Raises InvalidInput where a signing key can't be used."""
        return Secrets(self.store, self.context)

    async def __aenter__(self) -> Client:
        await self.store.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.store.__aexit__(kind, error, trace)

    # -- read

    async def now(self) -> datetime:
        """The server's time, by which all ages are judged."""
        return await self.store.now()

    async def devices(self, labels: Mapping[str, str] | None = None) -> list[Device]:
        """Devices that ever told of themselves, or those of them that carry all these labels."""
        return await state.list_devices(self.store, labels)

    async def device(self, name: str) -> Device:
        """One device; its `info` is None where it never told of itself."""
        return await state.read_device(self.store, check_name("device", name))

    async def deployments(
        self, device: str | None = None, deployment: str | None = None
    ) -> list[Deployment]:
        """Desired and actual state: of all, of one device, or of one name."""
        for what, name in (("device", device), ("deployment", deployment)):
            if name is not None:
                check_name(what, name)
        return await state.list_deployments(self.store, device, deployment)

    async def status(self, device: str | None = None, deployment: str | None = None) -> list[Row]:
        """The same judged, as `harmony status` shows it: `Row.converged` is its exit code 0."""
        found = await self.deployments(device, deployment)
        return rows(found, await self.devices(), await self.now()) if found else []

    # -- watch

    def watch_statuses(
        self, device: str | None = None, deployment: str | None = None
    ) -> AsyncGenerator[Change[DeploymentStatus], None]:
        """The newest of each, then each that comes, without end."""
        return watch.statuses(self.store, device, deployment)

    def watch_heartbeats(
        self, device: str | None = None
    ) -> AsyncGenerator[Change[Heartbeat], None]:
        """The last of each device, then each that comes, without end."""
        return watch.heartbeats(self.store, device)

    def watch_devices(self, device: str | None = None) -> AsyncGenerator[Change[DeviceInfo], None]:
        """Each device as it tells of itself, then each change of that, without end."""
        return watch.infos(self.store, device)

    def watch_status(
        self, device: str | None = None, deployment: str | None = None
    ) -> AsyncGenerator[list[Row], None]:
        """The rows of `status`: now, at each change and at least each second, without end."""
        return watch_rows(self.store, device, deployment)

    async def events(
        self,
        device: str | None = None,
        deployment: str | None = None,
        *,
        last: int | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Changes of statuses, rejections, devices that fall silent: those that the buckets still
        tell, the oldest first, or the `last` of them; with `follow` then each that comes, without
        end.
        """
        log = EventLog()
        told = await stored(self.store, log, device, deployment)
        for event in told if last is None else told[max(len(told) - last, 0) :]:
            yield event
        if follow:
            async with contextlib.aclosing(coming(self.store, log, device, deployment)) as more:
                async for event in more:
                    yield event

    # -- change

    async def plan(
        self,
        source: Source,
        devices: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        options: Options | None = None,
    ) -> Run:
        """Return what an apply would do. Writes nothing."""
        dry = replace(options or Options(), dry_run=True)
        return await self.apply(source, devices, labels, dry)

    async def apply(
        self,
        source: Source,
        devices: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        options: Options | None = None,
        run: Run | None = None,
    ) -> Run:
        """Write manifests for the named devices and those that carry the labels; wait for them
        where `Options.wait_seconds` says so.

        Raises Conflict, Refused or InvalidInput where nothing is written at all. What became of each
        device is in the results. A `run` of your own hears of progress, and has the results where
        this is cancelled.
        """
        run = run or Run()
        chosen = await state.choose_devices(self.store, devices, labels or {})
        pairs = [(manifest, device) for device in chosen for manifest in _manifests(source, device)]
        made = self._own(options)
        keys = [DeploymentKey(device.name, manifest.deployment) for manifest, device in pairs]
        check_by_hand(self.context.home, made.lineage, keys, SET_THERE)
        await changes.apply(self.store, pairs, made, run)
        return run

    async def delete(
        self,
        deployment: str,
        devices: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        options: Options | None = None,
        run: Run | None = None,
    ) -> Run:
        """Take a deployment off these devices. Raises as `apply` does."""
        run = run or Run()
        check_name("deployment", deployment)
        chosen = await state.choose_devices(self.store, devices, labels or {})
        made = self._own(options)
        keys = [DeploymentKey(device.name, deployment) for device in chosen]
        check_by_hand(self.context.home, made.lineage, keys, REMOVE_THERE)
        await changes.delete(self.store, deployment, chosen, made, run)
        return run

    async def adopt(
        self, key: DeploymentKey, options: Options | None = None, run: Run | None = None
    ) -> Run:
        """Have a device that lost its memory take back what it had. Raises as `apply` does."""
        run = run or Run()
        check_name("deployment", key.deployment)
        chosen = await state.choose_devices(self.store, [key.device], {})
        await adopt(self.store, key, chosen, self._own(options), run)
        return run

    def _own(self, options: Options | None) -> Options:
        """The options with this operator's authority and signing keys."""
        made = options or Options()
        return replace(
            made,
            lineage=home_lineage(self.context.home, made.lineage),
            replicas=self.context.replicas,
            signing=load_signing(self.context.home),
        )

    async def wait(
        self,
        device: str,
        deployment: str,
        seconds: float = 60.0,
        *,
        removed: bool = False,
        observe: Observer = unheard,
    ) -> Verdict:
        """Wait until a deployment converged, or is removed; or until it can't, or time is up.

        Raises InvalidInput where there is nothing to wait for.
        """
        key = DeploymentKey(check_name("device", device), check_name("deployment", deployment))
        target = goal_of(await read_deployment(self.store, key), removed=removed)
        if target is None:
            return Verdict(ExitCode.DONE, "Removed")
        observe(target, None, judge(target, None, 0))
        return (await wait_for(self.store, [target], seconds, observe))[key]

    # -- pauses

    async def pause(self, device: str, seconds: float, deployment: str | None = None) -> Paused:
        """Have a device keep a deployment, or all, as it runs, and change nothing. Raises
        DeviceFailed where the device says no.
        """
        return await self._asker(device, deployment).pause(deployment, math.ceil(seconds))

    async def resume(self, device: str, deployment: str | None = None) -> Resumed:
        """End a pause now; of a device: its own, and those of its deployments."""
        return await self._asker(device, deployment).resume(deployment)

    def _asker(self, device: str, deployment: str | None) -> Asker:
        if deployment is not None:
            check_name("deployment", deployment)
        return Asker(self.store, check_name("device", device), load_signing(self.context.home))

    # -- logs

    async def logs(
        self,
        device: str,
        resource: str,
        lines: int = 100,
        since: float | None = None,
        *,
        times: bool = True,
    ) -> list[LogLine]:
        """The last lines of a resource (``Container/web``), of the last `since` seconds. Raises
        DeviceFailed where the device says no.
        """
        logs.check(device, resource)
        return await logs.fetch(self.store, device, LogQuery(resource, lines, since, times))

    def follow_logs(
        self,
        device: str,
        resource: str,
        lines: int = 100,
        since: float | None = None,
        *,
        silent: Callable[[], None] = unheard,
    ) -> AsyncGenerator[LogLine, None]:
        """The same lines, then each that comes, without end. `silent` hears that the device answers
        no more.
        """
        logs.check(device, resource)
        query = LogQuery(resource, lines, since, times=True)
        return logs.follow(self.store, device, query, silent)


def _manifests(source: Source, device: Device) -> Iterable[Manifest]:
    if callable(source):
        return source(device)
    return [source] if isinstance(source, Manifest) else source
