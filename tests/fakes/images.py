"""The images of the engine in memory, its registry, and a memory of what was pulled.

What a test does: `engine.registry` holds what can be pulled, `steps` what a pull tells before it
ends, `tag` gives an image one more name, `full` leaves so many bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from harmony_agent.adapters.ledger.images_file import _decoded, _encoded
from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.container import ImageBounds, ImagePuller
from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.images import (
    PulledImages,
    PullProgress,
    PullRequest,
    StoredImage,
)
from scores.container import Container
from tests.fakes.containers import FakeContainers


class FakeImages:
    """Implements `topology.images.Images` over the images of a `FakeContainers`."""

    def __init__(self, engine: FakeContainers) -> None:
        self.engine = engine
        self.requests: list[PullRequest] = []
        self.steps: list[PullProgress] = []
        self.room = 1 << 40
        self.parents: dict[str, str] = {}
        self.untagged: set[str] = set()
        """ids of images whose name another one has now"""

    async def list(self) -> Sequence[StoredImage]:
        self.engine._read("list_images")
        named: dict[str, list[str]] = {ident: [] for ident in sorted(self.untagged)}
        for name, image in self.engine.images.items():
            spelt = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
            named.setdefault(image.id, []).append(spelt)
        return [
            StoredImage(ident, tuple(names), self.parents.get(ident, ""))
            for ident, names in named.items()
        ]

    async def pull(self, request: PullRequest, told: Callable[[PullProgress], None]) -> None:
        engine, ref = self.engine, request.ref
        self.requests.append(request)
        engine._change("pull", ref)
        for step in self.steps:
            engine._tick()
            told(step)
        if ref in engine.registry:
            old = engine.images.get(ref)
            engine.images[ref] = engine.registry[ref]
            if old is not None and old not in engine.images.values():
                self.untagged.add(old.id)
        elif not engine.silent_pulls:
            raise EngineRefused(0, f"initializing source docker://{ref}: connection refused")

    async def remove(self, name: str) -> None:
        self.engine._change("remove_image", name)
        found = [one for one in self.engine.images if name in (one, f"{one}:latest")]
        idents = {self.engine.images[one].id for one in found} or {name}
        others = [one for one, image in self.engine.images.items() if image.id in idents]
        if len(others) <= 1 and idents & {made.image.id for made in self.engine.made.values()}:
            raise EngineRefused(409, "image is in use by a container")
        for one in found:
            del self.engine.images[one]
        self.untagged -= idents

    async def free(self) -> int:
        self.engine._read("free")
        return self.room


def puller(
    engine: FakeContainers, view: KindView[Container], bounds: ImageBounds | None = None
) -> ImagePuller:
    """A puller of its own over the engine's images, with no memory of before."""
    return ImagePuller(
        engine,
        FakeImages(engine),
        FakeImageMemory(),
        view,
        now=lambda: engine.now,
        local=lambda: engine.now,
        bounds=bounds or ImageBounds(),
    )


class FakeImageMemory:
    """Implements `topology.images.ImageMemory`, in JSON as the real one."""

    def __init__(self) -> None:
        self.text = ""
        self.writes = 0

    def read(self) -> PulledImages:
        return _decoded(json.loads(self.text)) if self.text else PulledImages()

    async def keep(self, pulled: PulledImages) -> None:
        self.text = json.dumps(_encoded(pulled))
        self.writes += 1
