"""Where apt would take what nobody signed: in every spelling, and not in their disabled twins.

tests/device holds the same tables against the real apt.
"""

from pathlib import Path

import pytest

from harmony_updater.apt import insecure_config, insecure_sources
from tests.unit.updater.sources_cases import CONFIG_OFF, CONFIG_ON, DEB822_OFF, DEB822_ON, LINES_OFF, LINES_ON
from tests.unit.updater.world import World

URI = "http://deb.example.org/debian"


@pytest.mark.parametrize("line", LINES_ON)
def test_a_line_that_switches_authentication_off_is_found(line: str) -> None:
    text = f"# first\ndeb {URI} stable main\n{line.format(uri=URI)}\n"
    (place,) = insecure_sources("x.list", text)
    assert place.startswith("x.list:3: ")


@pytest.mark.parametrize("line", LINES_OFF)
def test_a_line_that_does_not_is_not(line: str) -> None:
    assert insecure_sources("x.list", line.format(uri=URI) + "\n") == []


@pytest.mark.parametrize("text", DEB822_ON)
def test_a_stanza_that_switches_authentication_off_is_found(text: str) -> None:
    first = f"Types: deb\nURIs: {URI}\nSuites: stable\nComponents: main\n\n"
    assert [place.split(": ")[0] for place in insecure_sources("x.sources", first + text.format(uri=URI))] == [
        "x.sources:2"
    ]


@pytest.mark.parametrize("text", DEB822_OFF)
def test_a_stanza_that_does_not_is_not(text: str) -> None:
    assert insecure_sources("x.sources", text.format(uri=URI)) == []


@pytest.mark.parametrize("line", CONFIG_ON)
def test_a_key_of_apt_conf_that_switches_authentication_off_is_found(line: str) -> None:
    dump = f'APT "";\nAPT::Architecture "amd64";\n{line}\nAcquire "";\n'
    assert len(insecure_config(dump)) == 1


@pytest.mark.parametrize("line", CONFIG_OFF)
def test_a_key_that_does_not_is_not(line: str) -> None:
    assert insecure_config(line + "\n") == []


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("x.list", True), ("x.sources", False), ("a-b_c.1:2.list", True), ("x.list.bak", False), ("x.bak", False),
        ("x.list~", False), ("x.list.save", False), ("x.list.dpkg-old", False), ("x.list.disabled", False),
        (".x.list", False), ("x y.list", False), ("x", False), ("list", False), ("x.LIST", False), ("é.list", False),
    ],
)  # fmt: skip
def test_only_the_files_that_apt_reads_are_read(tmp_path: Path, name: str, read: bool) -> None:
    world = World(tmp_path).make()
    world.sources(name, f"deb [trusted=yes] {URI} stable main\n")
    assert bool(world.updater().host.unauthenticated()) == read


def test_the_main_list_and_links_are_read_and_folders_are_not(tmp_path: Path) -> None:
    world = World(tmp_path).make()
    (tmp_path / "etc/apt/sources.list.d/folder.list").mkdir()
    (tmp_path / "etc/apt/sources.list.d/gone.list").symlink_to("nowhere")
    assert world.updater().host.unauthenticated() == []
    (tmp_path / "elsewhere").write_text("deb [trusted=yes] http://x/ stable main")
    (tmp_path / "etc/apt/sources.list.d/link.list").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "etc/apt/sources.list").write_bytes(b"# \xff caf\xe9\ndeb [trusted=yes] http://x/ stable main")
    assert [place.rsplit("/", 1)[1] for place in world.updater().host.unauthenticated()] == [
        "sources.list:2: trusted",
        "link.list:1: trusted",
    ]


def test_when_apt_config_says_nothing_it_is_not_taken_for_a_yes(tmp_path: Path) -> None:
    world = World(tmp_path).make()
    (tmp_path / "usr/bin/apt-config").unlink()
    (tmp_path / "usr/bin/apt-config").symlink_to("/bin/true")
    assert world.updater().host.unauthenticated() == ["apt-config can't be read"]
