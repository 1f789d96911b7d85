"""Where authentication is off, by the real apt's deeds and by the updater's checks, on each Debian.

apt is given an unsigned repository by each line, stanza and option in turn. Where it takes the
index, the updater must refuse, and before it fetches anything. Where a signed one is given, it must
not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.device.aptrepo import KEY, PLACE, Package, Repository
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.unit.updater.spellings import HARMLESS, INCLUDED, LINES, OPTIONS, REPLACED, STANZAS

REPOSITORY = "/srv/unsigned"
URI = f"file:{REPOSITORY}"
PYTHON = "/opt/harmony/bin/python"
PLAIN = f"deb {URI} stable main\n"

# Each case is three texts: a .list, a .sources, an apt.conf. The answer: did apt take it, and what
# the updater says. Of an unsigned repository that apt doesn't take, the updater isn't asked.
_TRY = """
import json, os, shutil, subprocess, sys
from harmony_updater.host import Host
from harmony_updater.preflight import Preflight
PLACES = ("/etc/apt/sources.list.d/x.list", "/etc/apt/sources.list.d/x.sources", "/etc/apt/apt.conf.d/99x")

def lay(case):
    shutil.rmtree("/var/lib/apt/lists", ignore_errors=True)
    os.makedirs("/var/lib/apt/lists/partial")
    for path, text in zip(PLACES, case):
        if text:
            with open(path, "w", newline="") as file:
                file.write(text)
        elif os.path.exists(path):
            os.unlink(path)

def apt_takes(options):
    subprocess.run(["apt-get", "update"], capture_output=True)
    if any(name.endswith(("Packages", "Sources")) for name in os.listdir("/var/lib/apt/lists")):
        return True
    if "With" not in options:
        return False
    done = subprocess.run(["apt-get", "-s", "install", "unsigned-sample"], capture_output=True)
    return b"Inst unsigned-sample" in done.stdout

def updater_says():
    checks = Preflight(Host())
    for step in (checks.switches_are_on, checks.options_are_safe, checks.sources_are_signed,
                 checks.indexes_are_fetched, checks.indexes_are_verified, checks.plan_is_made,
                 checks.archives_are_verified_and_fit):
        if said := step():
            return [said.reason, said.message]
    return None

unsigned, answers = sys.argv[1] == "unsigned", []
for case in json.load(sys.stdin):
    lay(case)
    taken = unsigned and apt_takes(case[2])
    if taken:
        lay(case)
    answers.append([taken, updater_says() if taken or not unsigned else None])
print(json.dumps(answers))
"""

Case = tuple[str, str, str]


def tried(device: Device, cases: Sequence[Case], how: str = "") -> list[Any]:
    """Ask the updater about each case; where the repository is `unsigned`, apt first."""
    answers = device.run([PYTHON, "-c", _TRY, how], input=json.dumps(cases), timeout=500).stdout
    return list(zip(cases, json.loads(answers), strict=True))


_MAKE = """
import hashlib, os, sys
root = sys.argv[1]
package = "Package: unsigned-sample\\nVersion: 1\\nArchitecture: all\\nFilename: x.deb\\nSize: 1\\nSHA256: " + "0" * 64
source = "Package: unsigned-sample\\nVersion: 1\\nBinary: unsigned-sample\\nDirectory: .\\nFiles:\\n "
source += "0" * 32 + " 1 x.dsc"
folders = ["main/binary-amd64/", "main/binary-arm64/", "main/binary-all/", "main/source/"]
for base, prefixes in ((root, [""]), (root + "/dists/stable", folders)):
    lines = []
    for prefix in prefixes:
        os.makedirs(base + "/" + prefix, exist_ok=True)
        kind, text = ("Sources", source) if "source" in prefix else ("Packages", package)
        data = (text + chr(10)).encode()
        open(base + "/" + prefix + kind, "wb").write(data)
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {prefix}{kind}")
    head = "Suite: stable\\nArchitectures: amd64 arm64 all\\nComponents: main\\n"
    open(base + "/Release", "w").write(head + "SHA256:\\n" + "\\n".join(lines) + "\\n")
