"""What a deployment may go back to outlives the agent, and what can't be read holds nothing."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from harmony_agent.adapters.ledger.fallbacks_file import NAME
from harmony_agent.adapters.ledger.ledger import SqliteLedger
from harmony_agent.adapters.ledger.snapshot import LedgerSnapshot
from harmony_agent.core.admission import RefusedVersion
from harmony_agent.core.changes import Moment
from harmony_agent.core.manifests import StoredManifest
from harmony_agent.core.reverts import Fallback, trial
from scores.canonical import canonical, digest, read

DATA = canonical({"scores": [], "generation": 1, "content": "secret"})
GOOD = StoredManifest("web", "lineage", 1, digest(DATA), DATA, {"File/a": 1})
TRIED = replace(GOOD, generation=2, digest="sha256:" + "0" * 64)
ALL = [
    Fallback("db", good=GOOD, refused=RefusedVersion(2, "sha256:" + "1" * 64, "it failed")),
    Fallback("web", good=GOOD, trial=trial(TRIED, 60, Moment("1", 10**8, 10**15))),
]


async def test_they_are_there_at_the_next_start(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    assert ledger.fallbacks() == []
    await ledger.keep_fallbacks(ALL)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    ledger.close()
    again = SqliteLedger(tmp_path)
    assert again.fallbacks() == LedgerSnapshot.read(tmp_path).fallbacks() == ALL
    await again.keep_fallbacks([])
    assert again.fallbacks() == []
    assert not (tmp_path / NAME).exists()
    again.close()


@pytest.mark.parametrize("how", ["cut", "empty", "another form", "other bytes"])
async def test_what_cannot_be_read_holds_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    ledger = SqliteLedger(tmp_path)
    await ledger.keep_fallbacks(ALL)
    data = (tmp_path / NAME).read_bytes()
    value = read(data, len(data))
    value[0]["good"]["digest"] = "sha256:" + "2" * 64
    broken = {
        "cut": data[:-5],
        "empty": b"",
        "another form": b'[{"deployment":"web"}]',
        "other bytes": canonical(value),
    }
    (tmp_path / NAME).write_bytes(broken[how])
    with caplog.at_level(logging.WARNING):
        assert ledger.fallbacks() == []
    assert [record.reason for record in caplog.records] == ["FallbacksUnreadable"]  # type: ignore[attr-defined]
    assert "secret" not in caplog.text
    ledger.close()
