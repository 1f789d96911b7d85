"""A Debian for arm64 on this machine: its programs run by QEMU's emulation of the processor, on
this machine's kernel.

    with emulation(), Root.made("bookworm") as root:
        root.run("harmony-agent", "version")

There is no systemd in it and no network but this machine's own. Must not leave the emulation
registered: that is the whole machine's, and goes when the `with` ends, unless it was there before.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.device.image import mirror_sources
from tests.device.storage import REPOSITORY, locked
from tests.device.tools import HarnessError, call

QEMU: Final = "/usr/bin/qemu-aarch64-static"
PACKAGES: Final = (
    "python3",
    "passwd",
    "systemd",
    "dbus-user-session",
    "libpam-systemd",
    "ca-certificates",
)
CACHE: Final = REPOSITORY / ".cache" / "arm64"
_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
_NAME: Final = "harmony-aarch64"
# What an ELF file for a 64-bit ARM processor begins with, and which of these bits count.
_MAGIC: Final = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK: Final = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


def missing() -> list[str]:
    """What this machine lacks, each a sentence; nothing when all is there."""
    lacks = [] if os.geteuid() == 0 else ["cannot make a Debian for arm64: not root"]
    for program in (QEMU, "/usr/bin/mmdebstrap"):
        if shutil.which(program) is None:
            lacks.append(
                f"cannot make a Debian for arm64: {program} not installed; see tests/arm64/apt-packages.txt"
            )
    return lacks


@contextlib.contextmanager
def emulation() -> Iterator[None]:
    """Programs for arm64 can be run."""
    with contextlib.ExitStack() as stack:
        if not (_BINFMT / "register").exists():
            call("mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT))
            stack.callback(call, "umount", str(_BINFMT))
        if not any((_BINFMT / name).exists() for name in ("qemu-aarch64", _NAME)):
            # F: the emulator is opened now, so that it is found from inside of another root.
            (_BINFMT / "register").write_text(
                f":{_NAME}:M::{_MAGIC}:{_MASK}:{QEMU}:F", encoding="ascii"
            )
            stack.callback((_BINFMT / _NAME).write_text, "-1", encoding="ascii")
        yield


def base(suite: str) -> Path:
    """Debian `suite` for arm64, as a tar archive that is made once a week."""
    year, week, _ = datetime.datetime.now(datetime.UTC).isocalendar()
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"{suite}-{year}w{week:02}.tar"
    with locked(CACHE / f"{suite}.lock"):
        if not archive.exists():
            draft = CACHE / f"{suite}.draft.tar"
            sources = mirror_sources(suite)
            argv = [
                "mmdebstrap",
                "--quiet",
                "--arch=arm64",
                "--variant=minbase",
                f"--include={','.join(PACKAGES)}",
            ]
            argv += ["--skip=check/qemu", suite, str(draft), *(["-"] if sources else [])]
            call(*argv, stdin=sources.encode(), timeout=1800)
            draft.rename(archive)
            for old in CACHE.glob(f"{suite}-*.tar"):
                if old != archive:
                    old.unlink()
    return archive


class Root:
    """One such Debian, unpacked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    @contextlib.contextmanager
    def made(cls, suite: str) -> Iterator[Root]:
        """A new one, with /proc and the devices that programs expect; it goes at the end."""
        archive = base(suite)
        with (
            tempfile.TemporaryDirectory(prefix="harmony-arm64-") as name,
            contextlib.ExitStack() as stack,
        ):
            folder = Path(name, "root")
            folder.mkdir()
            call(
                "tar",
                "--extract",
                f"--file={archive}",
                f"--directory={folder}",
                "--numeric-owner",
                timeout=300,
            )
            for kind, place in (("proc", "proc"), ("tmpfs", "run")):
                call("mount", "-t", kind, kind, str(folder / place))
                stack.callback(call, "umount", "--lazy", str(folder / place))
            yield cls(folder)

    def start(self, *argv: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a program as root; its output goes to a file of this machine."""
        with log.open("wb") as output:
            return subprocess.Popen(
                ["chroot", str(self.folder), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT,
            )

    def run(
        self, *argv: str, check: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as root to its end."""
        done = subprocess.run(
            ["chroot", str(self.folder), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=ENVIRONMENT,
            check=False,
        )
        if check and done.returncode != 0:
            raise HarnessError(
                f"cannot run {' '.join(argv)}: {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"
            )
        return done

    def write(self, path: str, text: str) -> None:
        """Write a file, its folders made when missing."""
        target = self.folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
}
