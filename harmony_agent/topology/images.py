"""Images: what the device's container engine keeps of them, how it fetches one, and the memory of
what the agent fetched. No library, no I/O.

The methods raise `containers.EngineRefused` where the engine answered with an error, and
`core.errors.Transient` where it did not answer, or a disk failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from harmony_agent.core.frozen import frozen


@frozen()
class StoredImage:
    """An image of the store with all its names. `parent` is the image that it was built from on
    this device, "" where there is none.
    """

    id: str
    names: tuple[str, ...] = ()
    parent: str = ""


@frozen()
class PullProgress:
    """Progress of a pull. The bytes are of the layers whose size is known by now."""

    layers: int = 0
    layers_done: int = 0
    bytes: int = 0
    total_bytes: int = 0


@frozen()
class Login:
    """Account that pulls from a registry."""

    user: str
    password: str = field(repr=False)


@frozen()
class PullRequest:
    """An image to fetch: `seconds` is the time for all of it, `reserve` the bytes that stay free."""

    ref: str
    seconds: float
    reserve: int = 0
    login: Login | None = None


class Images(Protocol):
    """The images of a container engine."""

    async def list(self) -> Sequence[StoredImage]:
        """Every image. One call."""
        ...

    async def pull(self, request: PullRequest, told: Callable[[PullProgress], None]) -> None:
        """Fetch an image; `told` hears how far it is, several times a second at most.

        What was finished of an earlier try isn't fetched again. Raises Transient with NoSpace
        before the reserve is used up.
        """
        ...

    async def remove(self, name: str) -> None:
        """Take away a name of an image, and with its last name the image. An id stands for an image
        without names. Refused while a container has it; nothing happens when it isn't there.
        """
        ...

    async def free(self) -> int:
        """Bytes that are free where images are kept."""
        ...


@frozen()
class OwnImage:
    """An image that the agent fetched, by these names of Scores. `unwanted` is the second since
    which nothing wants it.
    """

    refs: frozenset[str] = frozenset()
    unwanted: int | None = None


@frozen()
class PulledImages:
    """Images that the agent fetched, by id; `good` are those of what worked last, by resource."""

    images: Mapping[str, OwnImage] = field(default_factory=dict)
    good: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ImageMemory(Protocol):
    """Place where `PulledImages` outlive the agent."""

    def read(self) -> PulledImages:
        """Read what was kept last. Nothing where that can't be read: then no image is known as ours."""
        ...

    async def keep(self, pulled: PulledImages) -> None:
        """Keep it, durably before this returns. Raises Transient."""
        ...
