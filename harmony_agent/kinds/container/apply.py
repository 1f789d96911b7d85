"""Container: takes the steps that the plan asks for, each safe to repeat, and records what later
steps lean on.

What is recorded before a step says that it may have been taken; see `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, assert_never

from harmony_agent.core.errors import Transient
from harmony_agent.kinds.container import payload as made_of
from harmony_agent.kinds.container.actions import (
    Conclude,
    ContainerAction,
    Create,
    EndInit,
    EnsureImage,
    Park,
    Rehearse,
    Remember,
    Remove,
    Rename,
    Restart,
    Restore,
    Retire,
    RunInit,
    Skip,
    Start,
    Stop,
    Unpause,
)
from harmony_agent.kinds.container.create import Creator
from harmony_agent.kinds.container.facts import (
    ContainerFacts,
    InitProgress,
    Job,
    PreviousContainer,
)
from harmony_agent.kinds.container.pull import ImagePuller
from harmony_agent.kinds.container.records import ContainerRecords
from harmony_agent.kinds.container.replacement import Replacer, StartRefused
from harmony_agent.topology.containers import Containers, ContainerState, EngineRefused


class Applier:
    """Changes one device's containers."""

    def __init__(
        self,
        containers: Containers,
        creator: Creator,
        puller: ImagePuller,
        records: ContainerRecords,
        boot_id: str,
    ) -> None:
        self._containers, self._creator, self._records = containers, creator, records
        self._puller = puller
        self._boot_id = boot_id
        self._replacer = Replacer(containers, creator, records)
        self._mended: set[str] = set()

    def batch_end(self, name: str) -> None:
        """The pass ended: a damaged container may be made anew once more in the next."""
        self._mended.discard(name)

    async def apply(self, action: ContainerAction) -> None:
        """Take one step. What podman refuses becomes Transient, with its words where they repeat no
        value.
        """
        try:
            await self._apply(action)
        except EngineRefused as refusal:
            failed = Start if isinstance(refusal, StartRefused) else type(action)
            reason, verb = _FAILURES[failed]
            reason = "NoSpace" if refusal.no_space else reason
            words = await self._words(action.name, refusal)
            await self._give_up(action)
            # Not chained: podman's answer stays behind.
            what = action.image if isinstance(action, EnsureImage) else action.name
            raise Transient(reason, f"cannot {verb} {what}: {words}") from None
        except Transient as error:
            if error.reason not in _UNANSWERED:
                await self._give_up(action)
            raise

    async def _give_up(self, action: ContainerAction) -> None:
        """Its predecessor comes back, where the new one can't be made or started."""
        if isinstance(action, (Create, Start, RunInit, EndInit)):
            try:
                await self._replacer.bring_back(action.name)
            except EngineRefused as refusal:
                words = await self._words(action.name, refusal)
                text = f"cannot bring back the container before of {action.name}: {words}"
                raise Transient("PutBackFailed", text) from None

    async def release(self, name: str) -> None:
        """Leave one container where an update of it was under way."""
        with suppress(EngineRefused):  # the other one stays, under its own name, for its owner
            await self._replacer.finish(name)

    async def _apply(self, action: ContainerAction) -> None:  # noqa: PLR0912  # one case an action
        facts = self._records.facts(action.name)
        match action:
            case EnsureImage(name=name, image=image):
                await self._puller.ensure(name, image)
            case Create(name=name):
                await self._creator.create(name)
            case Rehearse(name=name, id=ident):
                await self._replacer.rehearse(name, ident)
            case Retire(name=name, id=ident, paused=paused):
                await self._replacer.retire(name, ident, paused=paused)
            case Remember(name=name, id=ident):
                await self._creator.remember(name, ident)
            case Conclude(name=name, run=run, exit_code=code, last=last):
                new = replace(facts, concluded=run, concluded_with=code, exit_code=code, last=last)
                if new.job is not None:
                    new = replace(new, job=replace(new.job, began="", from_run=""))
                await self._records.note(name, new)
            case Skip(name=name):
                await self._records.note(name, replace(facts, job=_skipped(facts.job, action)))
            case Start():
                await self._start(action)
            case Restart(name=name, id=ident, run=run):
                facts = replace(facts, token=self._records.token(name), restart_from_run=run)
                await self._records.note(name, await self._seen_at_start(name, facts))
                await self._containers.restart(ident, self._records.grace(name))
            case Stop(name=name, id=ident, paused=paused):
                await self._stop(ident, self._records.grace(name), paused=paused)
            case Unpause(id=ident):
                await self._containers.unpause(ident)
            case Rename(name=name, id=ident):
                await self._containers.rename(ident, name)
            case Remove(name=name, id=ident, paused=paused):
                await self._remove(ident, self._records.grace(name), paused=paused)
                await self._replacer.forget(name, ident)
            case RunInit(name=name, init=init, id=ident):
                await self._records.note(name, replace(facts, boot=self._boot_id))
                await self._creator.run_init(name, init, ident)
            case EndInit():
                await self._end_init(action)
            case Park():
                await self._park(action)
            case Restore(name=name):
                await self._restore(name)
            case _:
                assert_never(action)

    async def restart(self, name: str) -> None:
        """Restart it for its liveness probe, counted first."""
        facts = self._records.facts(name)
        try:
            ident = self._records.id(name)
            state = await self._containers.inspect(ident)
            facts = replace(facts, restart_from_run=state.run if state is not None else "")
            await self._records.note(name, replace(facts, restarts=(facts.restarts or 0) + 1))
            await self._containers.restart(ident, self._records.grace(name))
        except EngineRefused as refusal:
            words = await self._words(name, refusal)
            raise Transient("RestartFailed", f"cannot restart {name}: {words}") from None

    async def _words(self, name: str, refusal: EngineRefused) -> str:
        """Podman's words, where it is known what they must not repeat."""
        spec = self._records.spec(name)
        if spec is None:
            return f"podman refused (status {refusal.status}); its own log says why"
        try:
            hidden = await self._creator.hidden(spec) | self._puller.hidden(spec)
        except Transient:
            return (
                f"podman refused (status {refusal.status}), and its words can't be checked for values "
                "of env_files and secrets"
            )
        return made_of.safe(refusal.text, hidden)

    # Running.

    async def _start(self, action: Start) -> None:
        name, facts = action.name, self._records.facts(action.name)
        token = self._records.token(name)
        new = replace(facts, boot=self._boot_id, token=token, restart_from_run=action.run)
        new = await self._seen_at_start(name, new)
        if action.due:
            job = replace(new.job or Job(), handled=action.due, began=action.due)
            new = replace(new, job=replace(job, from_run=action.run))
        if not action.ended:
            new = replace(new, tries=None)
        elif facts.ended != action.ended:
            new = replace(
                new,
                restarts=(facts.restarts or 0) + 1,
                tries=1 if action.calm else (facts.tries or 0) + 1,
                ended=action.ended,
                exit_code=action.exit_code,
            )
        await self._records.note(name, new)
        self._creator.provide(name)
        try:
            await self._containers.start(action.id)
        except EngineRefused as refusal:
            if not made_of.damaged(refusal.text):
                raise
            await self._mend(action)

    async def _seen_at_start(self, name: str, facts: ContainerFacts) -> ContainerFacts:
        """The facts with what its binds and devices lead to now."""
        bound, plugged = await self._creator.bound(name), await self._creator.plugged(name)
        return replace(facts, binds=bound, plugs=plugged)

    async def _mend(self, action: Start) -> None:
        """Its storage never reached the disk: make it anew, once a pass. The next step of the pass
        starts it.
        """
        name = action.name
        if name in self._mended:
            text = f"cannot start {name}: podman's storage is damaged; remove its image and let it be pulled again"
            raise Transient("StorageDamaged", text)
        self._mended.add(name)
        await self._containers.remove(action.id)
        await self._creator.create(name)

    async def _stop(self, ident: str, grace: int, *, paused: bool) -> None:
        if paused:
            await self._containers.unpause(ident)
        await self._containers.stop(ident, grace)

    async def _remove(self, ident: str, grace: int, *, paused: bool) -> None:
        with suppress(
            EngineRefused
        ):  # what never ran, or lost its storage, can't be stopped; whether it goes is said below
            await self._stop(ident, grace, paused=paused)
        await self._containers.remove(ident)

    # Init containers.

    async def _end_init(self, action: EndInit) -> None:
        if not action.failure:
            facts = self._records.facts(action.name)
            inits = InitProgress(action.main, action.done)
            await self._records.note(action.name, replace(facts, inits=inits))
        await self._remove(action.id, 0, paused=False)
        if action.failure:
            raise Transient(
                "InitFailed", f"cannot start {action.name}: its init container {action.failure}"
            )

    # Adoption.

    async def _park(self, action: Park) -> None:
        state = await self._containers.inspect(action.id)
        if state is None:
            return
        facts = self._records.facts(action.name)
        if facts.owed != action.id:
            await self._records.note(action.name, replace(facts, former=previous(state)))
        await self._stop(action.id, state.stop_timeout, paused=state.state == "paused")
        await self._containers.rename(action.id, made_of.former_name(action.name, action.id))

    async def _restore(self, name: str) -> None:
        former = self._records.facts(name).former
        if former is None:
            return
        state = await self._containers.inspect(former.id)
        if state is not None:
            if state.name != name:
                await self._containers.rename(state.id, name)
            if former.running and state.state in ("created", "exited"):
                await self._containers.start(state.id)
            elif not former.running and state.state not in ("created", "exited"):
                await self._stop(state.id, state.stop_timeout, paused=state.state == "paused")
        # Its id stays recorded: with our labels, it would be taken for ours at the next look.
        facts = self._records.facts(name)
        await self._records.note(name, replace(facts, former=replace(former, back=True)))


