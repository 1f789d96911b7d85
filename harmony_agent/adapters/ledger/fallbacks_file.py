"""What deployments may go back to, in ``fallbacks.json`` of the state directory: replaced as a whole, gone where there is
nothing. It holds manifests, so its mode is 0600.

A file that can't be read holds nothing: what is enforced stays enforced.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harmony_agent.adapters.posix.atomic import AtomicWrite, in_directory, sync
from harmony_agent.core.admission import RefusedVersion
from harmony_agent.core.changes import Moment
from harmony_agent.core.manifests import StoredManifest
from harmony_agent.core.reverts import Fallback, Trial
from scores.canonical import NotCanonical, canonical
from scores.canonical import read as read_json
from scores.manifest import InvalidManifest, parse
from scores.signatures import content_digest

log = logging.getLogger(__name__)

NAME: Final = "fallbacks.json"
_MOST: Final = 256 * 1024 * 1024


def read(state_dir: Path) -> list[Fallback]:
    """All of the file."""
    try:
        data = (state_dir / NAME).read_bytes()
        return [_fallback(value) for value in read_json(data, _MOST)]
    except FileNotFoundError:
        return []
    except (
        OSError,
        NotCanonical,
        InvalidManifest,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ) as error:
        log.warning(
            "cannot read %s (%s): no generation can be taken back",
            state_dir / NAME,
            type(error).__name__,
            extra={"reason": "FallbacksUnreadable"},
        )
        return []


def _fallback(value: dict[str, Any]) -> Fallback:
    good, trial, refused = value["good"], value["trial"], value["refused"]
    return Fallback(
        value["deployment"],
        _manifest(good) if good is not None else None,
        Trial(**{**trial, "at": Moment(**trial["at"])}) if trial is not None else None,
        RefusedVersion(**refused) if refused is not None else None,
    )


def _manifest(value: dict[str, Any]) -> StoredManifest:
    made = StoredManifest(**{**value, "data": b64decode(value["data"], validate=True)})
    if content_digest(parse(made.data)) != made.digest:
        raise ValueError
    return made


def write(state_dir: Path, fallbacks: Sequence[Fallback]) -> None:
    """Have the file hold these. Durable afterwards. Raises OSError."""
    path = str(state_dir / NAME)
    with in_directory(str(state_dir)) as folder:
        if not fallbacks:
            (state_dir / NAME).unlink(missing_ok=True)
            sync(folder)
            return
        with AtomicWrite(folder, path) as file:
            file.write(canonical([_value(one) for one in fallbacks]))
            file.replace()


def _value(fallback: Fallback) -> dict[str, Any]:
    value = asdict(fallback)
    if fallback.good is not None:
        value["good"]["data"] = b64encode(fallback.good.data).decode()
        value["good"]["generations"] = dict(fallback.good.generations)
    return value
