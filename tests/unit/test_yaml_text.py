"""The agent's YAML is read back as what it was."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from harmony_agent.commands.yaml_text import to_yaml

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a: -", max_size=4), inner),
    max_leaves=12,
)


@given(value=values)
def test_it_reads_back(value: Any) -> None:
    text = to_yaml(value)
    assert YAML(typ="safe", pure=True).load(text) == value, text


def test_its_form() -> None:
    text = to_yaml([{"phase": "Ready", "resources": {}, "reasons": ["a", 1]}])
    assert text == '-\n  "phase": "Ready"\n  "resources": {}\n  "reasons":\n    - "a"\n    - 1'
