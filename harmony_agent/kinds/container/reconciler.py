"""Container: the reconciler that the engine drives; it hands each question to `observe`, `plan` or
`apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

from harmony_agent.core.changes import first_token
from harmony_agent.core.env_files import EnvFilePolicy
from harmony_agent.core.errors import Transient
from harmony_agent.core.paths import PathSet
from harmony_agent.core.reconciler import KindView, LogLine, Mark
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.container.actions import ContainerAction, Create
from harmony_agent.kinds.container.apply import Applier, previous
from harmony_agent.kinds.container.create import Creator
from harmony_agent.kinds.container.facts import ContainerFacts, read, write
from harmony_agent.kinds.container.jobs import job_facts
from harmony_agent.kinds.container.limits import CONTROLLERS
from harmony_agent.kinds.container.mount_guard import MountGuard
from harmony_agent.kinds.container.observe import Observer, marks_of
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.payload import DEVICE, RESOURCE, init_name
from harmony_agent.kinds.container.plan import plan
from harmony_agent.kinds.container.policy import ContainerPolicy
from harmony_agent.kinds.container.pull import ImagePuller
from harmony_agent.kinds.container.records import ContainerRecords
from harmony_agent.kinds.container.running import ContainerPlan
from harmony_agent.kinds.container.runs_shown import runs_of
from harmony_agent.kinds.container.secrets import ContainerSecrets
from harmony_agent.kinds.container.turns import TurnCache
from harmony_agent.topology.containers import (
    NO_SUBORDINATES,
    Containers,
    EngineRefused,
    State,
    Subordinates,
)
from harmony_agent.topology.device_nodes import DeviceNodes
from harmony_agent.topology.env_files import EnvFiles
from harmony_agent.topology.secret_files import NO_SECRET_FILES, SecretFiles
from harmony_agent.topology.secrets import NO_SECRETS, Secrets
from harmony_agent.topology.timezones import Timezones
from scores.container import Container
from scores.manifest import FieldError
from scores.names import format_time
from scores.status import ContainerDetail, Detail

_Shown = Literal["Running", "Created", "Exited", "Paused", "Absent"]
_SHOWN: Final[Mapping[State, _Shown]] = {
    "created": "Created",
    "running": "Running",
    "stopping": "Running",
    "paused": "Paused",
    "exited": "Exited",
    "removing": "Exited",
    "unknown": "Exited",
}


class ContainerReconciler:
    """Containers of one device. `env_roots` are the folders under which env files may be read.

    No env file may be at, in or above one of `closed_files`, no bind one of `closed_mounts`.
    `allowed` is what `[podman] allow` names; `rootless` podman has fewer rights, and `subordinates`
    are the ids that it has for ``userns: auto``.
    """

    kind = "Container"
    spec_type = Container

    def __init__(
        self,
        containers: Containers,
        env_files: EnvFiles,
        nodes: DeviceNodes,
        timezones: Timezones,
        store: KindView[Container],
        *,
        secrets: Secrets = NO_SECRETS,
        secret_files: SecretFiles = NO_SECRET_FILES,
        device: str,
        boot_id: str,
        env_roots: Sequence[str],
        closed_files: Sequence[str] = (),
        closed_mounts: Sequence[str] = (),
        allowed: Collection[str] = (),
        rootless: bool = True,
        subordinates: Subordinates = NO_SUBORDINATES,
        now: Callable[[], datetime],
        puller: ImagePuller,
    ) -> None:
        self._containers, self._nodes, self._store = containers, nodes, store
        self._device, self._boot_id = device, boot_id
        self._policy = ContainerPolicy(
            EnvFilePolicy(env_roots, PathSet(closed_files)),
            PathSet(closed_mounts),
            allowed,
            rootless=rootless,
            subordinates=subordinates,
        )
        self._observer = Observer(
            containers, env_files, nodes, TurnCache(timezones, now), store, device=device, now=now
        )
        self._records = ContainerRecords(store)
        guard = MountGuard(env_files, closed_mounts)
        self._secrets = ContainerSecrets(secrets, secret_files)
        self._retained: object = None
        creator = Creator(
            containers,
            env_files,
            nodes,
            self._records,
            guard,
            secrets=self._secrets,
            device=device,
        )
        self._puller = puller
        self._applier = Applier(containers, creator, puller, self._records, boot_id)

    def admit(self, spec: Container) -> Iterable[FieldError]:
        """List what the configuration and podman's rights rule out, and signals that Linux doesn't have."""
        return self._policy.violations(spec)

    def claims(self, spec: Container) -> frozenset[str]:
        """Its name, those of its init containers, and its ports of the device."""
        names = [spec.name, *(init_name(spec.name, init.name) for init in spec.init_containers)]
        ports = [
            f"port:{port.protocol}:{f'{port.host_ip}:' if port.host_ip else ''}{port.host_port}"
            for port in spec.ports
        ]
        return frozenset([*(f"container:{name}" for name in names), *ports])

    async def relist(self) -> Mapping[str, Observed]:
        """All that is wanted or owned and exists."""
        self._retain()
        return await self._observer.relist()

    def _retain(self) -> None:
        """Drop files of secrets that no container needs any more, once after each change."""
        names = self._store.names()
        if names is self._retained:
            return
        wanted = {name: self._store.desired(name) for name in names}
        self._secrets.retain(
            {
                name: None if one is None or self._records.facts(name).retired else one.spec
                for name, one in wanted.items()
            }
        )
        self._retained = names

    async def observe(self, name: str) -> Observed | None:
        """One, fresh."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[Container] | None,
        record: OwnershipRecord | None,
        observed: Observed | None,
    ) -> ContainerPlan:
        """Plan the next actions."""
        return plan(name, desired, record, observed, self._boot_id)

    async def apply(self, action: ContainerAction) -> None:
        """Take one step."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[Container],
        record: OwnershipRecord | None,
        observed: Observed | None,
    ) -> Facts:
        """Collect the facts to record at a claim: the previous facts, or the present state if there
        are none.
        """
        facts = replace(read(record), grace=desired.spec.stop_grace_seconds)
        facts = replace(facts, job=job_facts(desired.spec, facts.job))
        if not (facts.token and desired.restart_token):
            token = first_token("", desired.restart_token)
            facts = replace(facts, token=token, restart_from_run="")
        if record is None and observed is not None:
            facts = self._first_facts(facts, desired, observed)
        return write(facts)

    def _first_facts(
        self, facts: ContainerFacts, desired: Desired[Container], observed: Observed
    ) -> ContainerFacts:
        """A container with our labels but no record is taken as it is where it is as wanted, else
        set aside.

        With `adopt` it is put back in any case: somebody let go of it, and may rely on it.
        """
        main = observed.main
        if observed.holder is not None:
            return replace(facts, former=previous(observed.holder))
        if main is None:
            return facts
        would = plan(desired.spec.name, desired, None, observed, self._boot_id)
        differs = any(isinstance(action, Create) for action in getattr(would, "actions", ()))
        if differs or desired.spec.adopt:
            facts = replace(facts, former=previous(main))
        return facts if differs else replace(facts, id=main.id)

    def detail(self, record: OwnershipRecord | None, observed: Observed | None) -> Detail | None:
        """As the status shows it. `ready` is podman's own health check's word; probes are the
        engine's.
        """
        main = observed.main if observed is not None else None
        facts = read(record)
        restarts, last = facts.restarts or 0, facts.exit_code
        runs = runs_of(facts, observed.turn if observed is not None else None)
        if main is None:
            return ContainerDetail(state="Absent", restarts=restarts, exit_code=last, **runs)
        ended = main.state == "exited"
        since = main.finished if ended else main.started
        return ContainerDetail(
            state=_SHOWN[main.state],
            id=main.id,
            image_digest=main.image_digest,
            since=None if since is None else format_time(since),
            restarts=restarts,
            exit_code=last if main.exit_code is None else main.exit_code,
            ready=main.state == "running" and main.health in ("", "healthy"),
            **runs,
        )

    async def release(self, name: str) -> None:
        """Leave one container where an update of it was under way."""
        await self._applier.release(name)

    def batch_end(self, name: str) -> None:
        """The pass over `name` ended."""
        self._applier.batch_end(name)

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Podman's events, of our containers and of those that have a name that is wanted here; and
        nodes that come and go.
        """
        with self._nodes.listening(lambda path: self._plugged(path, changed)):
            await self._listen(changed)

    def _plugged(self, path: str, changed: Callable[[str], None]) -> None:
        for name, desired in self._store.wanted().items():
            if any(device.source == path for device in desired.spec.devices):
                changed(name)

    async def _listen(self, changed: Callable[[str], None]) -> None:
        async for event in self._containers.events():
            self._observer.forget(event.id)
            name = event.name
            if event.labels.get(DEVICE) == self._device:
                name = event.labels.get(RESOURCE, "").removeprefix("Container/")
            if name in self._store.names():
                changed(name)

    def instance(self, observed: Observed | None) -> str:
        """Its id and when it was started."""
        main = observed.main if observed is not None else None
        return main.run if main is not None and main.state in ("running", "paused") else ""

    async def tidy(self) -> bool:
        """Take away images that the agent pulled and nothing wants any more."""
        return await self._puller.book.look()

    async def restart(self, name: str) -> None:
        """Restart it, counted."""
        await self._applier.restart(name)

    async def exec_probe(self, name: str, argv: Sequence[str], timeout: float) -> int:
        """Run an argument list in the container and return its exit code."""
        try:
            return await self._containers.exec(self._records.id(name), argv, timeout)
        except EngineRefused as refusal:
            text = f"cannot run the probe in {name} (status {refusal.status}): is it running?"
            raise Transient("ProbeFailed", text) from None

    async def marked(self) -> list[Mark]:
        """List the containers with this device's labels, known to the ledger or not.

        One list call.
        """
        marks = marks_of(await self._containers.list({DEVICE: self._device}))
        return [replace(mark, known=self._accounted(mark)) for mark in marks]

    def _accounted(self, mark: Mark) -> bool:
        """Tell if it is what a record is about, or what stands in a record's place until that is
        put back.
        """
        record = self._store.record(mark.key.name)
        if record is None:
            return self._store.desired(mark.key.name) is not None
        facts, ident = read(record), mark.facts["id"]
        return facts.id is None or ident in (facts.id, facts.former_id, facts.retired_id)

    async def missing_controllers(self) -> list[str]:
        """List the cgroup controllers that limits of containers would need and that aren't there."""
        found = (await self._containers.host()).controllers
        return [] if found is None else sorted(set(CONTROLLERS.values()) - found)

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        """The last lines that the container wrote."""
        try:
            return list(await self._containers.logs(self._records.id(name), lines, seconds))
        except EngineRefused as refusal:
            text = f"cannot read the logs of {name} (status {refusal.status}): is there such a container?"
            raise Transient("LogsFailed", text) from None

    async def close(self) -> None:
        """Let go of podman; containers run on."""
        await self._containers.close()
