"""A value is known by its object's stat while no second change can carry the same times."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harmony_agent.adapters.posix.stat_cache import (
    RACY_SECONDS,
    StatCache,
    fingerprint,
    is_settled,
)


@pytest.mark.parametrize(
    ("age", "settled"),
    [(0.0, False), (RACY_SECONDS / 2, False), (-RACY_SECONDS / 2, False), (1.0, True), (-60, True)],
)
def test_what_changed_just_before_it_was_looked_at_is_racy(age: float, settled: bool) -> None:
    now = 1_800_000_000.5
    assert is_settled(int((now - age) * 1e9), now) is settled


def test_a_value_holds_for_its_fingerprint_once_it_is_settled() -> None:
    cache = StatCache[str]()
    assert cache.find("a", (1,)) is None
    cache.put("a", (1,), "racy", settled=False)
    assert cache.find("a", (1,)) is None
    last = cache.last("a")
    assert last is not None
    assert (last.value, last.holds((1,))) == ("racy", False)
    cache.put("a", (1,), "one", settled=True)
    assert (cache.find("a", (1,)), cache.find("a", (2,)), cache.find("a", None)) == (
        "one",
        None,
        None,
    )
    cache.put("gone", None, "nothing is there", settled=True)
    assert cache.find("gone", None) == "nothing is there"
    cache.retain(["gone"])
    assert (cache.last("a"), len(cache)) == (None, 1)
    cache.drop("gone")
    cache.drop("gone")
    assert len(cache) == 0


def test_is_bounded() -> None:
    cache = StatCache[int](most=3)
    for number in range(10):
        cache.put(str(number), (number,), number, settled=True)
        assert len(cache) <= 3
        assert cache.find(str(number), (number,)) == number


def test_each_change_of_a_file_is_another_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    seen = {fingerprint(path.stat())}
    for change in (
        lambda: path.chmod(0o600),
        lambda: path.write_text("other"),
        lambda: os.utime(path, ns=(1, 1)),
        lambda: (path.unlink(), path.write_text("other")),
    ):
        time.sleep(0.02)
        change()
        seen.add(fingerprint(path.stat()))
    assert len(seen) == 5


def test_a_directory_is_the_same_whatever_is_in_it(tmp_path: Path) -> None:
    before = fingerprint(tmp_path.stat())
    time.sleep(0.02)
    (tmp_path / "a").touch()
    assert fingerprint(tmp_path.stat()) == before
