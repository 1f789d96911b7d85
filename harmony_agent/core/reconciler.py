"""The heart: what a reconciler is, and how it sees the engine's state.

Pure types; no I/O. A kind is one implementation of `Reconciler`; the engine drives them all in the
same way:

    observe -> plan -> (ownership) -> apply each action -> observe -> plan -> … until the plan is
    Converged or Wait

`plan` is pure. Each action may be cut at any point by SIGKILL or power and is then planned anew
from what is observed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from harmony_agent.core.actions import Action, Plan
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, Facts, Key, OwnershipRecord
from harmony_agent.core.status import Outcome
from scores.base import Score
from scores.manifest import FieldError
from scores.status import Detail

S = TypeVar("S", bound=Score)
O = TypeVar("O")  # noqa: E741  # observed
A = TypeVar("A", bound=Action)
S_co = TypeVar("S_co", bound=Score, covariant=True)
S_contra = TypeVar("S_contra", bound=Score, contravariant=True)
O_co = TypeVar("O_co", covariant=True)
O_contra = TypeVar("O_contra", contravariant=True)


@frozen()
class Mark:
    """An object of the device that says of itself whose it is, whatever the ledger says. `name` is
    its own name.
    """

    deployment: str
    key: Key
    name: str
    claims: frozenset[str]
    facts: Facts
    known: bool = False
    """whether the ledger or a manifest accounts for this very object"""


class KindView(Protocol[S_co]):
    """A reconciler's view of its own kind: desired specs, and the ledger's records."""

    def desired(self, name: str) -> Desired[S_co] | None:
        """Desired spec of `name` in an accepted manifest."""
        ...

    def record(self, name: str) -> OwnershipRecord | None:
        """Record of `name` in the ledger."""
        ...

    def names(self) -> Collection[str]:
        """Every name of this kind that is wanted or owned.

        The very same object means that nothing of what is wanted or owned has changed since.
        """
        ...

    def wanted(self) -> Mapping[str, Desired[S_co]]:
        """Every name of this kind that is wanted. The very same object means that none of it has
        changed since.
        """
        ...

    def spared(self) -> Sequence[S_co]:
        """The specs of this kind that a deployment may go back to: what they need is kept."""
        ...

    def holders(self, claim: str) -> Collection[str]:
        """The names of this kind whose records have `claim`."""
        ...

    def claimed(self, claim: str) -> bool:
        """Tell if a record of any kind has `claim`."""
        ...

    async def note(self, name: str, facts: Facts) -> None:
        """Replace the facts in the record of `name`, durably before this returns. The record must
        exist.
        """
        ...

    def tell(self, desired: Desired[Score], told: Callable[[Detail | None], Outcome]) -> None:
        """Show how far a step over what is `desired` is, while it is under way; `told` makes that of
        what was shown. Nothing happens where another spec is wanted by now.
        """
        ...

    async def share(self, name: str, facts: Mapping[str, Facts]) -> bool:
        """Replace the facts of `name`, whose pass this is, and of others in one commit.

        False: a pass over one of the others is under way, and nothing was written; ask again soon.
        """
        ...


class Reconciler(Protocol[S, O, A]):
    """One kind on this device. Everything that is called often is cheap; every outside call has its
    own timeout.

    These are the methods that every kind has. What only some can do stands in the protocols below;
    a kind that has the methods of one is taken to implement it.

    The three outcomes of an error are in `errors`: Transient (again later), Terminal (not until the
    spec changes), and a plan of `Wait` (look again). What escapes besides is a defect, and is
    reported as such.
    """

    kind: str
    spec_type: type[S]

    def admit(self, spec: S) -> Iterable[FieldError]:
        """List what this device's configuration forbids of `spec`.

        Fields are relative to it (``path``). Pure.
        """
        ...

    def claims(self, spec: S) -> frozenset[str]:
        """The device's objects that `spec` occupies. Pure."""
        ...

    async def relist(self) -> Mapping[str, O]:
        """All of this kind that is wanted or owned and exists, by name. Cheap enough for every
        period.
        """
        ...

    async def observe(self, name: str) -> O | None:
        """One, fresh. None: nothing of it exists (nor anything of an older spec that we own)."""
        ...

    def plan(
        self,
        name: str,
        desired: Desired[S] | None,
        record: OwnershipRecord | None,
        observed: O | None,
    ) -> Plan[A]:
        """Plan the next actions.

        Pure: of the kind itself it reads nothing but constants of the device. `desired` None asks
        for removal of what we own. `record` None means that it isn't ours. `observed` None means
        that nothing is there.
        """
        ...

    async def apply(self, action: A) -> None:
        """Take one step; idempotent."""
        ...

    def facts(
        self, desired: Desired[S], record: OwnershipRecord | None, observed: O | None
    ) -> Facts:
        """Collect the facts to record at a claim, before anything is done.

        With `adopt` they include the previous state.
        """
        ...

    def detail(self, record: OwnershipRecord | None, observed: O | None) -> Detail | None:
        """The typed status of what was observed. Pure."""
        ...


