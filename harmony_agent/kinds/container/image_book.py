"""Container: the book of the images that the agent fetched, and the removal of those that nothing
wants any more.

Must not remove what the book doesn't have: an image without an entry is somebody else's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from harmony_agent.core.errors import Transient
from harmony_agent.core.frozen import frozen
from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.container import pulled as book
from harmony_agent.topology.containers import Containers, EngineRefused
from harmony_agent.topology.images import ImageMemory, Images, PulledImages, StoredImage
from scores.container import Container

log = logging.getLogger(__name__)


@frozen()
class ImageBounds:
    """`min_free` bytes stay free where images are kept; `keep_seconds` long an image is kept that
    nothing wants.
    """

    min_free: int = 0
    keep_seconds: float = 0.0


class ImageBook:
    """One device's images, as far as they are ours."""

    def __init__(
        self,
        containers: Containers,
        images: Images,
        memory: ImageMemory,
        view: KindView[Container],
        *,
        bounds: ImageBounds,
        now: Callable[[], datetime],
    ) -> None:
        self._containers, self._images, self._memory = containers, images, memory
        self._view, self._bounds, self._now = view, bounds, now
        self._pulled: PulledImages | None = None

    def pulled(self) -> PulledImages:
        """Known images, read once."""
        if self._pulled is None:
            self._pulled = self._memory.read()
        return self._pulled

    async def _keep(self, new: PulledImages) -> None:
        if new != self.pulled():
            self._pulled = new
            await self._memory.keep(new)

    async def begin(self) -> frozenset[str]:
        """A pull is about to begin: keep what worked until now; returns the images that are there."""
        await self._keep(self._sorted_out())
        return frozenset(image.id for image in await self._images.list())

    async def arrived(self, ref: str, before: frozenset[str]) -> None:
        """A pull of `ref` is over. `before` are the images that `begin` found.

        An agent that is killed before this knows nothing of the image, and leaves it for good.
        """
        image = await self._containers.image(ref)
        if image is not None:
            ident = image.id.removeprefix("sha256:")
            await self._keep(book.arrived(self.pulled(), ref, ident, before))

    def _sorted_out(self) -> PulledImages:
        """Known images, with those marked that nothing wants by now."""
        wanted = {name: images_of(one.spec) for name, one in self._view.wanted().items()}
        working = [name for name in wanted if self._works(name)]
        wanted |= {f"~{one.name}": images_of(one) for one in self._view.spared()}
        return book.sorted_out(self.pulled(), wanted, working, int(self._now().timestamp()))

    def _works(self, name: str) -> bool:
        """Tell if it was seen to be as wanted, and ready."""
        desired, record = self._view.desired(name), self._view.record(name)
        if desired is None or record is None or record.applied != desired.version:
            return False
        return bool(record.ready) or desired.spec.readiness is None

    async def make_room(self) -> int:
        """Remove all that nothing wants, where less is free than is to be; returns what is free."""
        free = await self._images.free()
        if free >= self._bounds.min_free:
            return free
        await self.tidy(low=True)
        return await self._images.free()

    async def tidy(self, *, low: bool = False) -> None:
        """Remove what nothing has wanted for long, or wants, where the room is `low`. At rest it
        asks nobody.
        """
        await self._keep(self._sorted_out())
        now = self._now().timestamp()
        if not (candidates := book.unwanted(self.pulled(), now)):
            return
        if not low and await self._images.free() >= self._bounds.min_free:
            candidates = book.unwanted(self.pulled(), now - self._bounds.keep_seconds)
        if candidates:
            await self._remove(candidates, await self._images.list())

    async def _remove(self, idents: Sequence[str], listed: Sequence[StoredImage]) -> None:
        there = {image.id: image for image in listed}
        over = [ident for ident in idents if ident not in there]
        for ident in idents:
            if (image := there.get(ident)) is None:
                continue
            names = book.names_to_remove(self.pulled(), image, listed)
            if names is None or (names and await self._removed(image, names)):
                over.append(ident)
        await self._keep(book.forget(self.pulled(), over))

    async def _removed(self, image: StoredImage, names: Sequence[str]) -> bool:
        """Take it away name by name, so that a name which somebody gives it now keeps it."""
        try:
            for name in names:
                await self._images.remove(name)
        except EngineRefused as refusal:
            log.debug("the image %s stays: %s", image.id[:12], refusal.status)
            return False
        log.info("removed the image %s: nothing wants it any more", names[0])
        return True

    async def look(self) -> bool:
        """`tidy`, as far as the engine answers: its relist tells what is wrong."""
        with suppress(Transient, EngineRefused):
            await self.tidy()
        return True


def images_of(spec: Container) -> tuple[str, ...]:
    """The images of a container and of its init containers, each once."""
    inits = (init.image for init in spec.init_containers if init.image)
    return tuple(dict.fromkeys([spec.image, *inits]))
