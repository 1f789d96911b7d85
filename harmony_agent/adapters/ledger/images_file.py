"""`topology.images.ImageMemory` in ``images.json`` of the state directory: replaced as a whole.

A file that can't be read knows no image: then none is known as ours, and none is removed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import anyio

from harmony_agent.adapters.posix.atomic import AtomicWrite, in_directory
from harmony_agent.adapters.posix.thread_pool import ThreadPool
from harmony_agent.core.errors import Transient
from harmony_agent.topology.images import OwnImage, PulledImages
from scores.canonical import NotCanonical, canonical
from scores.canonical import read as read_json

log = logging.getLogger(__name__)

NAME: Final = "images.json"
_MOST: Final = 4 * 1024 * 1024


class ImagesFile:
    """The file in `state_dir`."""

    def __init__(self, state_dir: Path) -> None:
        self._dir = state_dir
        self._writers = ThreadPool(1)

    def read(self) -> PulledImages:
        """Implement `ImageMemory.read`."""
        try:
            return _decoded(read_json((self._dir / NAME).read_bytes(), _MOST))
        except FileNotFoundError:
            return PulledImages()
        except (OSError, NotCanonical, ValueError, TypeError, LookupError, AttributeError) as error:
            log.warning(
                "cannot read %s (%s): no image is known as pulled by the agent, and none is removed",
                self._dir / NAME,
                type(error).__name__,
                extra={"reason": "ImagesUnreadable"},
            )
            return PulledImages()

    async def keep(self, pulled: PulledImages) -> None:
        """Implement `ImageMemory.keep`."""
        data = canonical(_encoded(pulled))
        done = self._writers.start(lambda: self._write(data))
        try:
            with anyio.CancelScope(shield=True):
                await done
        except OSError as error:
            text = f"cannot write {self._dir / NAME}: {error.strerror}; it is tried again"
            raise Transient("LedgerUnwritable", text) from error

    def _write(self, data: bytes) -> None:
        path = str(self._dir / NAME)
        with in_directory(str(self._dir)) as folder, AtomicWrite(folder, path) as file:
            file.write(data)
            file.replace()


def _encoded(pulled: PulledImages) -> dict[str, Any]:
    images = {
        ident: {"refs": sorted(image.refs), "unwanted": image.unwanted}
        for ident, image in pulled.images.items()
    }
    good = {name: list(idents) for name, idents in pulled.good.items()}
    return {"v": 1, "images": images, "good": good}


def _decoded(value: dict[str, Any]) -> PulledImages:
    if value["v"] != 1:
        raise ValueError("another version")
    images = {
        _text(ident): OwnImage(frozenset(_texts(image["refs"])), _second(image["unwanted"]))
        for ident, image in value["images"].items()
    }
    good = {_text(name): _texts(idents) for name, idents in value["good"].items()}
    return PulledImages(images, good)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError
    return tuple(_text(value) for value in values)


def _second(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError
    return value
