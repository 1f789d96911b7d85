"""Read the few fields that can be read from bytes that nobody has checked.

Pure. The answer may be None for any input.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from harmony_agent.core.admission import REVERTED, EnforcedVersion, RefusedVersion
from scores.canonical import digest
from scores.manifest import MAX_MANIFEST
from scores.names import MAX_GENERATION
from scores.signatures import content_digest


def enforced_from_status(data: bytes | None) -> EnforcedVersion | None:
    """Lineage, generation and digest out of a status that an earlier life of this device wrote."""
    try:
        status = json.loads(data or b"")
        return EnforcedVersion(
            str(status["lineage"]),
            int(status["generation"]),
            str(status["digest"]),
            _refused(status),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _refused(status: Mapping[str, Any]) -> RefusedVersion | None:
    rejected = status.get("rejected") or {}
    if rejected.get("reason") != REVERTED:
        return None
    return RefusedVersion(int(rejected["generation"]), "", str(status["message"]))


def identity(last: EnforcedVersion | None, value: Mapping[str, Any], data: bytes) -> str:
    """The digest by which a generation is known: of its content, whoever signed it.

    An older agent took the digest of all bytes. Where `last` has such a digest, equal bytes are the
    same generation.
    """
    whole = digest(data)
    return whole if last is not None and last.digest == whole else content_digest(value)


def is_enforced(last: EnforcedVersion | None, value: Any, data: bytes) -> bool:
    """Return whether these are the content of the generation that is enforced."""
    with contextlib.suppress(ValueError):  # no canonical bytes
        return (
            isinstance(value, dict)
            and last is not None
            and (last.digest == identity(last, value, data))
        )
    return False


def claimed_generation(data: bytes) -> int | None:
    """The generation field of bytes that can't be parsed as a manifest, if it is there."""
    try:
        value = json.loads(data) if len(data) <= MAX_MANIFEST else None
    except (ValueError, RecursionError):
        return None
    generation = value.get("generation") if isinstance(value, dict) else None
    if not isinstance(generation, int) or isinstance(generation, bool):
        return None
    return generation if 1 <= generation <= MAX_GENERATION else None
