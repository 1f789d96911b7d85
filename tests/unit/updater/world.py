"""A device in a directory: the programs that the updater runs are one small script, its state and
its log are files.

Only for what a real device can't show in seconds: a crash at each of its points. tests/device has
the real programs.
"""

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

from harmony_updater.apt_policy import BELIEVED_FORMAT, SWITCHES, VERIFIED_FORMAT
from harmony_updater.host import COMMANDS, UNSIGNED, Host
from harmony_updater.protocol import UpgradeRequest
from harmony_updater.upgrade import Settings, Updater

ATTEMPT = "attempt-1"
REPOSITORY = "http://deb.test/"
LATER = "2999-01-01T00:00:00Z"
LONG_AGO = "2020-01-01T00:00:00Z"

_TOOL = r"""#!/bin/sh
root=ROOT; fake=$root/fake; name=${0##*/}
for last in "$@"; do :; done
say() { cat "$fake/$1" 2>/dev/null || :; }
rc() { cat "$fake/$1" 2>/dev/null || echo 0; }
echo "$name $last" >>"$fake/calls"
case "$name $last" in
"timedatectl --value") say clock ;;
"apt-config dump") say config ;;
"env dump") say defaults ;;
"apt-config "*/b)
  for key in SWITCHES; do echo "$key='$([ "$(say off)" = "$key" ] && echo true || echo false)'"; done ;;
'apt-get --format=$(FILENAME)') say indexes; exit $(rc indexes-rc) ;;
'apt-get --format=$(TRUSTED) $(ALLOW'*) say believed ;;
'apt-get --format=$(TRUSTED) $(REPO'*) say verified ;;
"apt-cache policy") say policy ;;
"dpkg --audit") say audit ;;
"dpkg-query"*) say packages ;;
"apt-get check") say check; exit $(rc check-rc) ;;
"apt-get update") say update; exit $(rc update-rc) ;;
"systemd-run update") "$root/usr/bin/apt-get" update; exit $? ;;
"apt-get full-upgrade")
  case " $* " in *" -s "*) say plan; exit $(rc plan-rc) ;; *" --print-uris "*) say archives; exit ;; esac
  echo UPGRADE >>"$fake/calls"
  grep -q '"phase":"applying"' "$root/state/system-upgrades/"*.json || echo "NOT APPLYING" >>"$fake/calls"
  sleep 0.05
  [ -e "$fake/after" ] && cp "$fake/after" "$fake/packages"
  [ -e "$fake/audit-after" ] && cp "$fake/audit-after" "$fake/audit"
  say output; exit $(rc upgrade-rc) ;;
"systemd-run"*)
  [ -e "$fake/no-units" ] && exit 1
  [ -e "$fake/unit" ] && exit 1
  echo "$last" >"$fake/unit.asked" && mv "$fake/unit.asked" "$fake/unit"
  while [ -e "$fake/unit" ] && [ ! -e "$fake/unit.runs" ]; do sleep 0.005; done ;;
"systemctl harmony-updater-apt.service") if [ -e "$fake/unit" ]; then echo active; else echo inactive; fi ;;
"systemctl reboot")
  grep -q '"phase":"rebooting"' "$root/state/system-upgrades/"*.json || echo "NOT REBOOTING" >>"$fake/calls"
  [ -e "$fake/reboots" ] || exit 0
  cat /proc/sys/kernel/random/uuid >"$fake/next" && mv "$fake/next" "$root/proc/sys/kernel/random/boot_id"
  kill -9 0 ;;
*) echo "unknown $name $*" >>"$fake/calls"; exit 99 ;;
esac
"""

_LOCKS: dict[Path, int] = {}  # of the last updater on each device, in this process


