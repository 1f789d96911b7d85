"""What thousands of devices have alike is done once: manifests that differ in nothing but their device. Pure.

A fleet of 10,000 devices has a handful of different manifests. What is kept is bounded, and no answer depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from harmony_fleet.changes import Change, changes
from scores.base import Score
from scores.manifest import Manifest, WireManifest, decode
from scores.names import DeviceName

_LARGE: Final = 64 * 1024
_MOST: Final = 4 * 1024 * 1024
"""Bytes of a manifest that is kept, and of all that are."""
_OF_A_REFERENCE: Final = 16 * 1024
"""What a kept reference to Scores is taken for, in bytes."""
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
_BOUND: Final[_Kept[tuple[int, str, int, str | None], tuple[Manifest, WireManifest]]] = _Kept()
_CHANGES: Final[_Kept[tuple[int, int], tuple[Sequence[Score], Sequence[Score], tuple[Change, ...]]]] = _Kept()
_SPECS: Final[_Kept[int, tuple[Sequence[Score], Mapping[str, str]]]] = _Kept()
# An object is known by its id, and kept beside what is known of it, so that no other can have that id.


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
        known = (manifest.scores, manifest.content())
        _CONTENTS.keep(key, known, len(known[1]))
    return known[1]


def bind_alike(manifest: Manifest, device: str, lineage: str, generation: int, supersedes: str | None) -> WireManifest:
    """As ``manifest.bind``; those of one manifest share their Scores."""
    key = (id(manifest), lineage, generation, supersedes)
    known = _BOUND.known.get(key)
    if known is not None and _is_name(device):
        return known[1].model_copy(update={"device": device})
    made = manifest.bind(device, lineage, generation, supersedes)
    _BOUND.keep(key, (manifest, made), _OF_A_REFERENCE)
    return made


def changes_alike(old: Manifest | None, new: Manifest) -> tuple[Change, ...]:
    """As `changes`, made once for those that share their Scores."""
    if old is None:
        return changes(None, new)
    key = (id(old.scores), id(new.scores))
    known = _CHANGES.known.get(key)
    if known is None:
        known = (old.scores, new.scores, changes(old, new))
        _CHANGES.keep(key, known, _OF_A_REFERENCE)
    return known[2]


def specs_alike(manifest: Manifest) -> Mapping[str, str]:
    """The spec digests of a manifest by resource, made once for those that share their Scores."""
    key = id(manifest.scores)
    known = _SPECS.known.get(key)
    if known is None:
        known = (manifest.scores, {score.key: score.spec_digest() for score in manifest.scores})
        _SPECS.keep(key, known, _OF_A_REFERENCE)
    return known[1]


def _is_name(name: str) -> bool:
    try:
        return bool(_NAME.validate_python(name))
    except ValidationError:
        return False
