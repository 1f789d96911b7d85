"""The dashboard's one page, and the policy by which a browser runs nothing but what stands in
it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any, Final

from harmony_fleet.dashboard.http import Answer

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


def data(value: Any) -> Answer:
    """Data that the page polls."""
    return Answer(json.dumps(value).encode(), "application/json")


def _hashed(body: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
