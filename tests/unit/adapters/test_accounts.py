"""Accounts of this machine, and what `check` says where they are missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.adapters import accounts
from harmony_agent.commands import check
from harmony_agent.settings import Settings
from harmony_agent.topology.containers import Subordinates

NOBODY = "no-such-account"


def settings(**sections: Any) -> Settings:
    return Settings.model_validate({"agent": {"device_id": "pi-01"}, **sections})


def test_names_and_members() -> None:
    me, mine = accounts.user_name(os.getuid()), "root" if os.getuid() == 0 else ""
    assert accounts.missing_users(["root", NOBODY]) == [NOBODY]
    assert accounts.missing_groups(["root", NOBODY]) == [NOBODY]
    assert accounts.user_name(2**31 - 7) == str(2**31 - 7)
    assert accounts.missing_users([me]) == []
    if mine:
        assert accounts.not_joined([mine, "nogroup"], os.getuid()) == ["nogroup"]
    assert accounts.not_joined(["root"], 2**31 - 7) == ["root"]


@pytest.mark.parametrize(
    ("uids", "gids", "count"),
    [
        ("pi:100000:65536\n", "pi:100000:65536\n", 65536),
        ("pi:100000:65536\npi:200000:1000\n", "pi:100000:65536\n", 65536),
        ("other:1:5\n", "pi:1:5\n", 0),
        ("pi:1:many\n", "pi:1:5\n", 0),
        ("pi:1:5\n", None, 0),
    ],
)
def test_subordinate_ids(tmp_path: Path, uids: str, gids: str | None, count: int) -> None:
    (tmp_path / "subuid").write_text(uids)
    if gids is not None:
        (tmp_path / "subgid").write_text(gids)
    assert accounts.subordinates("pi", tmp_path) == Subordinates("pi", count)


def test_subordinate_ids_by_number(tmp_path: Path) -> None:
    for name in ("subuid", "subgid"):
        (tmp_path / name).write_text("0:100000:70\n")
    assert accounts.subordinates("root", tmp_path).count == 70


def test_check_names_what_is_missing_with_the_line_that_makes_it() -> None:
    found = check._accounts(
        settings(accounts={"users": ["root", NOBODY], "groups": [NOBODY], "member_of": ["nogroup"]})
    )
    texts = [one.text for one in found]
    assert f"no user {NOBODY}: make it with useradd --system {NOBODY}" in texts
    assert f"no group {NOBODY}: make it with groupadd --system {NOBODY}" in texts
    assert any("isn't in the group nogroup: usermod -aG nogroup" in text for text in texts)
    assert not any(one.well for one in found)
    (well,) = check._accounts(settings(accounts={"users": ["root"], "groups": ["root"]}))
    assert (well.well, well.text) == (True, "root")
    assert check._accounts(settings()) == []


def test_check_looks_at_the_directory_of_a_single_file(tmp_path: Path) -> None:
    assert check._single(f"{tmp_path}/a.conf").well
    missing = check._single(f"{tmp_path}/no/a.conf")
    assert not missing.well
    assert f"{tmp_path}/no isn't there" in missing.text
