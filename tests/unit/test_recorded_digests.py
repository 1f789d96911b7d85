"""Digests and labels that devices keep: another one would have everything in the field done anew.

A line of ``tests/recorded/digests.jsonl`` is a name, a Score as it was written, its digest, and the
label of its container. A new kind, or a new field of Container, adds a line; none is ever changed. The
first seven were written by the agent of before a Container had devices, networks and surroundings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.kinds.container.payload import spec_label
from scores.base import KINDS
from scores.container import Container
from scores.manifest import SCORE_TYPES

RECORDED = Path(__file__).parents[1] / "recorded" / "digests.jsonl"
LINES: list[list[Any]] = [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.parametrize(("name", "value", "digest", "label"), LINES, ids=[one[0] for one in LINES])
def test_a_score_has_the_digest_and_the_label_that_it_had(
    name: str, value: dict[str, Any], digest: str, label: str
) -> None:
    del name
    score = SCORE_TYPES[value["kind"]].model_validate(value)
    assert score.spec_digest() == digest
    if isinstance(score, Container):
        files = dict.fromkeys(score.env_files, f"sha256:{'1' * 64}")
        assert spec_label(score, files) == label


def test_each_kind_has_a_line() -> None:
    assert {value["kind"] for _, value, _, _ in LINES} == set(KINDS)
