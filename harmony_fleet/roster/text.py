"""``roster.yaml`` as text: read strictly, changed with its comments, quotes and order kept.
Pure.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.read_yaml import read_yaml, told
from harmony_fleet.roster import partial
from harmony_fleet.roster.edit import Edit, bump
from harmony_fleet.roster.model import Roster, check

MAX_ROSTER: Final = 64 * 1024 * 1024
_MAX_NODES: Final = 4_000_000
"""Values of the largest roster: 100,000 devices have fewer."""

_COLUMN: Final = 2

HEADER: Final = """\
# What is meant to run where. `harmony fleet device|deployment|schedule …` changes it and keeps comments.
# A change by hand counts with generation + 1. See docs/fleet.md.
version: 2
lineage: {lineage}
generation: 1
devices: []
deployments: []
schedules: []
"""


def parse(data: bytes, where: str) -> Roster:
    """The roster that `data` says. Raises InvalidInput with the place, fields and codes, never
    values.
    """
    if len(data) > MAX_ROSTER:
        raise InvalidInput(
            "TooLarge", f"cannot read {where}: more than {MAX_ROSTER} bytes", "split the fleet"
        )
    values = read_yaml(data, where, _MAX_NODES)
    if len(values) != 1:
        what = "it is empty" if not values else "it holds several documents"
        raise InvalidInput(
            "NotOneDocument", f"cannot use {where}: {what}", "restore it from a backup"
        )
    return check(values[0], where)


def edited(data: bytes, edit: Edit) -> bytes:
    """Apply `edit` to `data`, which was parsed before, and count up the generation.

    Raises InvalidInput.
    """

    def rewrite(text: str, column: int) -> str:
        changed = tree(text)
        edit(changed)
        bump(changed)
        return dump(changed, column)

    text = data.decode("utf-8-sig")
    made = partial.edited(text, edit.devices, rewrite)
    return (rewrite(text, _COLUMN) if made is None else made).encode()


def raised(data: bytes, generation: int) -> bytes:
    """Give `data`, which was parsed before, another generation. Raises InvalidInput."""
    changed = tree(data.decode("utf-8-sig"))
    changed["generation"] = generation
    return dump(changed).encode()


def tree(text: str) -> CommentedMap:
    """The same as a tree that keeps comments. Raises InvalidInput."""
    try:
        with told(text, "edit the roster with its comments kept"):
            found: Any = _yaml().load(text)
    except InvalidInput as error:
        raise InvalidInput(
            "NotEditable", error.message, "write unusual scalars and tags plainly"
        ) from None
    if not isinstance(found, CommentedMap):
        raise InvalidInput(
            "NotEditable", "cannot edit the roster: it is no mapping", "restore it from a backup"
        )
    return found


def dump(changed: CommentedMap, column: int = _COLUMN) -> str:
    """The tree as text, with the dashes of lists so far to the right."""
    out = BytesIO()
    _yaml(column).dump(changed, out)
    return out.getvalue().decode()


def _yaml(column: int = _COLUMN) -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=column + 2, offset=column)
    return yaml