class World:
    """`root` is where the device lies."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root, self.fake, self.state = root, root / "fake", root / "state"
        self.settings = Settings(device_id="pi-01", **settings)

    def make(self) -> "World":
        """Lay it out: healthy, synchronised, one package to upgrade."""
        folders = [
            "usr/bin",
            "fake",
            "proc/sys/kernel/random",
            "etc/apt/sources.list.d",
            "var/lib/dpkg",
            "run",
        ]
        for folder in [*folders, "var/lib/apt/lists", "var/cache/apt/archives", "state"]:
            (self.root / folder).mkdir(parents=True)
        tool = self.fake / "tool"
        tool.write_text(
            _TOOL.replace("ROOT", str(self.root)).replace("SWITCHES", " ".join(SWITCHES))
        )
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        for command in COMMANDS.values():
            program = self.root / command.split()[0].lstrip("/")
            if not program.exists():
                program.symlink_to(tool)
        (self.root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        self.set(clock="yes\n", calls="", reboots="")
        self.set(packages="installed/demo/all/1.0\ninstalled/gone/all/0.1\n")
        self.set(after="installed/demo/all/2.0\ninstalled/new/all/0.5\n")
        self.set(
            plan="Remv gone [0.1]\nInst demo [1.0] (2.0 Debian [all])\nInst new (0.5 Debian [all])\n"
        )
        self.set(archives=f"'{REPOSITORY}pool/demo_2.0.deb' demo_2.0.deb 7 SHA256:0\n")
        self.index()
        return self

    def set(self, **files: str) -> None:
        """Write what the programs say."""
        for name, text in files.items():
            (self.fake / name.replace("_", "-")).write_text(text)

    def unset(self, *names: str) -> None:
        """Take it away."""
        for name in names:
            (self.fake / name).unlink()

    def index(self, believed: str = "no", verified: str = "yes") -> None:
        """Let apt have one index, and say of it whether it believes and whether it has verified
        it.
        """
        name = "deb.test_Packages"
        values = {
            "$(TRUSTED)": believed,
            "$(FILENAME)": f"{UNSIGNED}/{name}",
            "$(SOURCESENTRY)": "/etc/apt/sources.list:1",
        }
        self.set(
            indexes=f"/var/lib/apt/lists/{name}\n", believed=f"{_filled(BELIEVED_FORMAT, values)}\n"
        )
        values = {
            "$(TRUSTED)": verified,
            "$(REPO_URI)": REPOSITORY,
            "$(DESCRIPTION)": f"{REPOSITORY} main Packages",
        }
        self.set(
            verified=f"{_filled(VERIFIED_FORMAT, values)}\n",
            policy=f"Package files:\n 100 /var/lib/dpkg/status\n 500 {REPOSITORY} main Packages\n",
        )

    def boot(self, boot_id: str) -> None:
        """Let another boot have begun."""
        (self.root / "proc/sys/kernel/random/boot_id").write_text(boot_id + "\n")

    def updater(self, poll: float = 0.01) -> Updater:
        """The updater of this device, as after a start: the one before it has ended, and its kernel
        lock with it.
        """
        if self.root in _LOCKS:
            os.close(_LOCKS.pop(self.root))
        made = Updater(self.settings, str(self.state), Host(str(self.root)), poll)
        _LOCKS[self.root] = made.lock._file
        return made

    def record(self, attempt: str = ATTEMPT) -> dict[str, Any]:
        """The attempt's journal as it stands on disk."""
        path = self.state / "system-upgrades" / f"{attempt}.json"
        return dict(json.loads(path.read_bytes())) if path.exists() else {}

    def had(
        self, attempt: str, phase: str = "failed", expires: str = LONG_AGO, **more: Any
    ) -> None:
        """Let there have been an attempt, with its log."""
        folder = self.state / "system-upgrades"
        folder.mkdir(exist_ok=True)
        record = {
            **request(attempt, expires).model_dump(),
            "phase": phase,
            "startedAt": LONG_AGO,
            "updatedAt": LONG_AGO,
            **more,
        }
        (folder / f"{attempt}.json").write_text(json.dumps(record))
        for ending in ("log", "log.1", "exit"):
            (folder / f"{attempt}.{ending}").write_text("0")

    def calls(self, what: str) -> int:
        """How often a program was called so."""
        return (self.fake / "calls").read_text().splitlines().count(what)

    def upgraded(self) -> None:
        """Let the packages be as the plan has them."""
        self.set(packages=(self.fake / "after").read_text())

    def note(self, code: int, attempt: str = ATTEMPT) -> None:
        """Let apt have ended; when it ended well, it has done what it planned."""
        if code == 0:
            self.upgraded()
        (self.state / "system-upgrades" / f"{attempt}.exit").write_text(str(code))

    def holder(self) -> str:
        """Who holds the mutation lock."""
        path = self.state / "mutation.holder"
        return path.read_text() if path.exists() else ""


def request(
    attempt: str = ATTEMPT, expires: str = LATER, run: str = "run-1", device: str = "pi-01"
) -> UpgradeRequest:
    """A request as the agent makes it."""
    return UpgradeRequest(attemptId=attempt, runUid=run, deviceId=device, expiresAt=expires)


def _filled(text: str, values: dict[str, str]) -> str:
    """Put values into a format of apt's."""
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def eventually(done: Any, seconds: float = 20) -> None:
    """Wait until `done()`, or fail."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process runs and isn't a zombie."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
            and os.getpgid(pid) >= 0
        )
    except (FileNotFoundError, ProcessLookupError):
        return False
