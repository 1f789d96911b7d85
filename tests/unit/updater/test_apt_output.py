"""Read apt's and dpkg's words: the plan, the packages, what differs."""

from harmony_updater import apt_output

SIMULATED = """Reading package lists...
2 upgraded, 1 newly installed, 2 to remove and 0 not upgraded.
Remv old [1.0]
Purg older:i386 [0.1]
Inst libc6 [2.36-9] (2.36-9+deb12u1 Debian:12.1/stable, Debian-Security:12/stable-security [amd64]) []
Inst libc6:i386 [2.36-9] (2.36-9+deb12u1 Debian:12.1/stable [i386])
Inst new (1:0.5~rc1 [all])
Conf new (1:0.5~rc1 [all])
"""
LISTED = """installed/dpkg/amd64/1.21
installed/libc6/amd64/2.36-9+deb12u1
installed/libc6/i386/2.36-9
installed/new/all/1:0.5~rc1
config-files/old/amd64/1.0
unpacked/half/amd64/3
not-installed/never/all/
"""


def test_a_plan_is_what_the_simulation_installs_and_removes() -> None:
    assert apt_output.plan(SIMULATED).versions == {
        "old": "",
        "older:i386": "",
        "libc6": "2.36-9+deb12u1",
        "libc6:i386": "2.36-9+deb12u1",
        "new": "1:0.5~rc1",
    }
    assert apt_output.plan("").versions == {}


def test_packages_are_named_as_apt_names_them() -> None:
    assert apt_output.installed(LISTED) == {
        "dpkg": "1.21",
        "libc6": "2.36-9+deb12u1",
        "libc6:i386": "2.36-9",
        "new": "1:0.5~rc1",
        "half": "3",
    }


def test_each_difference_from_the_plan_is_named() -> None:
    found = apt_output.installed(LISTED)
    planned = apt_output.plan(SIMULATED).versions
    assert apt_output.differences(planned, found) == [
        "libc6:i386 is 2.36-9, planned was 2.36-9+deb12u1"
    ]
    assert len(apt_output.differences(planned, {})) == 3
    assert apt_output.differences({}, found) == []


def test_warnings_are_no_answers() -> None:
    assert apt_output.lines("N: Ignoring x\nW: twice\nyes a\n\nno b\r\n") == ["yes a", "no b\r"]


def test_addresses_lose_their_passwords() -> None:
    assert apt_output.without_passwords("http://me:secret@x/ y") == "http://x/ y"


def test_the_sizes_of_a_plan_are_added_up() -> None:
    said = "After this operation, 1.5 kB of additional disk space will be used.\n'http://x/a' a 100 SHA256:0\n"
    assert apt_output.bytes_needed(said) == 1_600
    assert apt_output.bytes_needed("'http://x/a' a 7 \n'http://x/b' b 8 \n") == 15
    assert apt_output.archives("'http://x/a' a 7 \n'file:/b' b 8 \n") == ["http://x/a", "file:/b"]