@runtime_checkable
class Watches(Protocol):
    """A kind that hears of changes. Without it, only the relist finds them."""

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with a name whenever an event says that it may look different; run until
        cancelled.

        Events only make a look sooner: they may be missed, doubled or late. Reconnects by itself,
        with backoff.
        """
        ...


@runtime_checkable
class Remembers(Protocol[O_co]):
    """A kind each of whose actions refuses to change what isn't as it was observed."""

    def cached(self, name: str) -> O_co | None:
        """Return what a look would show as far as is known, to plan a change by; None where only a look
        can say. Pure.
        """
        ...


@runtime_checkable
class Runs(Protocol[O_contra]):
    """A kind whose resources are processes."""

    def instance(self, observed: O_contra | None) -> str:
        """Tell one run of the process from another, uniquely on this device; "" where nothing runs.
        Pure.
        """
        ...

    async def restart(self, name: str) -> None:
        """Restart what runs under `name`, because its liveness probe failed."""
        ...


@runtime_checkable
class RunsCommands(Protocol):
    """A kind inside whose resources a probe may run a command."""

    async def exec_probe(self, name: str, argv: Sequence[str], timeout: float) -> int:
        """Run an argument list in `name`, for `timeout` seconds at most; returns its exit code."""
        ...


class LogLine(NamedTuple):
    """A line of a log, with its time as the wire writes one; empty where it isn't known."""

    time: str
    text: str


@runtime_checkable
class Logs(Protocol):
    """A kind whose resources log."""

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        """The last lines that `name` logged, oldest first; of the last `seconds`, or of all
        time.
        """
        ...


@runtime_checkable
class Batches(Protocol):
    """A kind that does work for several resources at once, as one daemon-reload serves them all."""

    def batch_begin(self, names: Collection[str]) -> None:
        """These are about to be worked on together. Each ends with `batch_end`."""
        ...


@runtime_checkable
class EndsPasses(Protocol):
    """A kind that keeps something while a pass over a resource is under way."""

    def batch_end(self, name: str) -> None:
        """The pass over `name` ended, in whatever way."""
        ...


@runtime_checkable
class Tidies(Protocol):
    """A kind that leaves things behind which nothing wants any more."""

    async def tidy(self) -> bool:
        """Take away what is over; tell if it went well. Called in each sixth period, so it asks
        nobody where there is nothing.
        """
        ...


@runtime_checkable
class Releases(Protocol):
    """A kind that keeps something of how its resources were before."""

    async def release(self, name: str) -> None:
        """Drop what is kept: the resource stays as it is and is ours no more. Idempotent."""
        ...


@runtime_checkable
class Closes(Protocol):
    """A kind that holds connections or descriptors."""

    async def close(self) -> None:
        """Let go of them; what runs goes on."""
        ...


@runtime_checkable
class Marks(Protocol):
    """A kind whose objects say of themselves whose they are."""

    async def marked(self) -> Sequence[Mark]:
        """List what carries this device's marks, whatever the ledger knows of it."""
        ...


@runtime_checkable
class Takes(Protocol[S_contra, O_contra]):
    """A kind whose objects pass from one resource to another as they are."""

    def taken(
        self, name: str, desired: Desired[S_contra], observed: O_contra | None
    ) -> Mapping[str, Facts]:
        """Names that hold what `desired` occupies and don't want it any more, with the facts that
        each keeps. Pure.
        """
        ...
