"""Container: what there is, from one list call and as few inspections as tell the truth.

A relist inspects only what the list shows changed, and, since a limit can be changed without a
trace in the list, those whose Score sets one, at most `SWEEP` of them each time, in turn. Must
change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView, Mark
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.kinds.container.evidence import Evidence
from harmony_agent.kinds.container.facts import read
from harmony_agent.kinds.container.limits import needed, unfit_runtime
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.payload import (
    DEPLOYMENT,
    DEVICE,
    INIT,
    RESOURCE,
    TRIAL,
    damaged,
    init_name,
)
from harmony_agent.kinds.container.plan import WATCHED
from harmony_agent.kinds.container.turns import TurnCache
from harmony_agent.topology.containers import (
    Containers,
    ContainerState,
    EngineHost,
    EngineRefused,
    Listed,
)
from harmony_agent.topology.device_nodes import DeviceNode, DeviceNodes
from harmony_agent.topology.env_files import EnvFiles
from scores.container import Container
from scores.container_surroundings import KEEP_GROUPS

SWEEP: Final = 20
"""Inspections of unchanged containers in one relist."""
_UNSEEN_IN_LIST: Final = frozenset(WATCHED) - {"network", "networks"}


class Observer:
    """Looks at one device's containers."""

    def __init__(
        self,
        containers: Containers,
        env_files: EnvFiles,
        nodes: DeviceNodes,
        turns: TurnCache,
        store: KindView[Container],
        *,
        device: str,
        now: Callable[[], datetime],
    ) -> None:
        self._containers, self._env_files, self._store = containers, env_files, store
        self._nodes, self._turns, self._device, self._now = nodes, turns, device, now
        self._evidence = Evidence(containers, env_files, store, now)
        self._cache: dict[str, tuple[Listed, ContainerState]] = {}
        self._swept: list[str] = []
        self._host = EngineHost(None)
        self._asked: datetime | None = None

    def missing(self, spec: Container) -> tuple[str, ...]:
        """List the controllers that the spec needs and the device was found to lack."""
        if self._host.controllers is None:
            return ()
        return tuple(name for name in needed(spec) if name not in self._host.controllers)

    def _lacking(self, spec: Container) -> bool:
        return bool(self.missing(spec) or unfit_runtime(spec, self._host.runtime))

    async def _ask_host(self, names: Iterable[str]) -> None:
        """Ask where a limit or the groups of the agent's user are wanted; once, and then again each
        minute while something is missing.
        """
        wanted = [self._store.desired(name) for name in names]
        limited = [
            one.spec
            for one in wanted
            if one is not None and (needed(one.spec) or KEEP_GROUPS in one.spec.groups)
        ]
        if not limited:
            return
        now = self._now()
        if self._asked is None or (
            any(map(self._lacking, limited))
            and not timedelta() <= now - self._asked < timedelta(minutes=1)
        ):
            self._host = await self._containers.host()
            self._asked = now

    def forget(self, ident: str) -> None:
        """The container `ident` may have changed though a list doesn't show it."""
        self._cache.pop(ident, None)

    async def one(self, name: str) -> Observed | None:
        """Observe `name` now. None if there is nothing."""
        await self._ask_host([name])
        listed = await self._containers.list({DEVICE: self._device, RESOURCE: f"Container/{name}"})
        states = await self._states(listed, {one.id for one in listed})
        if (
            all(state.name != name for state in states)
            and (other := await self._by_name(name)) is not None
        ):
            states.append(other)
        desired = self._store.desired(name)
        paths = desired.spec.env_files if desired is not None else ()
        digests = await self._env_files.digests(paths) if paths else {}
        nodes = await self._nodes.look(sources) if (sources := self._sources([name])) else {}
        observed = self._observed(name, states, digests, nodes)
        if observed is None:
            return None
        return (await self._evidence.complete({name: observed}))[name]

    async def relist(self) -> dict[str, Observed]:
        """All that is wanted or owned and exists. Containers that aren't ours don't show here."""
        listed = await self._containers.list({DEVICE: self._device})
        names = self._store.names()
        await self._ask_host(names)
        groups: dict[str, list[Listed]] = {name: [] for name in names}
        for one in listed:
            groups.get(one.labels.get(RESOURCE, "").removeprefix("Container/"), []).append(one)
        self._cache = {one.id: self._cache[one.id] for one in listed if one.id in self._cache}
        self._turns.retain(names)
        again = self._sweep(groups)
        digests = await self._env_files.digests(self._paths(names))
        sources = self._sources(names)
        nodes = await self._nodes.look(sources) if sources else {}
        self._nodes.retain(sources)
        found = {}
        for name, group in groups.items():
            states = await self._states(group, again, patient=True)
            observed = self._observed(name, states, digests, nodes)
            if observed is not None:
                found[name] = observed
        return await self._evidence.complete(found)

    def _sweep(self, groups: Mapping[str, Collection[Listed]]) -> set[str]:
        """Choose containers to inspect though the list shows no change."""
        watched = []
        for name, group in groups.items():
            desired = self._store.desired(name)
            if desired is not None and desired.spec.model_fields_set & _UNSEEN_IN_LIST:
                watched += [one.id for one in group]
        waiting = [ident for ident in watched if ident not in self._swept]
        if not waiting:
            waiting, self._swept = watched, []
        turn = waiting[:SWEEP]
        self._swept += turn
        return set(turn)

    def _paths(self, names: Iterable[str]) -> set[str]:
        wanted = [self._store.desired(name) for name in names]
        return {
            path for desired in wanted if desired is not None for path in desired.spec.env_files
        }

    def _sources(self, names: Iterable[str]) -> list[str]:
        """The nodes that are wanted, each once."""
        wanted = [self._store.desired(name) for name in names]
        devices = [one for desired in wanted if desired for one in desired.spec.devices]
        return list(dict.fromkeys(device.source for device in devices))

    async def _states(
        self, listed: Iterable[Listed], fresh: Collection[str], *, patient: bool = False
    ) -> list[ContainerState]:
        """The inspected states. `patient`: one that doesn't answer stays as it was last seen, or
        isn't there.
        """
        states = []
        for one in listed:
            held = self._cache.get(one.id)
            try:
                state = (
                    held[1]
                    if held and held[0] == one and one.id not in fresh
                    else await self._inspect(one)
                )
            except Transient as error:
                if not patient or error.reason != "Timeout":
                    raise
                state = held[1] if held else None
            if state is not None:
                states.append(state)
        return states

    async def _inspect(self, listed: Listed) -> ContainerState | None:
        try:
            state = await self._containers.inspect(listed.id)
        except EngineRefused as refusal:
            if not damaged(refusal.text):
                raise _cannot_inspect(listed.name, refusal) from None
            state = ContainerState(
                id=listed.id, name=listed.name, state=listed.state, labels=listed.labels, broken=True
            )  # fmt: skip
        if state is not None:
            self._cache[listed.id] = (listed, state)
        return state

    async def _by_name(self, name: str) -> ContainerState | None:
        """Whatever has our name and none of our labels."""
        try:
            return await self._containers.inspect(name)
        except EngineRefused as refusal:
            raise _cannot_inspect(name, refusal) from None

    def _observed(
        self,
        name: str,
        states: Collection[ContainerState],
        digests: Mapping[str, str | None],
        nodes: Mapping[str, DeviceNode | None],
    ) -> Observed | None:
        desired, record = self._store.desired(name), self._store.record(name)
        found = sort_out(name, states, desired, record, self._device)
        facts = read(record)
        if desired is None:
            return None if found == Observed() and not facts.owed and not facts.concluded else found
        found = replace(
            found,
            missing=self.missing(desired.spec),
            runtime=unfit_runtime(desired.spec, self._host.runtime),
            nodes={one.source: nodes.get(one.source) for one in desired.spec.devices},
        )
        if found == Observed() and not facts.owed and not facts.concluded:
            return None
        return replace(
            found,
            overdue=overdue(desired.spec, found.inits, self._now()),
            env_files={path: digests.get(path) for path in desired.spec.env_files},
            turn=self._turns.turn(name, desired.spec, facts.job),
        )


