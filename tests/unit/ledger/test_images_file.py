"""The file of what the agent pulled: as it was written, or nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from harmony_agent.adapters.ledger.images_file import NAME, ImagesFile
from harmony_agent.core.errors import Transient
from harmony_agent.topology.images import OwnImage, PulledImages

PULLED = PulledImages({"1": OwnImage(frozenset({"a", "b"}), 12), "2": OwnImage()}, {"web": ("1",)})


async def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    assert ImagesFile(tmp_path).read() == PulledImages()
    await ImagesFile(tmp_path).keep(PULLED)
    assert ImagesFile(tmp_path).read() == PULLED
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"v":2,"images":{},"good":{}}',
        '{"v":1,"images":[],"good":{}}',
        '{"v":1,"images":{"1":{"refs":[1],"unwanted":null}},"good":{}}',
        '{"v":1,"images":{"1":{"refs":[],"unwanted":1.5}},"good":{}}',
        '{"v":1,"images":{},"good":{"web":"1"}}',
    ],
)
def test_a_damaged_file_knows_no_image(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_text(text)
    with caplog.at_level(logging.WARNING):
        assert ImagesFile(tmp_path).read() == PulledImages()
    assert [record.reason for record in caplog.records] == ["ImagesUnreadable"]  # type: ignore[attr-defined]


async def test_a_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(Transient) as caught:
        await ImagesFile(tmp_path / "gone").keep(PULLED)
    assert caught.value.reason == "LedgerUnwritable"