def _skipped(job: Job | None, skip: Skip) -> Job:
    job = replace(job or Job(), handled=skip.until)
    if not skip.missed:
        return job
    return replace(job, missed=job.missed + skip.missed, missed_at=skip.until)


def previous(state: ContainerState) -> PreviousContainer:
    """Collect the facts of an adopted container."""
    return PreviousContainer(state.id, state.state in ("running", "paused", "stopping"))


_UNANSWERED: Final = ("PodmanUnavailable", "PodmanUnreachable", "Timeout")
"""Reasons that don't say whether the step was taken."""
_FAILURES: Mapping[type, tuple[str, str]] = {
    EnsureImage: ("PullFailed", "pull"),
    Create: ("CreateFailed", "create"),
    Rehearse: ("CreateFailed", "create"),
    Retire: ("StopFailed", "stop"),
    Remember: ("InspectFailed", "inspect"),
    Conclude: ("InspectFailed", "inspect"),
    Skip: ("InspectFailed", "inspect"),
    Start: ("StartFailed", "start"),
    Restart: ("RestartFailed", "restart"),
    Stop: ("StopFailed", "stop"),
    Unpause: ("UnpauseFailed", "unpause"),
    Rename: ("RenameFailed", "rename"),
    Remove: ("RemoveFailed", "remove"),
    RunInit: ("InitFailed", "run an init container of"),
    EndInit: ("RemoveFailed", "remove an init container of"),
    Park: ("AdoptFailed", "set aside the container that is called"),
    Restore: ("PutBackFailed", "put back the container that was called"),
}
