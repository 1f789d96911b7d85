"""An event as one line for people."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from harmony_fleet.client.events import Event
from harmony_fleet.output.render import moment, plain

_WORDS: Final = {
    "silent": "no heartbeat any more",
    "heard": "heard again",
    "paused": "paused",
    "resumed": "resumed",
    "rebooted": "rebooted",
    "gone": "its status is gone",
    "unreadable": "its status can't be read",
    "rejected": "rejected",
    "agent": "agent",
    "drift": "drift",
}
_STYLES: Final = {"silent": "red", "rejected": "red", "unreadable": "red", "heard": "green"}


def event_line(event: Event) -> Text:
    """``11-29 17:00:03+00:00  pi-01/web  File/motd  Progressing → Ready``."""
    time = moment(event.at) if event.at is not None else "-"
    return Text("  ").join([Text(time, "dim"), event_words(event)])


def event_words(event: Event) -> Text:
    """The same without the time."""
    place = "/".join(part for part in (event.device, event.deployment) if part)
    parts = [plain(place, "bold")]
    if event.resource:
        parts.append(plain(event.resource, ""))
    if event.event in _WORDS:
        parts.append(Text(_WORDS[event.event], _STYLES.get(event.event, "yellow")))
    if event.after:
        before = plain(event.before, "").plain
        parts.append(Text.assemble(f"{before} → " if before else "", plain(event.after)))
    if event.event in ("deployment", "rejected") and event.generation is not None:
        parts.append(Text(f"generation {event.generation}"))
    why = ": ".join(word for word in (event.reason, event.message) if word)
    return Text("  ").join([*parts, *([plain(why, "")] if why else [])])
