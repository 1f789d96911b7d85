"""Run the commands of the updater, and read the device's files.

COMMANDS is every command that the updater can ever run; all that is ever added to one is the id of
an attempt. No shell. preflight.py and upgrade.py decide what follows from what is seen.
"""

import fcntl
import os
import shlex
import shutil
import struct
import subprocess
import sys

from harmony_updater import apt_output, apt_policy
from harmony_updater.journal import read

# The environment of every command. Nothing of the caller's is added to it, and by `env -i` nothing
# of the service manager's.
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
}
_CLEAN = "/usr/bin/env -i " + " ".join(f"{key}={value}" for key, value in ENVIRONMENT.items())
STATE = "/var/lib/harmony-fleet-updater"
UNSIGNED = f"{STATE}/unsigned-lists"  # names of indexes, and no signature beside them
_HERE = os.path.dirname(os.path.abspath(__file__))
_OVERLAY = shlex.quote(f"{_HERE}/apt.conf")  # read last, above the device's configuration
_BARE = shlex.quote(f"{_HERE}/bare.conf")  # read first, in its stead
_PYTHON = shlex.quote(sys.executable)
_APT_GET = f"/usr/bin/apt-get -c {_OVERLAY} -y -q"
_APT_CONFIG = f"/usr/bin/apt-config -c {_OVERLAY}"
# apt runs in units of its own, without a time limit: what restarts the updater, the agent or dbus
# doesn't end it.
_UNIT = (
    "/usr/bin/systemd-run --quiet --collect"
    " '--property=UnsetEnvironment=LD_AUDIT LD_LIBRARY_PATH LD_PRELOAD GLIBC_TUNABLES'"
)
_UPGRADE = "harmony-updater-apt.service"
COMMANDS = {
    "clock": "/usr/bin/timedatectl show --property=NTPSynchronized --value",
    # What apt makes of the switches of authentication in the device's own configuration.
    "switches": "/usr/bin/apt-config shell "
    + " ".join(f"{key} {key}/b" for key in apt_policy.SWITCHES),
    # apt's options as they count here, and as they would on a device without a configuration.
    "options": f"{_APT_CONFIG} dump",
    "defaults": f"/usr/bin/env APT_CONFIG={_BARE} {_APT_CONFIG} dump",
    # The indexes of all enabled sources; those that are believed unsigned; those verified.
    "indexes": f"{_APT_GET} indextargets -o APT::Get::IndexTargets::ReleaseInfo=false"
    " '--format=$(FILENAME)'",
    "believed": f"{_APT_GET} indextargets -o Dir::State::lists={UNSIGNED}/"
    f" '--format={apt_policy.BELIEVED_FORMAT}'",
    "verified": f"{_APT_GET} indextargets '--format={apt_policy.VERIFIED_FORMAT}'",
    # The indexes that apt chooses packages from.
    "policy": f"/usr/bin/apt-cache -c {_OVERLAY} policy",
    "audit": "/usr/bin/dpkg --audit",
    "check": f"{_APT_GET} -s check",
    "installed": "/usr/bin/dpkg-query -W"
    " '-f=${db:Status-Status}/${Package}/${Architecture}/${Version}\\n'",
    "plan": f"{_APT_GET} -s full-upgrade",
    "archives": f"{_APT_GET} --print-uris full-upgrade",
    "update": f"{_UNIT} --wait --pipe {_CLEAN} {_APT_GET} update",
    "spawn": f"{_UNIT} --property=Type=exec --property=KillMode=process --unit={_UPGRADE}"
    f" {_CLEAN} {_PYTHON} -I -m harmony_updater run-apt",
    "upgrade": f"{_APT_GET} full-upgrade",
    "state": f"/usr/bin/systemctl show --property=ActiveState --value {_UPGRADE}",
    "reboot": "/usr/bin/systemctl reboot",
}
# In /var: who holds one of these works on packages.
LOCKS = (
    "lib/dpkg/lock-frontend",
    "lib/dpkg/lock",
    "lib/apt/lists/lock",
    "cache/apt/archives/lock",
)  # in /var
# Bytes that stay free besides what apt plans: dpkg unpacks beside the old files.
RESERVE = 64 * 1024 * 1024
# Seconds for any command but `update`, which takes as long as the network does.
PATIENCE = 300.0
NAME_LIMIT = 255  # bytes


