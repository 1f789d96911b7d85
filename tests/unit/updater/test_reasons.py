"""Every reason that the updater gives stands in the table of reasons, and no other."""

import ast
import re
from pathlib import Path

import harmony_updater

PACKAGE = Path(harmony_updater.__file__).parent
TABLE = PACKAGE.parent / "docs/reasons/updater.md"


def test_the_table_of_reasons_is_whole() -> None:
    strings = {
        node.value
        for name in ("preflight.py", "upgrade.py")
        for node in ast.walk(ast.parse((PACKAGE / name).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    given = {text for text in strings if re.fullmatch("([A-Z][a-z]+){1,4}", text)}
    documented = set(re.findall(r"^\| `(\w+)` \|", TABLE.read_text(), re.MULTILINE))
    assert given == documented
    assert len(given) == 19
