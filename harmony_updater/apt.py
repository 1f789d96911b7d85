"""What runs as root, and how its words are read. What follows from what is seen is work.py's to decide.

COMMANDS is every command that the updater can ever run; all that is ever added to one is an attempt's id. No shell.
"""

import fcntl
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
from urllib.parse import unquote

from harmony_updater.journal import read

_FIXED = """PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb
    DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true APT_LISTCHANGES_FRONTEND=none
    NEEDRESTART_SUSPEND=1 UCF_FORCE_CONFFOLD=1"""
ENVIRONMENT = dict(pair.split("=") for pair in _FIXED.split())
# Authenticated, even where the checks below should miss something. An edited conffile stays, whatever dpkg.cfg says.
_APT_GET = """/usr/bin/apt-get -y -q
    -o APT::Get::AllowUnauthenticated=false -o APT::Get::Force-Yes=false -o APT::Authentication::TrustCDROM=false
    -o Acquire::AllowInsecureRepositories=false -o Acquire::AllowWeakRepositories=false
    -o Acquire::AllowDowngradeToInsecureRepositories=false
    -o APT::Update::Error-Mode=any -o APT::Output-Version=0 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=false
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold
    -o Dpkg::Options::=--refuse-confnew -o Dpkg::Options::=--refuse-confask"""
# apt runs in units of its own: what restarts the updater, the agent or dbus doesn't end it. It has no time limit.
_UNIT = "/usr/bin/systemd-run --quiet --collect " + " ".join(f"--setenv={pair}" for pair in _FIXED.split())
_UPGRADE = "harmony-updater-apt.service"
COMMANDS = {
    "clock": "/usr/bin/timedatectl show --property=NTPSynchronized --value",
    "config": "/usr/bin/apt-config dump",
    "places": "/usr/bin/apt-config shell LIST Dir::Etc::sourcelist/f PARTS Dir::Etc::sourceparts/d",
    "audit": "/usr/bin/dpkg --audit",
    "check": "/usr/bin/apt-get -q -s check",
    "installed": "/usr/bin/dpkg-query -W -f=${db:Status-Status}/${binary:Package}/${Version}\\n",
    "plan": f"{_APT_GET} --print-uris full-upgrade",
    "update": f"{_UNIT} --wait --pipe {_APT_GET} update",
    "upgrade": f"{_APT_GET} full-upgrade",
    "spawn": f"{_UNIT} --property=Type=exec --property=KillMode=process --unit={_UPGRADE} "
    f"{sys.executable} -I -m harmony_updater run-apt",
    "state": f"/usr/bin/systemctl show --property=ActiveState --value {_UPGRADE}",
    "reboot": "/usr/bin/systemctl reboot",
}
LOCKS = ["lib/dpkg/lock-frontend", "lib/dpkg/lock", "lib/apt/lists/lock", "cache/apt/archives/lock"]  # in /var
RESERVE = 64 * 1024 * 1024  # bytes that stay free besides what apt plans: dpkg unpacks beside the old files


class Host:
    """The device: its files below `root` (`/`, but in tests) and the commands of COMMANDS."""

    def __init__(self, root: str = "") -> None:
        self.root = root

    def start(self, name: str, *attempt: str) -> subprocess.Popen[bytes]:
        """Start a command; its output is to be read."""
        program, *arguments = COMMANDS[name].split()
        command, pipe, null = [self.root + program, *arguments, *attempt], subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd="/")

    def run(self, name: str, *attempt: str) -> tuple[int, str]:
        """Exit code and output of a command; OSError when it couldn't be run, or to its end."""
        with self.start(name, *attempt) as process:
            try:
                text, _ = process.communicate(timeout=None if name == "update" else 300)
            except subprocess.TimeoutExpired:
                process.kill()
                raise TimeoutError(f"{name} gave no answer within 300 s") from None
        if process.returncode < 0:  # as when the updater is being stopped: that is no answer
            raise InterruptedError(f"{name} was ended by signal {-process.returncode}")
        return process.returncode, LOGIN.sub("", text.decode(errors="replace"))

    def boot_id(self) -> str | None:
        """The kernel's id of this boot; None when it can't be read."""
        try:
            return read(f"{self.root}/proc/sys/kernel/random/boot_id") or None
        except OSError:
            return None

    def clock_synchronised(self) -> bool:
        """Whether timesyncd has set the clock in this boot, or the kernel was told so by whatever else sets it."""
        return os.path.exists(f"{self.root}/run/systemd/timesync/synchronized") or self.run("clock") == (0, "yes\n")

    def lock_holder(self) -> str | None:
        """Who holds a lock of dpkg or apt; None when nobody does."""
        for path in filter(os.path.exists, (f"{self.root}/var/{lock}" for lock in LOCKS)):
            with open(path, "rb") as file:
                asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK:
                return f"{path} is held by pid {pid} ({read(f'/proc/{pid}/comm')})"
        return None

    def unauthenticated(self) -> list[str]:
        """Where apt is configured to take what nobody signed, or why that can't be told."""
        (failed, config), (failed_too, places) = self.run("config"), self.run("places")
        where = dict(re.findall(r"^(LIST|PARTS)='(.*)'$", places, re.MULTILINE))
        if failed or failed_too or len(where) != 2:
            return ["apt-config can't be read"]
        parts = sorted(filter(_SOURCES.fullmatch, glob.glob(f"{self.root}{glob.escape(where['PARTS'])}*")))
        found = insecure_config(config)
        for path in filter(os.path.isfile, [self.root + where["LIST"], *parts]):
            found += insecure_sources(path, read(path))
        return found

    def unhealthy(self) -> list[str]:
        """What dpkg's audit and apt's check complain of; empty when the packages are healthy."""
        (audited, audit), (checked, check) = self.run("audit"), self.run("check")
        lines = [line for line in audit.split("\n") if line.strip()] + ([f"dpkg --audit: {audited}"] if audited else [])
        return lines + ([f"apt-get check: {checked}", *ERROR.findall(check)] if checked else [])

    def space_lacking(self, plan: str) -> str | None:
        """What the plan of `apt-get --print-uris` needs and isn't there; None when there is enough."""
        need, grows = RESERVE + sum(map(int, FETCHED.findall(plan))), GROWTH.search(plan)
        need += int(float(grows[1]) * 1000 ** " kMGT".index(grows[2] or " ")) if grows else 0
        places = ("/var/cache/apt/archives", "/usr", "/var/lib/dpkg")
        free = {place: shutil.disk_usage(self.root + place).free for place in places}
        return f"{need} bytes are needed, free are {free}" if min(free.values()) < need else None

    def installed(self) -> dict[str, str]:
        """Version by package; empty when dpkg doesn't say."""
        found = re.findall(r"^(\S+)/(\S+)/(\S+)$", self.run("installed")[1], re.MULTILINE)
        return {name: version for status, name, version in found if status not in {"not-installed", "config-files"}}