class Host:
    """The device: its files below `root` (`/`, but in tests) and the commands of COMMANDS."""

    def __init__(self, root: str = "") -> None:
        self.root = root

    def start(self, name: str, *attempt: str) -> subprocess.Popen[bytes]:
        """Start a command; its output is to be read."""
        program, *arguments = shlex.split(COMMANDS[name])
        return subprocess.Popen(
            [self.root + program, *arguments, *attempt],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=ENVIRONMENT,
            cwd="/",
        )

    def run(self, name: str, *attempt: str) -> tuple[int, str]:
        """Run a command: its exit code and output; OSError when it couldn't be run to its end."""
        with self.start(name, *attempt) as process:
            try:
                text, _ = process.communicate(timeout=None if name == "update" else PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise TimeoutError(f"{name} gave no answer within {PATIENCE:g} s") from None
        if process.returncode < 0:  # as when the updater is being stopped: that is no answer
            raise InterruptedError(f"{name} was ended by signal {-process.returncode}")
        return process.returncode, apt_output.without_passwords(text.decode(errors="replace"))

    def boot_id(self) -> str | None:
        """Read the kernel's id of this boot; None when it can't be read."""
        try:
            return read(f"{self.root}/proc/sys/kernel/random/boot_id") or None
        except OSError:
            return None

    def clock_synchronised(self) -> bool:
        """Ask timesyncd, then the kernel, whether a time service has set the clock in this boot."""
        by_timesyncd = os.path.exists(f"{self.root}/run/systemd/timesync/synchronized")
        return by_timesyncd or self.run("clock") == (0, "yes\n")

    def reboot_required(self) -> bool:
        """Tell whether a package asked for a reboot since this boot."""
        return os.path.exists(f"{self.root}/run/reboot-required")

    def lock_holder(self) -> str | None:
        """Name who holds a lock of dpkg or apt; None when nobody does."""
        for path in (f"{self.root}/var/{lock}" for lock in LOCKS):
            if os.path.exists(path) and (pid := _locked_by(path)):
                return f"{path} is held by pid {pid} ({read(f'/proc/{pid}/comm')})"
        return None

    def unhealthy(self) -> list[str]:
        """List what dpkg's audit and apt's check complain of; empty when all are healthy."""
        audited, audit = self.run("audit")
        checked, check = self.run("check")
        complaints = [line for line in audit.split("\n") if line.strip()]
        if audited:
            complaints.append(f"dpkg --audit: {audited}")
        if checked:
            complaints += [f"apt-get check: {checked}", *apt_output.errors(check)]
        return complaints

    def lay_out_unsigned(self, indexes: list[str]) -> None:
        """Put an empty file of each index's name into UNSIGNED, where no signature ever is."""
        folder = self.root + UNSIGNED
        os.makedirs(folder, exist_ok=True)
        for name in dict.fromkeys(map(os.path.basename, indexes)):
            if len(os.fsencode(name)) <= NAME_LIMIT:  # one that is missing is noticed
                with open(f"{folder}/{name}", "wb"):
                    pass

    def space_lacking(self, archives: str) -> str | None:
        """Say what the plan needs and isn't there; None when there is enough."""
        need = RESERVE + apt_output.bytes_needed(archives)
        places = ("/var/cache/apt/archives", "/usr", "/var/lib/dpkg")
        free = {place: shutil.disk_usage(self.root + place).free for place in places}
        return f"{need} bytes are needed, free are {free}" if min(free.values()) < need else None

    def installed(self) -> dict[str, str]:
        """Read the version of each package; empty when dpkg doesn't say."""
        return apt_output.installed(self.run("installed")[1])


def _locked_by(path: str) -> int:
    """Ask the kernel which process has locked a file as dpkg and apt do; 0 when none has."""
    flock = "hhqqi"  # struct flock: type, whence, start, length, pid
    with open(path, "rb") as file:
        asked = struct.pack(flock, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(flock, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else int(pid)
