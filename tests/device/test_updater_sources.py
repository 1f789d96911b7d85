"""Where authentication is off, by our reading and by the real apt's deeds: the same spellings, the same answer.

apt is given an unsigned repository by each line, stanza and key in turn; it takes the index, or it doesn't.
"""

from __future__ import annotations

import json
import re
from typing import Any

from harmony_updater.apt import insecure_config, insecure_sources
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.unit.updater.sources_cases import CONFIG_OFF, CONFIG_ON, DEB822_OFF, DEB822_ON, LINES_OFF, LINES_ON

REPOSITORY = "/srv/unsigned"
URI = f"file:{REPOSITORY}"
# What these let through isn't an unsigned repository: a weak digest, or one that was signed once.
_OTHERWISE = re.compile(
    r"allow-(weak|downgrade)|sources::with|gpgvcommand|dir::etc|weakrep|downgrade|get::(allow|force)", re.I
)
# apt's manual has these for stanzas; the versions on these devices ignore them, later ones need not.
_DOCUMENTED = re.compile(r"^allow-(insecure|weak|downgrade)", re.I | re.M)

_TRY = """
import json, os, shutil, subprocess, sys
cases, taken = json.load(sys.stdin), []
for name, text, config in cases:
    shutil.rmtree("/tmp/apt", ignore_errors=True)
    for folder in ("lists/partial", "parts", "conf"):
        os.makedirs("/tmp/apt/" + folder)
    with open("/tmp/apt/parts/" + name, "w", newline="") as file:
        file.write(text)
    with open("/tmp/apt/conf/x", "w") as file:
        file.write(config + '\\nDir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/tmp/apt/parts";'
                            'Dir::State::lists "/tmp/apt/lists"; APT::Sandbox::User "root";')
    env = dict(os.environ, APT_CONFIG="/tmp/apt/conf/x")
    done = subprocess.run(["apt-get", "update"], env=env, capture_output=True, text=True)
    lists = [one for one in os.listdir("/tmp/apt/lists") if one.endswith(("Packages", "Sources"))]
    taken.append((bool(lists), done.stderr[-300:]))
print(json.dumps(taken))
"""


def by_apt(device: Device, cases: list[tuple[str, str, str]]) -> list[Any]:
    """Whether apt takes the index in each case, and what it says."""
    return list(json.loads(device.run(["python3", "-c", _TRY], input=json.dumps(cases), timeout=180).stdout))


def with_repository(device: Device) -> Device:
    """The unsigned repository, in both layouts, binary and source."""
    package = "Package: unsigned-sample\nVersion: 1\nArchitecture: all\nFilename: x.deb\nSize: 1\nSHA256: " + "0" * 64
    source = (
        "Package: unsigned-sample\nVersion: 1\nBinary: unsigned-sample\nDirectory: .\nFiles:\n " + "0" * 32 + " 1 x.dsc"
    )
    script = (
        "import hashlib, os, sys\n"
        "root, package, source = sys.argv[1:]\n"
        "for base, prefixes in ((root, ['']), (root + '/dists/stable', ['main/binary-amd64/', 'main/binary-arm64/',\n"
        "                                                              'main/binary-all/', 'main/source/'])):\n"
        "    lines = []\n"
        "    for prefix in prefixes:\n"
        "        os.makedirs(base + '/' + prefix, exist_ok=True)\n"
        "        kind, text = ('Sources', source) if 'source' in prefix else ('Packages', package)\n"
        "        data = (text + chr(10)).encode()\n"
        "        open(base + '/' + prefix + kind, 'wb').write(data)\n"
        "        lines.append(f' {hashlib.sha256(data).hexdigest()} {len(data)} {prefix}{kind}')\n"
        "    head = 'Suite: stable\\nArchitectures: amd64 arm64 all\\nComponents: main\\n'\n"
        "    open(base + '/Release', 'w').write(head + 'SHA256:\\n' + '\\n'.join(lines) + '\\n')\n"
    )
    device.run(["python3", "-c", script, REPOSITORY, package, source])
    return device