ERROR = re.compile(r"^E: .*$", re.MULTILINE)
FETCHED = re.compile(r"^'[^']*' \S+ (\d+)\b", re.MULTILINE)
GROWTH = re.compile(r"^After this operation, ([\d.]+) ?([kMGT]?)B of additional disk space", re.MULTILINE)
HELD = re.compile(r"^The following (?:packages .* kept back|upgrades .* due to phasing):\n((?: .*\n)+)", re.MULTILINE)
KEPT = re.compile(r"^Configuration file '(.*)'\n(?: ==> .*\n)*? ==> Keeping old config file", re.MULTILINE)
LOGIN = re.compile(r"(?<=://)[^/\s@]*@")
# Where apt is configured to take what nobody signed, by its own rules of names, quoting and stanzas.
_SOURCES = re.compile(r".*/[A-Za-z0-9_:-][A-Za-z0-9_.:-]*\.(list|sources)")
_OPTIONS = {"trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure"}
_SWITCHES = re.compile("(binary::apt-get::)?(apt::get::(allowunauth.*|force-yes)|acquire::allow.*repositories)", re.I)
# Another verifier, sources from the side, sources elsewhere for apt-get alone.
_MOVED = re.compile("(binary::apt-get::)?apt::(key::gpgvcommand|sources::with)|binary::apt-get::(root)?dir.*", re.I)
_TRUE = re.compile(r"\s*\+?(0x0*1|0*1)|yes|true|with|on|enable", re.I)
_FALSE = re.compile(r"\s*[+-]?(0x0*|0+)|no|false|without|off|disable", re.I)
_LINE = re.compile(r'[ \t\r]*deb(?:-src)?[ \t\v]\s*\[((?:"[^"]*"|\[[^\]]*\]|[^"\[\]])*)\]')
_FIELD = re.compile(r"^([^\s:#][^:\n]*?)[ \t]*:(.*(?:\n[ \t\v\f\r].*)*)", re.MULTILINE)


def insecure_config(dump: str) -> list[str]:
    """The keys of `apt-config dump` that switch authentication off."""
    entries = re.findall(r'^(\S+?):* "(.*)";$', dump, re.MULTILINE)
    return [
        key for key, v in entries if (_SWITCHES.fullmatch(key) and _TRUE.fullmatch(v)) or (v and _MOVED.fullmatch(key))
    ]


def insecure_sources(name: str, text: str) -> list[str]:
    """Where authentication is off in one file of sources: `name:N: option`, N is the line, in deb822 the stanza."""
    if name.endswith(".sources"):
        stanzas = re.split(r"\n\r*\n", re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE))
        entries = [[(key.lower(), value.strip()) for key, value in _FIELD.findall(stanza)] for stanza in stanzas]
        entries = [[] if _FALSE.fullmatch(dict(entry).get("enabled", "yes")) else entry for entry in entries]
    else:
        options = map(_LINE.match, text.split("\n"))
        entries = [
            re.findall(r"(\S+?)=(\S*)", unquote(found[1].replace('"', ""))) if found else [] for found in options
        ]
    off = [(n, key) for n, entry in enumerate(entries, 1) for key, v in entry if key in _OPTIONS and _TRUE.fullmatch(v)]
    return [f"{name}:{n}: {key}" for n, key in off]
