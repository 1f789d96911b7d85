"""What a roster may say, how it is changed with its comments, and the variables of devices. Tables
and Hypothesis.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.variables import fill, uses
from harmony_fleet.roster import edit, text
from harmony_fleet.roster.model import Roster, Selector

LINEAGE = "00000000-0000-4000-8000-000000000001"
HEAD = f"version: 1\nlineage: {LINEAGE}\ngeneration: 3\n"
WEB = "deployments:\n- name: web\n  scores: []\n"


def parsed(body: str) -> Roster:
    return text.parse((HEAD + body).encode(), "roster.yaml")


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ("device: []\n", "device", "UnknownField"),
        ("devices:\n- name: PI\n  class: web\n", "devices[0].name", "InvalidName"),
        ("devices:\n- name: pi\n", "devices[0].class", "Missing"),
        (
            "devices:\n- name: pi\n  class: web\n- name: pi\n  class: web\n",
            "devices[1].name",
            "DuplicateName",
        ),
        ("devices:\n- name: pi\n  class: web\n  enabled: 1\n", "devices[0].enabled", "WrongType"),
        (
            "devices:\n- name: pi\n  class: web\n  desired_state: on\n",
            "devices[0].desired_state",
            "NotAllowed",
        ),
        (
            "devices:\n- name: pi\n  class: web\n  labels: {rack: 2}\n",
            "devices[0].labels.rack",
            "WrongType",
        ),
        (
            "devices:\n- name: pi\n  class: web\n  variables: {Port: 2}\n",
            "devices[0].variables",
            "InvalidName",
        ),
        (
            "devices:\n- name: pi\n  class: web\n  variables: {device: x}\n",
            "devices[0].variables",
            "ReservedName",
        ),
        ("deployments:\n- name: web\n", "deployments[0]", "ExactlyOneOf"),
        ("deployments:\n- name: web\n  file: a.yaml\n", "deployments[0]", "DigestWithFile"),
        ("deployments:\n- name: upgrade-1\n  scores: []\n", "deployments[0].name", "ReservedName"),
        (
            "schedules:\n- {name: n, cron: '* *', deadline: 2h, max_unavailable: 1}\n",
            "schedules[0].cron",
            "InvalidCron",
        ),
        (
            "schedules:\n- {name: n, cron: '* * * * *', deadline: 9d, max_unavailable: 1}\n",
            "schedules[0].deadline",
            "InvalidDuration",
        ),
        (
            "schedules:\n- {name: n, cron: '* * * * *', deadline: 2h, max_unavailable: 0}\n",
            "schedules[0].max_unavailable",
            "OutOfRange",
        ),
    ],
)
def test_mistakes_are_told_by_field_and_code(body: str, field: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(body)
    assert [(error.field, error.code) for error in caught.value.errors] == [(field, code)]


@pytest.mark.parametrize(
    "data",
    [b"", b"---\na: 1\n---\nb: 2\n", b"[]", b"a: [", b"\xff", b"a: 1\na: 2\n", b"version: 2\n"],
)
def test_what_is_no_roster(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        text.parse(data, "roster.yaml")


COMMENTED = (
    HEAD
    + """\
# the fleet
devices:
  # the first
  - name: pi-01  # under the desk
    class: web
    labels: {site: home}  # since May
  - name: 'pi-02'
    class: edge
deployments:
  - name: web
    # who
    select:
      class: web
    scores: []