def sort_out(
    name: str,
    states: Collection[ContainerState],
    desired: Desired[Container] | None,
    record: OwnershipRecord | None,
    device: str,
) -> Observed:
    """Tell our container in `states` from one that only has our name. Pure."""
    facts = read(record)
    deployments = {record.deployment if record else None, desired.deployment if desired else None}

    def labelled(state: ContainerState) -> bool:
        labels = state.labels
        ours = labels.get(DEVICE) == device and labels.get(RESOURCE) == f"Container/{name}"
        # Nothing is recorded yet: another deployment may have let go of it.
        return (
            ours
            and state.id not in (facts.former_id, facts.retired_id)
            and (record is None or labels.get(DEPLOYMENT) in deployments)
        )

    def is_main(state: ContainerState) -> bool:
        if facts.id:
            return state.id == facts.id
        return state.name == name and labelled(state) and not {INIT, TRIAL} & state.labels.keys()

    main = next((state for state in states if is_main(state)), None)
    inits = {
        state.labels[INIT]: state
        for state in states
        if labelled(state)
        and INIT in state.labels
        and state.name == init_name(name, state.labels[INIT])
    }
    trials = tuple(state for state in states if labelled(state) and TRIAL in state.labels)
    others = [state for state in states if state is not main]
    retired = next((state for state in others if state.id == facts.retired_id), None)
    holders = [state for state in others if state.name == name and state is not retired]
    return Observed(
        main=main, holder=next(iter(holders), None), retired=retired, trials=trials, inits=inits
    )


def marks_of(listed: Iterable[Listed]) -> list[Mark]:
    """The containers that say of themselves which resource they are; their init containers go with
    them. Pure.
    """
    found = []
    for one in listed:
        kind, _, name = one.labels.get(RESOURCE, "").partition("/")
        if kind == "Container" and name and not {INIT, TRIAL} & one.labels.keys():
            claims = frozenset({f"container:{name}"})
            found.append(
                Mark(
                    one.labels.get(DEPLOYMENT, ""),
                    Key(kind, name),
                    one.name,
                    claims,
                    {"id": one.id},
                )
            )
    return found


def overdue(spec: Container, inits: Mapping[str, ContainerState], now: datetime) -> frozenset[str]:
    """The init containers that have run for longer than they may. Pure."""
    late = set()
    for init in spec.init_containers:
        state = inits.get(init.name)
        if state is not None and state.state != "exited" and state.started is not None:
            late |= (
                {init.name}
                if (now - state.started).total_seconds() > init.timeout_seconds
                else set()
            )
    return frozenset(late)


def _cannot_inspect(name: str, refusal: EngineRefused) -> Transient:
    text = (
        f"cannot inspect the container {name} (status {refusal.status}): podman's own log says why"
    )
    return Transient("InspectFailed", text, phase="Unknown")
