"""Container: reads env files and creates containers, so that a crash between any two
steps is seen later.

An id is known only after the creation: before it, the id is recorded as "", and what then has our
labels is ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from harmony_agent.core.errors import Transient
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.container import payload as made_of
from harmony_agent.kinds.container.hardware import Nodes, plugs, unplugged
from harmony_agent.kinds.container.mount_guard import MountGuard
from harmony_agent.kinds.container.plan import WATCHED
from harmony_agent.kinds.container.policy import bind_sources
from harmony_agent.kinds.container.records import ContainerRecords
from harmony_agent.kinds.container.secrets import ContainerSecrets
from harmony_agent.topology.containers import (
    Containers,
    ContainerState,
    EngineRefused,
    Image,
)
from harmony_agent.topology.device_nodes import DeviceNodes
from harmony_agent.topology.env_files import EnvFiles, read_variables
from scores.container import Container


class Creator:
    """Makes containers on one device."""

    def __init__(
        self,
        containers: Containers,
        env_files: EnvFiles,
        nodes: DeviceNodes,
        records: ContainerRecords,
        guard: MountGuard,
        *,
        secrets: ContainerSecrets,
        device: str,
    ) -> None:
        self._containers, self._env_files, self._records = containers, env_files, records
        self._nodes, self._guard, self._device = nodes, guard, device
        self._secrets = secrets

    async def _image(self, image: str) -> Image:
        found = await self._containers.image(image)
        if found is None:
            text = f"cannot find the image {image}: it went away just now"
            raise Transient("ImageMissing", text, phase="Blocked", delay=1.0)
        return found

    async def read_env(self, spec: Container) -> tuple[dict[str, str], dict[str, str]]:
        """The digests of the env files by path, and their variables; later files win."""
        return await read_variables(self._env_files, spec.env_files)

    def _labels(self, desired: Desired[Container], label: str) -> dict[str, str]:
        return {
            made_of.DEVICE: self._device,
            made_of.DEPLOYMENT: desired.deployment,
            made_of.RESOURCE: f"Container/{desired.spec.name}",
            made_of.SPEC: label,
        }

    async def trial(self, name: str, held: Collection[tuple[str, int]]) -> str | None:
        """Create a trial of the container that is wanted, without the ports that are `held`; its
        id.
        """
        desired = self._records.desired(name)
        if desired is None:
            return None
        label, made = await self._payload(desired)
        return await self._create_once(name, made_of.trial_payload(made, label, held))

    async def bound(self, name: str) -> dict[str, str] | None:
        """Identify the sources of its binds: what it gets, if it is started now."""
        spec = self._records.spec(name)
        sources = bind_sources(spec) if spec is not None else ()
        found = await self._env_files.identify(sources) if sources else {}
        return {path: inode for path, inode in found.items() if inode is not None} or None

    async def plugged(self, name: str) -> dict[str, str] | None:
        """Identify the nodes of its devices: what it gets, if it is started now."""
        spec = self._records.spec(name)
        return (plugs(spec, await self._look(spec)) or None) if spec is not None else None

    async def _look(self, spec: Container) -> Nodes:
        sources = [one.source for one in spec.devices]
        return await self._nodes.look(sources) if sources else {}

    async def trials(self, name: str) -> list[str]:
        """The ids of what rehearsals left behind."""
        labels = {made_of.DEVICE: self._device, made_of.RESOURCE: f"Container/{name}"}
        listed = await self._containers.list(labels)
        return [one.id for one in listed if made_of.TRIAL in one.labels]

    async def _payload(self, desired: Desired[Container]) -> tuple[str, dict[str, Any]]:
        """The label and the SpecGenerator value of what is wanted."""
        spec = desired.spec
        await self._guard.check(spec)
        digests, variables = await self.read_env(spec)
        nodes = await self._look(spec)
        if (wait := unplugged(spec, nodes)) is not None:
            raise Transient(wait.reason, wait.message, phase=wait.phase, delay=wait.seconds)
        label = made_of.spec_label(spec, digests, nodes, desired.secrets)
        image = await self._image(spec.image)
        filled, labels = self._secrets.filled(spec), self._labels(desired, label)
        made = made_of.payload(filled, labels, image, variables, nodes)
        self._secrets.provide(spec)
        return label, _with(made, self._secrets.mounts(spec))

    def provide(self, name: str) -> None:
        """Have the files of its secrets there: after a boot they are gone."""
        spec = self._records.spec(name)
        if spec is not None:
            self._secrets.provide(spec)

    async def hidden(self, spec: Container) -> frozenset[str]:
        """Every value that no message may repeat. Raises Transient where one can't be read."""
        _, files = await self.read_env(spec)
        return made_of.secrets(self._secrets.filled(spec), files) | self._secrets.hidden(spec)

    async def create(self, name: str) -> None:
        """Create the container that is wanted; its name must be free."""
        desired = self._records.desired(name)
        if desired is None:
            return
        spec = desired.spec
        label, made = await self._payload(desired)
        await self._note_creation(name, desired, label)
        ident = await self._create_once(name, made)
        state = await self._containers.inspect(ident)
        await self._records.note(
            name, replace(self._records.facts(name), id=ident, made=_made(spec, state))
        )

    async def _note_creation(self, name: str, desired: Desired[Container], label: str) -> None:
        """Record that one is about to be created; of another spec, nothing was counted yet."""
        facts = self._records.facts(name)
        if facts.label != label:
            facts = replace(facts, restarts=0, exit_code=None, ended=None, tries=None, last=None)
        token = desired.restart_token
        facts = replace(facts, id="", label=label, made=None, inits=None, token=token)
        facts = replace(facts, concluded=None, concluded_with=None)
        await self._records.note(name, replace(facts, restart_from_run=""))

    async def _create_once(self, name: str, payload: Mapping[str, Any]) -> str:
        """Create; where only the storage still holds the name, clear that once."""
        try:
            return await self._containers.create(payload)
        except EngineRefused as refusal:
            if "in use" not in refusal.text:
                raise
            leftover = made_of.name_holder(refusal.text)
        if leftover and await self._containers.inspect(leftover) is None:
            await self._containers.clear_storage(leftover)
            try:
                return await self._containers.create(payload)
            except EngineRefused as refusal:
                if "in use" not in refusal.text:
                    raise
        text = f"cannot create {name}: its name is in use, by what `podman ps --all --external` shows: remove that"
        raise Transient("NameInUse", text)

    async def remember(self, name: str, ident: str) -> None:
        """It is ours by its labels, and made from the wanted spec."""
        state, spec = await self._containers.inspect(ident), self._records.spec(name)
        if state is None or spec is None:
            return
        facts = self._records.facts(name)
        label = state.labels.get(made_of.SPEC)
        await self._records.note(
            name, replace(facts, id=ident, label=label, made=_made(spec, state))
        )

    def _init_payload(
        self, spec: Container, init: str, labels: Mapping[str, str], image: Image
    ) -> dict[str, Any]:
        filled = self._secrets.filled(spec)
        one = next(one for one in filled.init_containers if one.name == init)
        made = made_of.init_payload(filled, one, labels, image)
        return _with(made, self._secrets.mounts(spec)) if one.mounts is None else made

    async def run_init(self, name: str, init: str, ident: str) -> None:
        """Create the init container, unless it is `ident`, and start it."""
        desired = self._records.desired(name)
        wanted = (
            [one for one in desired.spec.init_containers if one.name == init]
            if desired is not None
            else []
        )
        if desired is None or not wanted:
            return
        if not ident:
            await self._guard.check(desired.spec)
            image = await self._image(wanted[0].image or desired.spec.image)
            labels = self._labels(desired, "init")
            ident = await self._create_once(
                name, self._init_payload(desired.spec, init, labels, image)
            )
        self.provide(name)
        try:
            await self._containers.start(ident)
        except EngineRefused:
            await self._containers.remove(ident)
            raise


def _with(made: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The payload with more mounts."""
    mounts = [*made.get("mounts", []), *more.get("mounts", [])]
    return made | ({"mounts": mounts} if mounts else {})


def _made(spec: Container, state: ContainerState | None) -> dict[str, str]:
    """The changeable fields that the Score sets, as they are now."""
    config = state.config if state is not None else {}
    return {
        name: config[name] for name in WATCHED if name in spec.model_fields_set and name in config
    }
