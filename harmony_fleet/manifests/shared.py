"""Share work among devices: manifests that differ only in their device and signatures. Pure.

A fleet of 10,000 devices has a handful of different manifests. What is kept is bounded, and no
answer depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from harmony_fleet.manifests.diff import Change, diff
from scores.base import Score
from scores.manifest import Manifest, WireManifest, decode
from scores.names import is_name
from scores.signatures import MAX_SIGNATURES, Signature, signed_bytes

_LARGE: Final = 64 * 1024
_MOST: Final = 4 * 1024 * 1024
"""Bytes of a manifest that is kept, and of all that are."""
_OF_A_REFERENCE: Final = 16 * 1024
"""Estimated size of a cached reference to Scores, in bytes."""
_SIGNATURE: Final = rb'\{"key":"([0-9a-f]{16})","signature":"([A-Za-z0-9+/]{86}==)"\}'
_SIGNED: Final = re.compile(
    rb',"signatures":\[(%b(?:,%b){0,%d})\]' % (_SIGNATURE, _SIGNATURE, MAX_SIGNATURES - 1)
)
_ONE: Final = re.compile(_SIGNATURE)

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


_DECODED: Final[_Kept[tuple[str, *tuple[bytes, ...]], WireManifest]] = _Kept()
_CONTENTS: Final[_Kept[tuple[int, bool], tuple[Sequence[Score], bytes]]] = _Kept()
_BOUND: Final[_Kept[tuple[int, str, int, str | None], tuple[Manifest, WireManifest]]] = _Kept()
_CHANGES: Final[
    _Kept[tuple[int, int], tuple[Sequence[Score], Sequence[Score], tuple[Change, ...]]]
] = _Kept()
_SPECS: Final[_Kept[int, tuple[Sequence[Score], Mapping[str, str]]]] = _Kept()
_MESSAGES: Final[_Kept[tuple[object, ...], tuple[Sequence[Score], bytes, bytes]]] = _Kept()
# An object is known by its id, and kept beside what is known of it, so that no other can have that
# id.


def decode_shared(value: bytes, device: str, deployment: str) -> WireManifest:
    """Do as ``scores.manifest.decode``; manifests that are alike share their Scores. Raises
    InvalidManifest.

    Only a decoded manifest is kept, so its device was the key's. If ``"device":"…"`` with that name
    stands in it exactly once, the same bytes around another name are the same manifest for that
    device. The same holds for other signatures in its place, if each of them is one.
    """
    parts = value.split(f'"device":"{device}"'.encode())
    if len(value) > _LARGE or len(parts) != 2 or not is_name(device):
        return decode(value, device=device, deployment=deployment, accepted=True)
    head, tail = parts
    signed = _SIGNED.search(tail)
    key = (
        (deployment, head, tail[: signed.start()], tail[signed.end() :])
        if signed
        else (deployment, head, tail)
    )
    known = _DECODED.known.get(key)
    own = (
        {"device": device}
        if signed is None
        else {"device": device, "signatures": _signatures(signed[1])}
    )
    if known is not None and None not in own.values():
        return known.model_copy(update=own)
    made = decode(value, device=device, deployment=deployment, accepted=True)
    _DECODED.keep(key, made, len(value))
    return made


def _signatures(text: bytes) -> list[Signature] | None:
    """Those of a manifest; None where a reader would refuse them."""
    found = {key.decode(): signature.decode() for key, signature in _ONE.findall(text)}
    if len(found) != text.count(b"{"):
        return None
    try:
        return [Signature(key=key, signature=signature) for key, signature in found.items()]
    except ValidationError:
        return None


def message_of(wire: WireManifest) -> bytes:
    """Return the bytes that `wire` is signed over.

    Computed once for manifests that share their Scores.
    """
    said = (
        wire.api,
        wire.deployment,
        wire.lineage,
        wire.generation,
        wire.removed,
        wire.supersedes,
        wire.allow_prune,
        wire.revert_after,
    )
    if wire.remains is not None:  # one device's own
        return signed_bytes(wire.wire())
    key = (id(wire.scores), frozenset(wire.model_fields_set - {"signatures"}), *said)
    known = _MESSAGES.known.get(key)
    if known is not None and is_name(wire.device):
        return wire.device.encode().join(known[1:])
    message = signed_bytes(wire.wire())
    named = f'"device":"{wire.device}"'.encode()
    if message.count(named) == 1:
        head, tail = message.split(named)
        _MESSAGES.keep(key, (wire.scores, head + b'"device":"', b'"' + tail), len(message))
    return message


def content_of(manifest: Manifest) -> bytes:
    """As ``manifest.content()``, made once for those that share their Scores."""
    key = (id(manifest.scores), manifest.removed)
    known = _CONTENTS.known.get(key)
    if known is None:
        known = (manifest.scores, manifest.content())
        _CONTENTS.keep(key, known, len(known[1]))
    return known[1]


def bind_shared(
    manifest: Manifest, device: str, lineage: str, generation: int, supersedes: str | None
) -> WireManifest:
    """As ``manifest.bind``; those of one manifest share their Scores."""
    key = (id(manifest), lineage, generation, supersedes)
    known = _BOUND.known.get(key)
    if known is not None and is_name(device):
        return known[1].model_copy(update={"device": device})
    made = manifest.bind(device, lineage, generation, supersedes)
    _BOUND.keep(key, (manifest, made), _OF_A_REFERENCE)
    return made


def diff_shared(old: Manifest | None, new: Manifest) -> tuple[Change, ...]:
    """As `diff`, made once for those that share their Scores."""
    if old is None:
        return diff(None, new)
    key = (id(old.scores), id(new.scores))
    known = _CHANGES.known.get(key)
    if known is None:
        known = (old.scores, new.scores, diff(old, new))
        _CHANGES.keep(key, known, _OF_A_REFERENCE)
    return known[2]


def specs_shared(manifest: Manifest) -> Mapping[str, str]:
    """The spec digests of a manifest by resource, made once for those that share their Scores."""
    key = id(manifest.scores)
    known = _SPECS.known.get(key)
    if known is None:
        known = (manifest.scores, {score.key: score.spec_digest() for score in manifest.scores})
        _SPECS.keep(key, known, _OF_A_REFERENCE)
    return known[1]
