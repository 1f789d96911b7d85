"""A newcomer's run of docs/install.md, word by word, on a machine and two Pis that have nothing of
ours; and out again.

Every block of the guide is typed as it stands, in its order, where its prompt says, and shows what
the guide says that it shows. The machines have the guide's names. What the newcomer's network
gives, pip's index, is a folder here; and of all the packages that `make deb` makes, those are made
that these machines need.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests import guide
from tests.device import newcomer
from tests.device.lab import Lab
from tests.device.life import eventually
from tests.device.machine import Device
from tests.device.packages import ARCH, DEBIAN, untouched
from tests.device.terminal import Terminal
from tests.guide import Block, Typed

SUITES = {"nats": "trixie", "pi-01": "bookworm", "pi-02": "bookworm"}
"""The Pis alike: packages for one Debian take as long to make as all else here."""
LONG = 900.0
"""Seconds for one line: the guide promises nothing of how long one takes."""


@dataclass
class Site:
    machines: dict[str, Device]
    terminals: dict[str, Terminal]
    typed: list[Block]

    def follow(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.language == "console":
                self.type(block)
            elif block.language != "text":  # which shows what may be seen
                assert block.language == "yaml", f"nobody knows what to do with this: {block.text}"
                self.edit(block)
            self.typed.append(block)

    def type(self, block: Block) -> None:
        for typed in block.typed:
            begun = time.monotonic()

            def seen(said: str, typed: Typed = typed) -> bool:
                return typed.interrupted and said != "" and not guide.unseen(typed.shows, said)

            code, said = self.terminals[block.prompt].type(typed.line, LONG, seen)
            print(
                f"{block.prompt} {typed.line}  [{time.monotonic() - begun:.1f} s]\n{said}",
                flush=True,
            )
            assert code == (130 if typed.interrupted else 0), (
                f"{block.prompt} {typed.line} ended with {code}:\n{said}"
            )
            assert guide.unseen(typed.shows, said) == [], (
                f"{block.prompt} {typed.line} showed:\n{said}"
            )

    def edit(self, block: Block) -> None:
        """A file's text begins with its name."""
        name = block.text.partition("\n")[0].removeprefix("# ")
        self.machines["nats"].write(f"{newcomer.TREE}/{name}", block.text, owner=newcomer.OPERATOR)


@pytest.fixture
def site(lab: Lab) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        lan = lab.lan()
        stack.callback(lan.close)
        lan.nats.stop()  # the guide makes its own
        machines = {name: untouched(lab, suite, lan, name) for name, suite in SUITES.items()}
        names = {
            name if name != "nats" else "nats.lan": one.link.address
            for name, one in machines.items()
        }
        for name, machine in machines.items():
            stack.callback(machine.close)
            newcomer.add_person(machine, newcomer.OPERATOR if name == "nats" else newcomer.LOGIN)
            machine.know_hosts(names)
        office = machines["nats"]
        newcomer.source_tree(office)
        env = newcomer.package_index(lab, office, SUITES["nats"], SUITES["pi-01"])
        env |= {"DEB_SUITE": SUITES["pi-01"], "DEB_ARCH": ARCH[platform.machine()]}
        for machine in machines.values():
            machine.boot()
        newcomer.ssh_without_password(lab, office, machines["pi-01"])
        terminals = {
            "nats$": Terminal(office, newcomer.OPERATOR, newcomer.TREE, env),
            "nats#": Terminal(office, "root", newcomer.TREE),
            "pi-01#": Terminal(machines["pi-01"], "root", "/root"),
            "pi-02#": Terminal(machines["pi-02"], "root", "/root"),
        }
        for terminal in terminals.values():
            stack.enter_context(terminal)
        yield Site(machines, terminals, [])


@pytest.mark.timeout(1800)
def test_a_newcomer_s_run_of_the_guide(site: Site) -> None:
    whole = guide.blocks("install.md")
    by_hand = next(block for block in whole if block.prompt == "pi-02#")
    before = whole[: whole.index(by_hand)]
    site.follow(before)
    page = "<p>Greetings from a Pi\n"
    assert site.machines["pi-01"].read_text("/srv/web/index.html") == page
    debs = f"dist/harmony-[au]*+{DEBIAN[SUITES['pi-02']]}_*.deb"
    newcomer.carry(site.machines["nats"], site.machines["pi-02"], "pi-02.bundle", debs)
    site.follow(whole[len(before) :])
    assert site.typed == whole
    for name in ("pi-01", "pi-02"):
        assert site.machines[name].read_text("/srv/web/index.html") == page

    site.follow(guide.section("operate.md", "Every day"))
    the_server_is_lost(site)
    site.follow(guide.section("operate.md", "Take a device out"))
    nothing_is_left(site.machines["pi-01"])
    assert site.machines["pi-02"].read_text("/srv/web/index.html") == page


def the_server_is_lost(site: Site) -> None:
    """Another machine in its place has nothing of it but its name."""
    nats = site.machines["nats"]
    nats.systemctl("disable", "--now", "harmony-nats.service")
    nats.run(["userdel", "harmony-nats"])
    for path in (
        "/var/lib/harmony-nats",
        "/usr/local/bin/nats-server",
        "/etc/systemd/system/harmony-nats.service",
    ):
        nats.remove(path)
    nats.run(
        ["cp", "-r", f"/home/{newcomer.OPERATOR}/.config/harmony/nats", newcomer.TREE],
        user=newcomer.OPERATOR,
    )
    site.follow(
        [block for block in guide.section("install.md", "2. The server") if block.prompt == "nats#"]
    )
    push, apply = guide.section("operate.md", "NATS is lost")
    site.follow([push])
    eventually(lambda: told(site), "the devices say again what they enforce", 300)
    site.follow([apply])


def told(site: Site) -> bool:
    _, said = site.terminals["nats$"].type("harmony status --resources", LONG)
    return "pi-01/web" in said and "pi-02/web" in said


def nothing_is_left(pi: Device) -> None:
    for path in (
        "/srv/web",
        "/etc/harmony",
        "/opt/harmony",
        "/var/lib/harmony-agent",
        "/var/lib/fleet-agent",
    ):
        assert not pi.exists(path), path
    for account in ("fleet-agent", "harmony-agent"):
        assert account not in pi.read_text("/etc/passwd") + pi.read_text("/etc/group")