def test_we_and_apt_agree_on_every_spelling(lab: Lab, suite: str) -> None:
    device = with_repository(lab.device(suite))
    lines = [("x.list", line.format(uri=URI) + "\n", "") for line in (*LINES_ON, *LINES_OFF)]
    stanzas = [("x.sources", stanza.format(uri=URI), "") for stanza in (*DEB822_ON, *DEB822_OFF)]
    keys = [
        ("x.list", f"deb {URI} stable main\n", key.replace("::With::", "::With")) for key in (*CONFIG_ON, *CONFIG_OFF)
    ]
    cases = [case for case in (*lines, *stanzas, *keys) if not _OTHERWISE.search(case[1] + case[2])]
    cases = [case for case in cases if case[0] == "x.list" or not _DOCUMENTED.search(case[1])]
    assert len(cases) > 100
    answers = by_apt(device, cases)
    wrong = [
        (case, taken, said)
        for case, (taken, said) in zip(cases, answers, strict=True)
        if taken != bool(insecure_sources(case[0], case[1]) + insecure_config(case[2]))
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(taken for taken, _ in answers) > 30
    device.close()


def test_apt_reads_the_files_that_we_read_and_no_others(lab: Lab, suite: str) -> None:
    device = with_repository(lab.device(suite))
    line = f"deb [trusted=yes] {URI} ./\n"
    for name, read in {
        "x.list": True, "a-b_c.1.list": True, "x.list.bak": False, "x.bak": False, "x.list~": False, "x": False,
        "x.list.save": False, "x.list.dpkg-old": False, "x.list.disabled": False, ".x.list": False, "x y.list": False,
        "x.LIST": False,
    }.items():  # fmt: skip
        assert by_apt(device, [(name, line, "")])[0][0] == read, name
    device.close()


def test_the_switches_of_apt_conf_are_seen_wherever_they_stand(lab: Lab, suite: str) -> None:
    """As apt-config shows them, which is what is read: nested, included, with comments, in any case of letters."""
    device = lab.device(suite)
    for text in (
        'APT::Get::AllowUnauthenticated "true";',
        'apt { get { allowunauthenticated "yes"; }; };',
        "#include \"/etc/apt/elsewhere\";",
        'Acquire::AllowInsecureRepositories "1"; // why',
        'Binary::apt-get { Acquire { AllowWeakRepositories "on"; }; };',
        '/* */ APT::Sources::With { "/srv/Packages"; };',
    ):  # fmt: skip
        device.write("/etc/apt/elsewhere", 'Acquire::AllowDowngradeToInsecureRepositories "true";')
        device.write("/etc/apt/apt.conf.d/99x", text + "\n")
        assert insecure_config(device.run(["apt-config", "dump"]).stdout), text
    for text in (
        '// APT::Get::AllowUnauthenticated "true";',
        'APT::Get::AllowUnauthenticated "true";\n#clear APT::Get;',
    ):
        device.write("/etc/apt/apt.conf.d/99x", text + "\n")
        assert not insecure_config(device.run(["apt-config", "dump"]).stdout), text
    device.close()


def test_what_forces_authentication_on_apt_s_command_line_stands_above_its_configuration(lab: Lab, suite: str) -> None:
    """Were a spelling missed, apt would still not take what nobody signed."""
    from harmony_updater.apt import COMMANDS

    device = with_repository(lab.device(suite))
    device.write("/etc/apt/sources.list", f"deb {URI} stable main\n")
    for key in ("Acquire::AllowInsecureRepositories", "Binary::apt-get::Acquire::AllowInsecureRepositories"):
        device.write("/etc/apt/apt.conf.d/99x", f'{key} "true";\n')
        assert device.run(["apt-get", "update"], check=False).rc == 0
        device.run(["rm", "-rf", "/var/lib/apt/lists"])
        words = COMMANDS["update"].split()
        mine = words[words.index("/usr/bin/apt-get") :]
        assert device.run(mine, check=False).rc == 100
    device.close()
