"""The pauses outlive the agent, and what can't be read holds nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from harmony_agent.adapters.ledger.ledger import SqliteLedger
from harmony_agent.adapters.ledger.pauses_file import NAME
from harmony_agent.adapters.ledger.snapshot import LedgerSnapshot
from harmony_agent.core import pauses
from harmony_agent.core.changes import Moment
from scores.canonical import canonical

NOW = Moment("1", 10**8, 1_796_000_000 * 10**6)
BOTH = [pauses.paused("*", 60, NOW), pauses.paused("web", 600, NOW)]


async def test_they_are_there_at_the_next_start(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    assert ledger.pauses() == []
    await ledger.keep_pauses(BOTH)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    ledger.close()
    again = SqliteLedger(tmp_path)
    assert again.pauses() == LedgerSnapshot.read(tmp_path).pauses() == BOTH
    await again.keep_pauses([])
    assert again.pauses() == []
    assert not (tmp_path / NAME).exists()
    again.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}x",
        b"[{}]",
        b'{"a":1}',
        b"[1]",
        b"\xff",
        canonical([{"scope": "web", "left": 1, "until": "soon", "at": {"boot": "", "monotonic": 0, "wall": 0}}]),
        canonical([{"scope": 1, "left": 1, "until": BOTH[0].until, "at": {"boot": "", "monotonic": 0, "wall": 0}}]),
        canonical([{"scope": "web", "left": "1", "until": BOTH[0].until, "at": {"boot": "", "monotonic": 0, "wall": 0}}]),
        canonical([{"scope": "web", "left": 1, "until": BOTH[0].until, "at": {"boot": ""}}]),
        canonical([{"scope": "web", "left": 1, "until": BOTH[0].until, "at": 1}]),
    ],
)  # fmt: skip
def test_another_form_pauses_nothing_and_is_told(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(data)
    ledger = SqliteLedger(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert ledger.pauses() == []
    assert [record.reason for record in caplog.records] == ["PausesUnreadable"]  # type: ignore[attr-defined]
    ledger.close()
