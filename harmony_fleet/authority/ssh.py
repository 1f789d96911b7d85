"""The machine's own ssh and scp: argument lists, nothing asked, every word for the other end
quoted.

ssh hands one string to a shell of the other end, so that string is made by `shlex.join` of words,
and by nothing else. Asks for no password: a key is what it works with.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harmony_fleet.errors import DeviceFailed, InvalidInput, Unreachable

_TARGET: Final = re.compile(r"([A-Za-z_][A-Za-z0-9._-]*@)?([A-Za-z0-9][A-Za-z0-9.-]*)")
_SSH_FAILED: Final = 255
_MOST: Final = 2000
"""Characters of what the other end said, of which the last are told."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A login: ``pi@host``. `options` are ssh's own, as ``-p 2222`` or ``-i key``."""

    target: str
    options: tuple[str, ...] = ()
    root: bool = False

    @classmethod
    def of(cls, target: str, port: int | None, identity: Path | None) -> Remote:
        """Raises InvalidInput where `target` isn't ``[user@]host``."""
        if not _TARGET.fullmatch(target):
            raise InvalidInput("InvalidTarget", "cannot use this as a login", "write it as pi@host")
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15"]
        options += ["-o", f"Port={port}"] if port else []
        options += (
            ["-o", f"IdentityFile={identity}", "-o", "IdentitiesOnly=yes"] if identity else []
        )
        return cls(target, tuple(options), target.startswith("root@"))

    def run(self, words: Sequence[str], seconds: float, what: str, *, as_root: bool = False) -> str:
        """Run a command, and return its output. Raises Unreachable, DeviceFailed."""
        sudo = ["sudo", "--non-interactive", "--"] if as_root and not self.root else []
        return self._call(
            ["ssh", *self.options, "--", self.target, shlex.join([*sudo, *words])], seconds, what
        )

    def copy(self, files: Sequence[Path], folder: str, seconds: float) -> None:
        """Put `files` into a folder of the other end. Raises Unreachable, DeviceFailed."""
        place = f"{self.target}:{folder}/"
        self._call(
            ["scp", "-q", *self.options, "--", *map(str, files), place], seconds, "copy files"
        )

    def _call(self, argv: Sequence[str], seconds: float, what: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603  # fixed programs, and words that were checked
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
            )
        except FileNotFoundError:
            raise InvalidInput(
                "NoSsh", f"cannot {what}: there is no {argv[0]} here", "install openssh-client"
            ) from None
        except subprocess.TimeoutExpired:
            raise Unreachable(
                "SshTimeout",
                f"cannot {what} on {self.target}: it took more than {seconds:g} s",
                "look at the device",
            ) from None
        said = done.stderr.decode("utf-8", "replace").strip()[-_MOST:]
        if done.returncode == _SSH_FAILED:
            raise Unreachable(
                "SshFailed",
                f"cannot {what}: ssh doesn't reach {self.target}: {said or 'it says nothing'}",
                f"try: ssh {self.target} true",
            )
        if done.returncode != 0:
            raise DeviceFailed(
                "SetupFailed",
                f"cannot {what} on {self.target}: {said or 'it says nothing'}",
                _hint(said),
            )
        return done.stdout.decode("utf-8", "replace")


def _hint(said: str) -> str:
    if "sudo" in said:
        return "let that user use sudo without a password, or log in as root"
    if "lock" in said:
        return "another program uses apt there: wait for it, then run this again"
    return "mend it there, then run this again: it may be repeated"
