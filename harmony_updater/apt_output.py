"""Read the words of apt and dpkg. Pure: text in, facts out, and no decision."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LOGIN = re.compile(r"(?<=://)[^/\s@]*@")
_ERROR = re.compile(r"^E: .*$", re.MULTILINE)
_ARCHIVE = re.compile(r"^'([^']*)' \S+ (\d+)\b", re.MULTILINE)
_GROWTH = re.compile(
    r"^After this operation, ([\d.]+) ?([kMGT]?)B of additional disk space", re.MULTILINE
)
_HELD = re.compile(
    r"^The following (?:packages .* kept back|upgrades .* due to phasing):\n((?: .*\n)+)",
    re.MULTILINE,
)
_KEPT = re.compile(
    r"^Configuration file '(.*)'\n(?: ==> .*\n)*? ==> Keeping old config file",
    re.MULTILINE,
)
_INSTALL = re.compile(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+) ", re.MULTILINE)
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
_INSTALLED = re.compile(r"^(\S+)/(\S+)/(\S+)/(\S+)$", re.MULTILINE)
_GONE = {"not-installed", "config-files"}


class Plan(NamedTuple):
    """The versions that apt is going to install, by package, and the packages that it removes.

    Packages are named as apt names them: `name`, or `name:architecture` where that is foreign.
    """

    install: dict[str, str]
    remove: tuple[str, ...]

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package afterwards; empty when it goes."""
        return dict.fromkeys(self.remove, "") | self.install


def without_passwords(text: str) -> str:
    """Take names and passwords out of addresses."""
    return _LOGIN.sub("", text)


def lines(text: str) -> list[str]:
    """Split what apt said, without its warnings and notices; no answer begins like one of them."""
    return [line for line in text.split("\n") if line and not line.startswith(("W: ", "N: "))]


def errors(text: str) -> list[str]:
    """Find the lines in which apt says what went wrong."""
    return _ERROR.findall(text)


def why(text: str) -> str:
    """Say in one line why apt failed: its errors, else all that it said."""
    return " ".join(errors(text) or [text])


def archives(text: str) -> list[str]:
    """Find the addresses in the output of `--print-uris`."""
    return [address for address, _ in _ARCHIVE.findall(text)]


def bytes_needed(text: str) -> int:
    """Add up what `--print-uris` is going to fetch, and to unpack."""
    need = sum(int(size) for _, size in _ARCHIVE.findall(text))
    if grows := _GROWTH.search(text):
        need += int(float(grows[1]) * 1000 ** " kMGT".index(grows[2] or " "))
    return need


def held(log: str) -> list[str]:
    """Find the packages that apt keeps back."""
    return " ".join(_HELD.findall(log)).split()


def kept_conffiles(log: str) -> list[str]:
    """Find the configuration files of which dpkg kept the edited one."""
    return _KEPT.findall(log)


def installed(text: str) -> dict[str, str]:
    """Read the lines of dpkg-query: the version of each package, named as apt names it."""
    found = [line[1:] for line in _INSTALLED.findall(text) if line[0] not in _GONE]
    near = {"all", *(architecture for name, architecture, _ in found if name == "dpkg")}
    return {
        name if architecture in near else f"{name}:{architecture}": version
        for name, architecture, version in found
    }


def plan(text: str) -> Plan:
    """Read a simulation."""
    return Plan(dict(_INSTALL.findall(text)), tuple(_REMOVE.findall(text)))


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, list[str]]:
    """Compare two lists of installed packages, in words."""
    return {
        "upgraded": [
            f"{name} ({before[name]} => {version})"
            for name, version in after.items()
            if before.get(name, version) != version
        ],
        "installed": [
            f"{name} ({version})" for name, version in after.items() if name not in before
        ],
        "removed": [f"{name} ({version})" for name, version in before.items() if name not in after],
    }


def differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Compare what is installed with what was planned, an empty version where the package goes."""
    return [
        f"{name} is {found.get(name, 'not installed')}, planned was {version or 'its removal'}"
        for name, version in wanted.items()
        if found.get(name, "") != version
    ]


def fit(entries: Sequence[str], room: int = 9_000) -> tuple[str, ...]:
    """Take the entries that have room in an answer, printable, and say how many more there are."""
    fitting = ["".join(filter(str.isprintable, entry))[:500] for entry in entries]
    while len(json.dumps(fitting)) > room:
        fitting = fitting[: len(fitting) * 9 // 10]
    more = len(entries) - len(fitting)
    return (*fitting, f"... {more} more") if more else tuple(fitting)