"""


def with_repository(device: Device) -> Device:
    """Make the unsigned repository, in both layouts, binary and source."""
    device.run(["python3", "-c", _MAKE, REPOSITORY])
    device.write(f"{REPOSITORY}/included", INCLUDED)
    device.write(f"{REPOSITORY}/parts/x.list", f"deb [trusted=yes] {URI} stable main\n")
    return device


def texts(lines: Sequence[str], uri: str) -> list[str]:
    """Fill in the repository. Some of these have braces of their own."""
    return [line.replace("{uri}", uri) for line in lines]


def test_what_apt_takes_unsigned_the_updater_refuses_in_every_spelling(
    lab: Lab, suite: str
) -> None:
    device = with_repository(lab.device(suite))
    cases: list[Case] = [(line + "\n", "", "") for line in texts(LINES, URI)]
    cases += [("", stanza, "") for stanza in texts(STANZAS, URI)]
    cases += [(PLAIN, "", option + "\n") for option in OPTIONS]
    assert len(cases) > 300
    answers = tried(device, cases, "unsigned")
    missed = [(case, said) for case, (taken, said) in answers if taken and said is None]
    assert not missed, "\n".join(map(str, missed))
    late = [(case, said) for case, (taken, said) in answers if taken and said[0] == "IndexFailed"]
    assert not late, "\n".join(map(str, late))
    named = {said[0] for _, (taken, said) in answers if taken}
    assert named == {"UnauthenticatedSource", "UnsafeConfiguration"}
    assert sum(taken for _, (taken, _) in answers) > 80
    device.close()


def test_an_option_by_which_others_run_or_are_believed_is_refused(lab: Lab, suite: str) -> None:
    device = lab.device(suite)
    wrong = [
        (case, said)
        for case, (_, said) in tried(device, [("", "", option + "\n") for option in REPLACED])
        if said is None or said[0] != "UnsafeConfiguration"
    ]
    assert not wrong, "\n".join(map(str, wrong))
    device.close()


@pytest.fixture
def signed(lab: Lab, suite: str) -> Any:
    """A device that knows a signed repository."""
    device = with_repository(lab.device(suite))
    repository = Repository(Path(lab.folder) / f"apt-{device.name}")
    repository.add(Package("harmony-sample", "1.0")).give(device)
    device.run(["rm", "/etc/apt/sources.list.d/harmony-test.list"])
    yield device
    repository.close()
    device.close()


def test_a_signed_repository_is_taken_whatever_else_the_device_has(signed: Device) -> None:
    line, uri = f"deb [signed-by={KEY}] file:{PLACE} ./\n", f"file:{PLACE}"
    stanza = f"Types: deb\nURIs: {uri}\nSuites: ./\nSigned-By: {KEY}\n"
    off = f"deb [trusted=yes] {URI} stable main\n"
    cases: list[Case] = [
        (line, "", ""),
        (line + line, "", ""),  # apt warns of it
        ("", stanza, ""),
        ("", stanza + "\n" + stanza, ""),
        (
            line,
            f"Enabled: no\nTypes: deb\nURIs: {URI}\nSuites: stable\nComponents: main\nTrusted: yes\n",
            "",
        ),
        (f"# {off}{line}", "", ""),
        ("", "", ""),
        *((line, "", option + "\n") for option in HARMLESS),
    ]
    signed.write("/etc/apt/sources.list.d/x.list.bak", off)
    signed.write("/etc/apt/apt.conf.d/99y.bak", "nonsense")
    wrong = [(case, said) for case, (_, said) in tried(signed, cases) if said is not None]
    assert not wrong, "\n".join(map(str, wrong))
    assert not signed.exists("/srv/hooked")


def test_a_source_that_cannot_be_read_has_a_reason_of_its_own(lab: Lab, suite: str) -> None:
    device = lab.device(suite)
    cases: list[Case] = [
        ("deb [trusted=yes file:/srv stable main\n", "", ""),
        ("deb file:/srv\n", "", ""),
        ("nonsense\n", "", ""),
        ("", "Types: deb\n", ""),
    ]
    for case, (_, said) in tried(device, cases):
        assert said, case
        assert said[0] == "SourcesMalformed", case
        assert "/etc/apt/sources.list.d/x." in said[1]
    ((_, (_, said)),) = tried(device, [("", "", "APT { X\n")])
    assert said[0] == "UnsafeConfiguration"
    assert "99x" in said[1]
    device.close()


_ALWAYS_GOOD = """#!/usr/bin/python3
import sys
def say(text):
    sys.stdout.write(text + "\\n\\n")
    sys.stdout.flush()
say("100 Capabilities\\nVersion: 1.0\\nSingle-Instance: true\\nSend-Config: true")
asked = {}
for line in sys.stdin:
    name, _, value = line.rstrip("\\n").partition(": ")
    if name:
        asked[name] = value
    elif "URI" in asked:
        say(f"201 URI Done\\nURI: {asked['URI']}\\nFilename: {asked['Filename']}\\nSigned-By: {'AB' * 20}")
        asked = {}
"""


def test_what_a_replaced_verifier_let_in_is_verified_anew(signed: Device) -> None:
    line = f"deb [signed-by={KEY}] file:{PLACE} ./\n"
    signed.write("/etc/apt/sources.list.d/x.list", line)
    signed.run(["sed", "-i", "s/^Suite: test/Suite: another/", f"{PLACE}/InRelease"])
    signed.write("/srv/good", _ALWAYS_GOOD)
    signed.run(["chmod", "0755", "/srv/good"])
    signed.write(
        "/srv/evil.conf",
        "".join(f'Dir::Bin::methods::{name} "/srv/good";\n' for name in ("gpgv", "sqv")),
    )
    assert signed.run(["apt-get", "update"], check=False).rc == 100
    assert (
        signed.run(["env", "APT_CONFIG=/srv/evil.conf", "apt-get", "update"], check=False).rc == 0
    )
    as_it_is = _TRY.replace("def lay(case):\n", "def lay(case):\n    return\n")
    ((_, said),) = json.loads(
        signed.run([PYTHON, "-c", as_it_is, ""], input='[["", "", ""]]').stdout
    )
    assert said
    assert said[0] == "IndexFailed"
