"""Judge by apt's words: what isn't understood is an objection. tests/device asks the real apt for
them.
"""

import pytest

from harmony_updater.apt_policy import (
    BELIEVED_FORMAT,
    SWITCHES,
    astray,
    believed,
    switched_off,
    unsafe_options,
    unverified,
)

UNSIGNED = BELIEVED_FORMAT.replace("$(TRUSTED)", "no").replace(
    "$(FILENAME)", "/unsigned/x_Packages"
)
UNSIGNED = UNSIGNED.replace("$(SOURCESENTRY)", "/etc/apt/sources.list:1")
INDEX = "/var/lib/apt/lists/x_Packages"
VERIFIED = "yes http://deb.test/ http://deb.test stable/main amd64 Packages"
DUMP = ('APT::Get "";', 'Dir::Bin::dpkg "/usr/bin/dpkg";', 'Acquire::Languages:: "en";')


def test_a_source_that_apt_does_not_believe_unsigned_is_fine() -> None:
    assert believed([INDEX], [UNSIGNED]) == []
    assert believed([], []) == []


@pytest.mark.parametrize(
    "said",
    [
        [UNSIGNED.replace("no ", "yes ", 1)],
        [UNSIGNED.replace("$(ALLOW_INSECURE)", "true")],
        [UNSIGNED.replace("$(ALLOW_WEAK)", "true")],
        [UNSIGNED.replace("$(ALLOW_DOWNGRADE_TO_INSECURE)", "true")],
        [UNSIGNED.replace("no ", "$(TRUSTED) ", 1)],
        [UNSIGNED.replace("x_Packages", "y_Packages")],
        [],
        [UNSIGNED, UNSIGNED],
        [""],
        ["no"],
    ],
)
def test_all_else_that_apt_says_of_it_is_an_objection(said: list[str]) -> None:
    assert believed([INDEX], said)


def test_the_objection_names_the_place() -> None:
    assert believed([INDEX], [UNSIGNED.replace("no ", "yes ", 1)]) == ["/etc/apt/sources.list:1"]


def test_every_index_that_apt_chooses_from_has_to_be_verified() -> None:
    policy = [
        "Package files:",
        " 100 /var/lib/dpkg/status",
        " 500 http://deb.test stable/main amd64 Packages",
    ]
    assert unverified([VERIFIED], policy) == []
    assert unverified([VERIFIED.replace("yes", "no")], policy) == [
        VERIFIED.replace("yes", "no"),
        "http://deb.test stable/main amd64 Packages",
    ]
    assert unverified([], policy) == ["http://deb.test stable/main amd64 Packages"]
    assert unverified([VERIFIED], [*policy, " -10 /srv/Packages"]) == ["/srv/Packages"]
    assert unverified(["yes"], [*policy[:2]]) == ["yes"]


def test_every_archive_has_to_be_below_a_verified_repository() -> None:
    inside, outside = "http://deb.test/pool/x.deb", "http://deb.tested/pool/x.deb"
    assert astray([VERIFIED], [inside]) == []
    assert astray([VERIFIED], [inside, outside]) == [outside]
    assert astray([VERIFIED.replace("yes", "no")], [inside]) == [inside]
    assert astray(["yes  x"], [inside]) == [inside]
    assert astray([], [inside]) == [inside]


def test_a_switch_that_is_not_false_by_apt_s_own_word_is_off() -> None:
    said = [f"{key}='false'" for key in SWITCHES]
    assert switched_off([]) == switched_off(said) == switched_off(said[2:]) == []
    for wrong in (
        "APT::Get::Force-Yes='true'",
        "APT::Get::Force-Yes=''",
        "APT::Get::Other='false'",
        "Force-Yes",
    ):
        assert switched_off([*said, wrong]) == [wrong]


@pytest.mark.parametrize(
    "line",
    [
        'APT::Default-Release "stable";',
        'APT::NeverAutoRemove:: "^linux-firmware$";',
        'APT::Periodic::Enable "1";',
        'Unattended-Upgrade::Allowed-Origins:: "x";',
        'acquire::HTTP::Proxy "http://proxy:3142";',
        'Acquire::http::Proxy::deb.test "DIRECT";',
        'Acquire::https::deb.test::SslCert "/etc/x.pem";',
        'Acquire::Retries "3";',
        'Acquire::PDiffs "0";',
        'Acquire::IndexTargets::deb::DEP-11::MetaKey "$(COMPONENT)/dep11";',
        'APT::Key::GPGVCommand "";',
        'Binary::apt::APT::Color "1";',
        'Dir::Etc::main "apt.conf";',
    ],
)
def test_what_changes_neither_who_is_believed_nor_what_runs_is_allowed(line: str) -> None:
    assert unsafe_options(DUMP, [*DUMP, line]) == []


@pytest.mark.parametrize(
    "line",
    [
        'Dir::Bin::methods::gpgv "/srv/gpgv";',
        'Dir::Bin::methods "/srv/methods";',
        'Dir::Bin::apt-key "/srv/apt-key";',
        'Dir::Etc::trusted "/srv/keys.gpg";',
        'Dir::Etc::sourceparts "/srv/x";',
        'Binary::apt-get::Dir::Bin::dpkg "/srv/dpkg";',
        'BINARY::APT-GET::Dir::Bin::dpkg "/srv/dpkg";',
        'Binary::apt-cache::Dir "/srv";',
        'APT::Sources::With:: "/srv/Packages";',
        'APT::Sources::With::local "/srv/Packages";',
        'APT::Key::GPGVCommand "/srv/gpgv";',
        'APT::Key::Assert-Pubkey-Algo ">=rsa512";',
        'APT::Solver "srv";',
        'APT::Sandbox::User "root";',
        'APT::Hashes::SHA1::Weak "no";',
        'APT::Hashes::SHA1::Untrusted "no";',
        'APT::Compressor::zz::Binary "/srv/zz";',
        'Acquire::http::Proxy-Auto-Detect "/srv/detect";',
        'Acquire::https::Verify-Peer "false";',
        'Acquire::cdrom::/media/cdrom/::Mount "/srv/mount";',
        'Acquire::IndexTargets::deb::Packages::MetaKey "x";',
        'Acquire::Max-ValidTime "1";',
        'Debug::pkgDPkgPM "1";',
        'DPkg::Chroot-Directory "/srv";',
        'DPkg::Path "/srv";',
        'RootDir "/srv";',
        'Unknown::Key "x";',
        "no option at all",
        'APT::Color "1"; Dir::Bin::dpkg "/srv/dpkg',
    ],
)
def test_all_else_is_an_objection(line: str) -> None:
    assert unsafe_options(DUMP, [*DUMP, line])


def test_what_is_missing_is_an_objection_too() -> None:
    assert unsafe_options(DUMP, []) == ['dir::bin::dpkg "/usr/bin/dpkg" is missing']
    assert unsafe_options(DUMP, [DUMP[1].replace("Dir", "DIR"), DUMP[2]]) == []
