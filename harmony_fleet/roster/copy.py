"""A sealed copy of a roster: packed, and closed to all but the signing keys of its home.

Any of those keys, also a retired one, opens it, so that an older copy of the home can catch up.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harmony_fleet.manifests.signing import Key
from harmony_fleet.roster import text
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.mark import Mark
from harmony_fleet.roster.model import Roster
from harmony_fleet.storage.regular import read_regular
from scores.canonical import NotCanonical, canonical, read
from scores.manifest import MAX_MANIFEST

_MOST: Final = 64 * MAX_MANIFEST
"""Bytes of a copy once it is unpacked."""


ROOM: Final = 900 * 1024
"""Bytes of a sealed copy: what one message carries. A larger roster has no copy."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A roster as it was applied elsewhere, with the files of Scores that lie beside it."""

    roster: bytes = field(repr=False)
    files: dict[str, bytes] = field(repr=False)
    mark: Mark


def header_of(data: bytes | None) -> dict[str, Any] | None:
    """Return the open part of a sealed copy. None if it isn't one."""
    value = _json(data)
    if not isinstance(value, dict) or not isinstance(value.get("keys"), dict):
        return None
    return {
        "generation": value.get("generation"),
        "content": value.get("content"),
        "keys": sorted(value["keys"]),
    }


def _json(data: bytes | None) -> Any:
    try:
        return read(data or b"", MAX_MANIFEST)
    except NotCanonical:
        return None


def sealed(file: RosterFile, roster: Roster, header: dict[str, Any], keys: Sequence[Key]) -> bytes:
    """The copy: packed, closed by a key of its own, and that closed by each key of the home."""
    from nacl.secret import SecretBox  # noqa: PLC0415 - only where there are keys

    plain = read_regular(file.path, text.MAX_ROSTER)
    files = {name: _coded(read_regular(file.folder / name, _MOST)) for name in beside(roster)}
    packed = zlib.compress(canonical({"roster": _coded(plain), "files": files}), 9)
    once = os.urandom(SecretBox.KEY_SIZE)
    box = _coded(bytes(SecretBox(once).encrypt(packed)))
    return canonical(
        {**header, "keys": {key.id: _coded(key.seal(once)) for key in keys}, "box": box}
    )


def beside(roster: Roster) -> list[str]:
    """The files of Scores that lie in the roster's own folder; others are their owner's to
    bring.
    """
    names = [deployment.file for deployment in roster.deployments if deployment.file is not None]
    return sorted(
        {name for name in names if not name.startswith("/") and ".." not in name.split("/")}
    )


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _opened(key: Key, value: Any) -> bytes | None:
    """The packed content, where `key` opens it. Raises KeyError, TypeError, ValueError,
    zlib.error.
    """
    from nacl.exceptions import CryptoError  # noqa: PLC0415 - only where there are keys
    from nacl.secret import SecretBox  # noqa: PLC0415

    once = key.unseal(base64.b64decode(value["keys"][key.id], validate=True))
    if once is None:
        return None
    try:
        packed = SecretBox(once).decrypt(base64.b64decode(value["box"], validate=True))
    except CryptoError:
        return None
    unpacked = zlib.decompressobj()
    return unpacked.decompress(packed, _MOST)


def opened(keys: Sequence[Key], data: bytes | None, mark: Mark) -> Copy | None:
    """Open the copy that `mark` names. None if no key of these opens it, or it is another one."""
    value = _json(data)
    for key in keys:
        try:
            packed = _opened(key, value)
            plain = read(packed, _MOST) if packed is not None else None
            if plain is None:
                continue
            roster = base64.b64decode(plain["roster"], validate=True)
            files = {
                str(name): base64.b64decode(coded, validate=True)
                for name, coded in plain["files"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            continue
        parsed = text.parse(roster, "the copy")
        if (parsed.lineage, parsed.generation, parsed.content_digest()) == (
            mark.lineage,
            *mark.version,
        ):
            return Copy(roster, files, mark)
    return None
