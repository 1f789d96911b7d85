"""The dashboard's one page, its data, and the policy by which a browser runs nothing but what stands
in it. The data are counts, codes, names and ages, never a value. Pure.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

from harmony_fleet.dashboard.http import Answer
from harmony_fleet.observe.view import GROUPS, FleetView

_INLINE: Final = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


def page() -> Answer:
    """The page, without data."""
    text = (
        files(__package__ or "harmony_fleet.dashboard")
        .joinpath("dashboard.html")
        .read_text(encoding="utf-8")
    )
    inline = {kind: _hashed(body) for kind, body in _INLINE.findall(text)}
    policy = (
        f"default-src 'none'; style-src '{inline['style']}'; script-src '{inline['script']}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Answer(text.encode(), "text/html; charset=utf-8", policy=policy)


def answered(value: Any) -> Answer:
    """Data that the page polls."""
    return Answer(json.dumps(value).encode(), "application/json")


def _hashed(body: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()


MOST: Final = 300
"""Devices, and errors, that are listed; the counts are of all."""


def dashboard(view: FleetView, now: datetime, *, connected: bool) -> dict[str, Any]:
    """All of it. Devices that are silent come first, then those that were heard longest ago."""
    tallies = view.deployments()
    ages = sorted(
        ((_age(view.heard(name), now), name) for name in view.devices()),
        key=lambda item: (item[0] is not None, -(item[0] or 0.0), item[1]),
    )
    stale = set(view.stale(now))
    return {
        "connected": connected,
        "devices": {"all": len(ages), "stale": len(stale)},
        "totals": {group: sum(tally.counts[group] for tally in tallies) for group in GROUPS},
        "deployments": [{"name": tally.deployment, **tally.counts} for tally in tallies],
        "errors": [
            {
                "device": key.device,
                "deployment": key.deployment,
                "phase": told.phase,
                "reason": told.reason,
                "age": _age(told.created, now),
                "paused": told.paused or None,
            }
            for key, told in view.errors(MOST)
        ],
        "heard": [
            {"device": name, "age": age, "stale": name in stale} for age, name in ages[:MOST]
        ],
    }


def _age(then: datetime | None, now: datetime) -> float | None:
    return None if then is None else round(max(0.0, (now - then).total_seconds()), 1)
