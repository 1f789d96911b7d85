"""Lines of the journal's JSON, with their times."""

from __future__ import annotations

import pytest

from harmony_agent.adapters.systemd.journal import _lines

TIME = "2026-11-29T17:00:00.000001Z"
STAMP = '"__REALTIME_TIMESTAMP":"1795971600000001"'


@pytest.mark.parametrize(
    ("entry", "lines"),
    [
        (f'{{"MESSAGE":"one",{STAMP}}}', [(TIME, "one")]),
        (f'{{"MESSAGE":"one\\ntwo",{STAMP}}}', [(TIME, "one"), (TIME, "two")]),
        (f'{{"MESSAGE":[104,105,255],{STAMP}}}', [(TIME, "hi\ufffd")]),
        (f'{{"MESSAGE":null,{STAMP}}}', [(TIME, "")]),
        (f"{{{STAMP}}}", [(TIME, "")]),
        ('E":"cut off",' + STAMP + "}", []),
        ("", []),
        ("[]", []),
        ('{"MESSAGE":"one"}', []),
    ],
)
def test_an_entry(entry: str, lines: list[tuple[str, str]]) -> None:
    assert _lines(entry) == lines
