"""Questions to one device's agent, over NATS' request and reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harmony_fleet.errors import DeviceFailed, Unreachable
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import told
from scores.canonical import NotCanonical, canonical
from scores.keys import command_subject

_SECONDS: Final = 10.0
_MAX_ANSWER: Final = 1024 * 1024


async def ask(
    store: Store, device: str, verb: str, question: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """The answer: ``{"ok":true, …}``. `what` says for people what is asked for, as ``show the logs``.

    Raises Unreachable, and DeviceFailed with the code of ``{"ok":false,"error":{"code","message"}}``.
    """
    answer = await store.ask(command_subject(device, verb), canonical(question), _SECONDS)
    if answer is None:
        raise Unreachable(
            "DeviceSilent",
            f"cannot ask {device} to {what}: it doesn't answer",
            "see whether it runs: harmony devices",
        )
    try:
        value = told(answer, _MAX_ANSWER)
    except NotCanonical:
        value = None
    if isinstance(value, dict) and value.get("ok") is True:
        return value
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        raise unreadable(device)
    code, message = str(error.get("code", "Unknown")), str(error.get("message", ""))
    raise DeviceFailed(
        code, f"{device} can't {what}: {code}: {message}", "see harmony status --resources"
    )


def unreadable(device: str) -> DeviceFailed:
    """The error for an answer of another form."""
    return DeviceFailed(
        "AnswerUnreadable",
        f"cannot read the answer of {device}",
        "is its agent of another version?",
    )
