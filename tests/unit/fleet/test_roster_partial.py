"""A change of some devices of a large roster: it says the same as a round trip of all, and no other
line is touched.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_fleet.errors import InvalidInput
from harmony_fleet.roster import edit, partial, text
from harmony_fleet.roster.model import Roster

LINEAGE = "00000000-0000-4000-8000-000000000001"
HEAD = f"# the fleet\nversion: 1\nlineage: {LINEAGE}\ngeneration: 3  # so far\n"
DEPLOYMENTS = "# what runs\ndeployments:\n- name: web  # for all\n  scores: []\n"
STYLES = (
    "- {{name: {name}, class: web, labels: {{site: home}}}}  # short\n",
    "- name: {name}  # a comment\n  class: 'web'\n  labels:\n    # where\n    site: home\n",
    "# before\n\n- name: {name}\n  class: web\n  variables:\n    text: |\n      one\n      # none\n\n      - name: x\n",
    '- class: web\n  name: "{name}"\n\n',
)
DEVICES = st.lists(st.integers(0, len(STYLES) - 1), min_size=2, max_size=7)
VALUES: dict[tuple[str, ...], Any] = {("labels", "site"): "work", ("variables", "port"): 8080}


def written(styles: list[int], column: int, last: bool) -> str:
    items = "".join(STYLES[style].format(name=f"pi-{at}") for at, style in enumerate(styles))
    shifted = "".join(
        " " * column + line if line.strip() else line for line in items.splitlines(keepends=True)
    )
    sections = [DEPLOYMENTS, f"devices:\n{shifted}"]
    return HEAD + "".join(sections if last else reversed(sections))


def edits(names: list[str]) -> dict[str, edit.Edit]:
    return {
        "change": edit.change("devices", names, VALUES),
        "remove": edit.remove("devices", names),
        "add": edit.add(
            "devices",
            [{"name": f"new-{name}", "class": "edge", "labels": {"a": "b"}} for name in names],
        ),
        "deployment": edit.add(
            "deployments", [{"name": "b", "scores": [{"kind": "File", "content": "a\nb\n"}]}]
        ),
    }


def both(before: str, change: edit.Edit) -> tuple[str | None, Roster]:
    """The text of a partial change, where there was one, and the roster of a whole round trip."""
    found: list[str | None] = []
    original = partial.edited

    def told(*words: Any) -> str | None:
        found.append(original(*words))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial, "edited", told)
        text.edited(before.encode(), change)
        patch.setattr(partial, "edited", lambda *_words: None)
        whole = text.parse(text.edited(before.encode(), change), "roster.yaml")
    return found[0], whole


@settings(deadline=None, max_examples=60)
@given(
    DEVICES,
    st.sampled_from([0, 2, 4]),
    st.booleans(),
    st.sets(st.integers(0, 6), min_size=1),
    st.data(),
)
def test_it_says_the_same_as_a_round_trip_of_all(
    styles: list[int], column: int, last: bool, chosen: set[int], data: st.DataObject
) -> None:
    before = written(styles, column, last)
    names = [f"pi-{at}" for at in sorted(chosen) if at < len(styles)]
    how = data.draw(st.sampled_from(["change", "remove", "add", "deployment"]))
    part, whole = both(before, edits(names)[how])
    if part is None:
        return
    assert text.parse(part.encode(), "roster.yaml") == whole
    assert whole.generation == 4
    cut = partial.cut_up(before)
    assert cut is not None
    for name, chunk in cut.chunks.items():
        if name not in names or how in ("add", "deployment"):
            assert chunk in part
    for comment in ("# the fleet", "# so far", "# what runs", "# for all"):
        assert comment in part


@pytest.mark.parametrize("column", [0, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("how", ["change", "remove", "add", "deployment"])
def test_a_usual_roster_is_changed_in_part(how: str, last: bool, column: int) -> None:
    before = written([0, 1, 2, 3] * 20, column, last)
    part, _ = both(before, edits(["pi-1", "pi-2"])[how])
    assert part is not None
    assert text.edited(before.encode(), edits(["pi-1", "pi-2"])[how]).decode() == part


@pytest.mark.parametrize(
    ("before", "names"),
    [
        (
            written([0, 1], 2, last=True),
            ["pi-0", "pi-1"],
        ),  # nothing would be left to tell the place by
        (HEAD + "devices: []\n", ["pi-0"]),
        (HEAD + "devices: [{name: a, class: b}, {name: c, class: d}]\n", ["a"]),
        (HEAD + "devices:\n- &x {name: a, class: b}\n- name: c\n  class: d\n", ["a"]),
        (HEAD + "devices:\n- {name: a, class: b}\n- {name: a, class: d}\n", ["a"]),
        (HEAD + "devices:\n- a\n- b\n", ["a"]),
        (HEAD + "devices:\n-\n  name: a\n-\n  name: b\n", ["a"]),
        ("- devices\n", ["a"]),
    ],
)
def test_what_is_unusual_is_left_to_the_round_trip(before: str, names: list[str]) -> None:
    assert partial.edited(before, names, lambda part, _column: part) is None


def test_a_rewrite_that_would_say_something_else_is_not_taken() -> None:
    before = written([1, 1, 1], 2, last=True)
    assert partial.edited(before, ["pi-1"], lambda part, _column: part) == before
    assert (
        partial.edited(
            before, ["pi-1"], lambda part, _column: part.replace("  - name: pi-1", " - name: pi-1")
        )
        is None
    )
    assert partial.edited(before, ["pi-1"], lambda _part, _column: "devices: []\n") is None


def test_names_are_told_from_those_that_stay() -> None:
    before = written([0, 1, 2, 3] * 20, 2, last=True).encode()
    for change, code in (
        (edit.add("devices", [{"name": "pi-70", "class": "x"}]), "AlreadyThere"),
        (edit.change("devices", ["pi-99"], VALUES), "NotFound"),
    ):
        with pytest.raises(InvalidInput) as caught:
            text.edited(before, change)
        assert caught.value.code == code