"""
)


def edited(change: edit.Edit, data: str = COMMENTED) -> tuple[str, Roster]:
    out = text.edited(data.encode(), change)
    return out.decode(), text.parse(out, "roster.yaml")


def test_a_round_trip_changes_no_byte() -> None:
    assert text.dump(text.tree(COMMENTED)) == COMMENTED


def test_comments_quotes_and_order_stay() -> None:
    out, roster = edited(
        edit.change(
            "devices", ["pi-01", "pi-02"], {("labels", "site"): "work", ("enabled",): False}
        )
    )
    assert [device.labels["site"] for device in roster.devices] == ["work", "work"]
    assert not any(device.enabled for device in roster.devices)
    for comment in (
        "# the fleet",
        "# the first",
        "# under the desk",
        "# since May",
        "# who",
        "'pi-02'",
    ):
        assert comment in out
    out, roster = edited(
        edit.add("deployments", [{"name": "b", "scores": [{"kind": "File", "content": "a\nb\n"}]}])
    )
    assert "content: |\n" in out
    assert roster.deployments[1].scores == [{"kind": "File", "content": "a\nb\n"}]
    out, roster = edited(edit.remove("devices", ["pi-02"]))
    assert [device.name for device in roster.devices] == ["pi-01"]
    assert "# who" in out


def test_unset_takes_away_and_an_absent_map_stays_absent() -> None:
    _, roster = edited(edit.change("devices", ["pi-01", "pi-02"], {("labels", "site"): edit.UNSET}))
    assert [dict(device.labels) for device in roster.devices] == [{}, {}]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (edit.add("devices", [{"name": "pi-01", "class": "web"}]), "AlreadyThere"),
        (
            edit.add("devices", [{"name": "x", "class": "web"}, {"name": "x", "class": "web"}]),
            "AlreadyThere",
        ),
        (edit.change("devices", ["pi-03"], {("class",): "x"}), "NotFound"),
        (edit.remove("schedules", ["x"]), "NotFound"),
    ],
)
def test_names_must_be_there_or_not(change: edit.Edit, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        edited(change)
    assert caught.value.code == code


TEXTS = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), whitelist_characters="\n\t"), max_size=40
)


@settings(deadline=None)
@given(
    TEXTS,
    st.dictionaries(
        st.from_regex(r"v[a-z0-9_]{0,8}", fullmatch=True), TEXTS | st.integers() | st.booleans()
    ),
)
def test_what_is_added_is_what_is_read(content: str, variables: dict[str, Any]) -> None:
    out, _ = edited(edit.add("deployments", [{"name": "x", "scores": [{"content": content}]}]))
    _, roster = edited(
        edit.add("devices", [{"name": "y", "class": "z", "variables": variables}]), out
    )
    assert roster.deployments[1].scores == [{"content": content}]
    assert roster.devices[2].variables == variables


@pytest.mark.parametrize(
    ("select", "picked"),
    [
        ({}, ["a", "b", "c"]),
        ({"class": "web"}, ["a", "b"]),
        ({"labels": {"site": "home"}}, ["a", "c"]),
        ({"class": "web", "labels": {"site": "home"}}, ["a"]),
        ({"labels": {"site": "home", "rack": "1"}}, []),
    ],
)
def test_selectors(select: dict[str, Any], picked: list[str]) -> None:
    roster = parsed(
        "devices:\n- {name: a, class: web, labels: {site: home}}\n- {name: b, class: web}\n"
        "- {name: c, class: db, labels: {site: home}}\n- {name: d, class: web, labels: {site: home}, enabled: false}\n"
    )
    assert [device.name for device in roster.picked(Selector.model_validate(select))] == picked


KNOWN = {"port": 8080, "on": True, "name": "x${port}", "labels.site": "home", "device": "pi-01"}


@pytest.mark.parametrize(
    ("raw", "filled"),
    [
        ({"$var": "port"}, 8080),
        ([{"$var": "on"}], [True]),
        (
            {"a": {"$text": "${device}@${labels.site}:${port} ${on}\n"}},
            {"a": "pi-01@home:8080 true\n"},
        ),
        ({"$text": "${name}"}, "x${port}"),
        ({"$text": "$${port} $port $$ $ {}"}, "${port} $port $$ $ {}"),
        ({"a": "${port}"}, {"a": "${port}"}),
        ({"$var": "port", "b": 1}, {"$var": "port", "b": 1}),
    ],
)
def test_variables(raw: Any, filled: Any) -> None:
    assert fill(raw, KNOWN, "scores", "pi-01/web") == filled


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ({"$var": "nope"}, "VariableMissing"),
        ({"$var": 1}, "VariableMissing"),
        ({"$text": "${nope}"}, "VariableMissing"),
        ({"$text": "${}"}, "VariableMissing"),
        ({"$text": "${a.__class__}"}, "VariableMissing"),
        ({"$text": 1}, "WrongType"),
    ],
)
def test_no_such_variable(raw: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        fill([{"content": raw}], KNOWN, "scores", "pi-01/web")
    assert [(error.field, error.code) for error in caught.value.errors] == [
        ("scores[0].content", code)
    ]
    assert uses([{"content": raw}])


@settings(deadline=None)
@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda deeper: st.lists(deeper) | st.dictionaries(TEXTS, deeper),
    )
)
def test_without_variables_nothing_changes(value: Any) -> None:
    if not uses(value):
        assert fill(value, {}, "scores", "x") == value
