"""What thousands of devices have alike is done once: manifests that differ in nothing but their device. Pure.

A fleet of 10,000 devices has a handful of different manifests. What is kept is bounded, and no answer depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from scores.base import Score
from scores.manifest import Manifest, WireManifest, decode
from scores.names import DeviceName

_LARGE: Final = 64 * 1024
_MOST: Final = 4 * 1024 * 1024
"""Bytes of a manifest that is kept, and of all that are."""
_NAME: Final = TypeAdapter(DeviceName)

K = TypeVar("K")
V = TypeVar("V")


class _Kept(Generic[K, V]):
    """A dictionary that forgets everything when what it keeps gets large."""

    def __init__(self) -> None:
        self.known: dict[K, V] = {}
        self._bytes = 0

    def keep(self, key: K, value: V, size: int) -> None:
        if self._bytes > _MOST:
            self.known.clear()
            self._bytes = 0
        self._bytes += size
        self.known[key] = value


_DECODED: Final[_Kept[tuple[str, bytes], WireManifest]] = _Kept()
_CONTENTS: Final[_Kept[tuple[int, bool], tuple[Sequence[Score], bytes]]] = _Kept()


def decode_alike(value: bytes, device: str, deployment: str) -> WireManifest:
    """As ``scores.manifest.decode``; manifests that are alike share their Scores. Raises InvalidManifest.

    Only what was decoded is kept, so its device was the key's; where that name stands once as ``"device":"…"``, it
    stands there, and the same bytes around another name are the same manifest for that device.
    """
    told = f'"device":"{device}"'.encode()
    if len(value) > _LARGE or value.count(told) != 1 or not _is_name(device):
        return decode(value, device=device, deployment=deployment)
    key = (deployment, value.replace(told, b""))
    known = _DECODED.known.get(key)
    if known is not None:
        return known.model_copy(update={"device": device})
    made = decode(value, device=device, deployment=deployment)
    _DECODED.keep(key, made, len(value))
    return made


def content_of(manifest: Manifest) -> bytes:
    """As ``manifest.content()``, made once for those that share their Scores."""
    key = (id(manifest.scores), manifest.removed)
    known = _CONTENTS.known.get(key)
    if known is None:
        known = (manifest.scores, manifest.content())  # kept with its Scores, so that no others have their id
        _CONTENTS.keep(key, known, len(known[1]))
    return known[1]


def _is_name(name: str) -> bool:
    try:
        return bool(_NAME.validate_python(name))
    except ValidationError:
        return False
