"""Container: has an image on the device, as `pull` says, and tells how far a pull is.

What runs is left alone meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired
from harmony_agent.core.status import Outcome
from harmony_agent.kinds.container.facts import Pulled
from harmony_agent.kinds.container.image_book import ImageBook, ImageBounds
from harmony_agent.kinds.container.pull_window import closed, seconds_open
from harmony_agent.kinds.container.records import ContainerRecords
from harmony_agent.topology.containers import Containers
from harmony_agent.topology.images import (
    ImageMemory,
    Images,
    Login,
    PullProgress,
    PullRequest,
)
from harmony_agent.topology.secrets import NO_SECRETS, Secrets, text
from scores.container import Container
from scores.container_values import registry_of
from scores.status import ContainerDetail, Detail, PullDetail

PULL_SECONDS: Final = 86_400.0
"""One that gets bytes now and then goes on for so long."""
_EVERY: Final = 1.0
_RATE_SECONDS: Final = 5.0
"""The rate is that of so long."""


class ImagePuller:
    """Fetches images for one device's containers."""

    def __init__(
        self,
        containers: Containers,
        images: Images,
        memory: ImageMemory,
        view: KindView[Container],
        *,
        now: Callable[[], datetime],
        local: Callable[[], datetime],
        bounds: ImageBounds,
        secrets: Secrets = NO_SECRETS,
    ) -> None:
        """`local` is the wall clock in the device's time zone."""
        self._containers, self._images, self._view = containers, images, view
        self._records, self._now, self._bounds = ContainerRecords(view), now, bounds
        self._local, self._secrets = local, secrets
        self.book = ImageBook(containers, images, memory, view, bounds=bounds, now=now)

    async def ensure(self, name: str, image: str) -> None:
        """Have `image` here, as `pull` says; ``always`` means once for a spec, not for each
        container made of it.
        """
        desired = self._records.desired(name)
        if desired is None:
            return
        pulled = self._records.facts(name).pulled
        known = pulled is not None and pulled.digest == desired.digest
        images = pulled.images if pulled is not None and known else ()
        fresh = desired.spec.pull == "always" and image not in images
        if not fresh and await self._containers.image(image) is not None:
            return
        if desired.spec.pull == "never":
            text = f"cannot find the image {image} on the device, and pull is never: load it, or let it be pulled"
            raise Transient("ImageMissing", text, phase="Blocked")
        await self._pull(desired, image)
        # Podman 4.3 may say nothing of a registry that it could not reach.
        if await self._containers.image(image) is None:
            raise Transient(
                "PullFailed", f"cannot pull {image}: podman said no error, but there is no image"
            )
        if desired.spec.pull == "always":
            done = Pulled(desired.digest, (*images, image))
            await self._records.note(name, replace(self._records.facts(name), pulled=done))

    async def _pull(self, desired: Desired[Container], image: str) -> None:
        seconds = self._seconds(desired.spec, image)
        least = self._bounds.min_free
        if (free := await self.book.make_room()) < least:
            text = (
                f"cannot pull {image}: {free >> 20} MiB are free where podman keeps images, and "
                f"{least >> 20} MiB are to stay so: free some space; what runs goes on"
            )
            raise Transient("NoSpace", text)
        telling = _Telling(self._view, desired, image, self._now)
        request = PullRequest(image, seconds, least, self._login(desired.spec, image))
        before = await self.book.begin()
        try:
            await self._images.pull(request, telling.told)
        except Transient as error:
            if error.reason == "Timeout":
                self._seconds(desired.spec, image)  # the window is closed by now
            raise
        await self.book.arrived(image, before)

    def _login(self, spec: Container, image: str) -> Login | None:
        """The login for `image`: no other registry than that of the container's own image is told
        it. Raises Transient ``SecretMissing``, ``SecretUnfit``.
        """
        if spec.login is None or registry_of(image) != registry_of(spec.image):
            return None
        return Login(spec.login.user, text(spec.login.password, self._secrets))

    def hidden(self, spec: Container) -> frozenset[str]:
        """The password, which no message may repeat. Raises Transient where it isn't known."""
        login = self._login(spec, spec.image)
        return frozenset() if login is None else frozenset({login.password})

    def _seconds(self, spec: Container, image: str) -> float:
        """How long a pull may take. Raises Transient where its window is closed."""
        if spec.pull_at is None:
            return PULL_SECONDS
        now = self._local()
        if (seconds := seconds_open(spec.pull_at, now)) <= 0:
            raise closed(spec.pull_at, image, now)
        return seconds


class _Telling:
    """Says in the status how far a pull is, once a second at most."""

    def __init__(
        self,
        view: KindView[Container],
        desired: Desired[Container],
        image: str,
        now: Callable[[], datetime],
    ) -> None:
        self._view, self._desired, self._image, self._now = view, desired, image, now
        self._points: list[tuple[float, int]] = []

    def told(self, progress: PullProgress) -> None:
        """Hear how far it is. Nothing is said until bytes came: a pull that fails at once has none."""
        at = self._now().timestamp()
        if not progress.bytes or (self._points and 0 <= at - self._points[-1][0] < _EVERY):
            return
        self._points = [one for one in self._points if 0 <= at - one[0] <= _RATE_SECONDS]
        self._points.append((at, progress.bytes))
        shown = PullDetail(
            image=self._image,
            layers=progress.layers,
            layers_done=progress.layers_done,
            bytes=progress.bytes,
            total_bytes=progress.total_bytes,
            bytes_per_second=self._rate(),
        )
        self._view.tell(self._desired, lambda detail: _outcome(shown, detail))

    def _rate(self) -> int:
        (first, had), (last, has) = self._points[0], self._points[-1]
        return max(0, round((has - had) / (last - first))) if last > first else 0


def _outcome(pull: PullDetail, before: Detail | None) -> Outcome:
    known = before if isinstance(before, ContainerDetail) else ContainerDetail(state="Absent")
    detail = known.model_copy(update={"pull": pull})
    return Outcome("Progressing", "Pulling", sentence(pull), detail)


def sentence(pull: PullDetail) -> str:
    """Sentence for people."""
    megabytes = f"{pull.bytes / 1e6:.1f} of {pull.total_bytes / 1e6:.1f} MB"
    return (
        f"pulling {pull.image}: {pull.layers_done} of {pull.layers} layers, {megabytes}, "
        f"{pull.bytes_per_second / 1e6:.1f} MB/s"
    )
