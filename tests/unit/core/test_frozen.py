"""The frozen classes of the agent: as dataclasses are, but for what is made once for all."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, field, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core.frozen import frozen


@frozen()
class Point:
    """Two numbers, and what neither shows nor compares."""

    x: int
    y: int = 0
    secret: str = field(default="", repr=False)
    fetch: object = field(default=None, repr=False, compare=False)


@frozen(kw_only=True)
class Other:
    """The same fields in another class."""

    x: int
    y: int = 0


@frozen()
class Empty:
    """No field at all."""


@frozen()
class Loud(Point):
    """One field more than its base, and a comparison of its own."""

    z: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loud)

    def __hash__(self) -> int:
        return 1


POINTS = st.builds(Point, st.integers(), st.integers(), st.text())


@given(POINTS, POINTS)
def test_equal_by_class_and_fields(one: Point, other: Point) -> None:
    same = (one.x, one.y, one.secret) == (other.x, other.y, other.secret)
    assert (one == other) is same
    assert one == replace(one, fetch=object())
    assert hash(one) == hash(replace(one, fetch=object()))
    assert one != Other(x=one.x, y=one.y)


@given(POINTS)
def test_copies_are_equal(point: Point) -> None:
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point
    assert asdict(point)["x"] == replace(point, y=7).x == point.x


def test_shown_without_what_is_kept_back() -> None:
    assert repr(Point(1, secret="hush")) == "Point(x=1, y=0)"
    assert repr(Empty()) == "Empty()"


def test_no_fields_and_methods_of_its_own() -> None:
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())
    assert Loud(1) == Loud(2)
    assert hash(Loud(1)) == 1
    assert [one.name for one in fields(Loud(1))] == ["x", "y", "secret", "fetch", "z"]


def test_unhashable_as_its_fields_are() -> None:
    wrong: Any = ["a list"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(wrong))


def test_there_is_no_room_for_another_field() -> None:
    point: Any = Point(1)
    with pytest.raises(AttributeError):
        point.z = 1


def test_by_position_in_a_match_and_by_keyword_alone() -> None:
    made: Any = Other
    with pytest.raises(TypeError, match="positional"):
        made(1)
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
