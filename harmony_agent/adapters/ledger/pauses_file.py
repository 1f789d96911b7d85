"""The pauses, in ``pauses.json`` of the state directory: replaced as a whole, gone where there are
none.

A file that can't be read holds no pause: a device keeps what it was told to keep, unless it surely
knows that it shall not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harmony_agent.adapters.posix.atomic import AtomicWrite, in_directory, sync
from harmony_agent.core.changes import Moment
from harmony_agent.core.pauses import Pause
from scores.canonical import NotCanonical, canonical
from scores.canonical import read as read_json
from scores.names import parse_time

log = logging.getLogger(__name__)

NAME: Final = "pauses.json"
_MOST: Final = 1024 * 1024


def read(state_dir: Path) -> list[Pause]:
    """Every pause of the file."""
    try:
        data = (state_dir / NAME).read_bytes()
        return [_pause(value) for value in read_json(data, _MOST)]
    except FileNotFoundError:
        return []
    except (OSError, NotCanonical, ValueError, TypeError, LookupError) as error:
        log.warning(
            "cannot read %s (%s): nothing is paused",
            state_dir / NAME,
            type(error).__name__,
            extra={"reason": "PausesUnreadable"},
        )
        return []


def _pause(value: dict[str, Any]) -> Pause:
    at = Moment(**value["at"])
    made = Pause(**{**value, "at": at})
    parse_time(made.until)
    texts = all(isinstance(text, str) for text in (made.scope, at.boot))
    if not (texts and all(type(number) is int for number in (made.left, at.monotonic, at.wall))):
        raise TypeError
    return made


def write(state_dir: Path, pauses: Sequence[Pause]) -> None:
    """Have the file hold these. Durable afterwards. Raises OSError."""
    path = str(state_dir / NAME)
    with in_directory(str(state_dir)) as folder:
        if not pauses:
            (state_dir / NAME).unlink(missing_ok=True)
            sync(folder)
            return
        with AtomicWrite(folder, path) as file:
            file.write(canonical([asdict(pause) for pause in pauses]))
            file.replace()
