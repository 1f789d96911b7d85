"""Each command that README.md or a page of docs/ names is one that there is, with its options; each
console block is typed by a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import guide
from tests.unit.doc_commands import PAGES, Named, named, refusal

COMMANDS = [one for page in PAGES for one in named(page)]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_is_one(page: Path) -> None:
    wrong = [f"{one}: {why}" for one in named(page) if (why := refusal(one))]
    assert wrong == []


def test_they_are_found_in_blocks_and_in_sentences() -> None:
    for page, least in (("README.md", 15), ("operate.md", 40), ("fleet.md", 40), ("author.md", 8)):
        found = [one for one in COMMANDS if one.page == page]
        assert len(found) >= least, page
        assert {one.whole for one in found} == {True, False}


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("harmony aply web.yaml", False),
        ("harmony fleet device frob", False),
        ("harmony apply web.yaml --divice pi-01", False),
        ("harmony fleet apply --allow-prune many", False),
        ("harmony pause", True),
        ("harmony fleet", True),
        ("harmony-agent frob", False),
        ("harmony-agent status --frob", False),
        ("harmony-updater frob", False),
    ],
)
def test_what_is_no_command_is_told(line: str, whole: bool) -> None:
    assert refusal(Named("x", tuple(line.split()), whole))


INSTALL = "tests/device/test_install_guide.py"
GUIDED = "tests/integration/test_guides.py"
TYPED: Mapping[str, Mapping[str, str]] = {
    "install.md": {
        "1. The command and the packages": INSTALL,
        "2. The server": INSTALL,
        "3. Enrol the device": INSTALL,
        "4. Install and join": INSTALL,
        "5. Roll out": INSTALL,
        "6. One more, by hand": INSTALL,
    },
    "operate.md": {
        "Every day": INSTALL,
        "NATS is lost": INSTALL,
        "Take a device out": INSTALL,
        "Keep it running, and change nothing": GUIDED,
        "Signing keys": GUIDED,
    },
    "author.md": {
        "Bring what you have": GUIDED,
        "What a field means": GUIDED,
        "Content that is too large for a manifest": GUIDED,
    },
    "client.md": {"From another language": GUIDED},
}
"""By page and section, the test that types its console blocks."""
ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "operate.md": {
        "Upgrade": "tests/device/test_fleet_upgrade.py",
        "A device isn't heard": "tests/device/test_lifecycle.py",
        "repair-required": "tests/device/test_updater.py",
        "Credentials": "tests/integration/test_enroll.py",
    },
    "author.md": {"Secrets": "tests/integration/test_secrets.py"},
}
"""Those whose commands a test gives for real, in a setting of its own and not as they stand."""


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_console_block_is_typed_by_a_test(page: Path) -> None:
    sections = {block.section for block in guide.blocks(page.name) if block.language == "console"}
    typed, elsewhere = TYPED.get(page.name, {}), ELSEWHERE.get(page.name, {})
    assert sorted(sections) == sorted([*typed, *elsewhere])
    for section, test in typed.items():
        assert page.name in (text := (ROOT / test).read_text("utf-8")), test
        assert section in text or f'guide.blocks("{page.name}")' in text, (section, test)
    for test in elsewhere.values():
        assert (ROOT / test).exists()
