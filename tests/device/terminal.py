"""A login on a device at which lines are typed as a person types them, one after the other.

What a line sets (a variable, a folder) holds for the next. Must not change a line.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from tests.device.machine import Device

_END = re.compile(rb"\x1e(\d+)\x1e\n")
"""Shown by the shell when it is ready for the next line: how the one before ended."""


class Terminal:
    """A shell of `user` on a device, in a folder. A context manager."""

    def __init__(
        self, device: Device, user: str, folder: str, env: Mapping[str, str] | None = None
    ) -> None:
        self._device = device
        enter = ["nsenter", "--target", str(device.leader), "--all", "--"]
        as_user = ["runuser", "--user", user, "--"] if user != "root" else []
        prompt = {"PS1": "", "PROMPT_COMMAND": r'printf "\036%d\036\n" "$?"'}
        self._process = subprocess.Popen(
            # Where the suite itself runs in the background, it ignores SIGINT, and so would these.
            [
                *enter,
                "env",
                "--default-signal=INT",
                f"--chdir={folder}",
                *as_user,
                "bash",
                "--noediting",
                "--norc",
                "-i",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**device.environment(user), **prompt, **(env or {})},
            start_new_session=True,
        )
        self._read("", 60)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def type(
        self, line: str, timeout: float, interrupt: Callable[[str], bool] | None = None
    ) -> tuple[int, str]:
        """How the line ended, and all that was shown meanwhile.

        Ctrl-C follows once, when `interrupt` says yes to what was shown.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        return self._read(line, timeout, interrupt)

    def _read(
        self, line: str, timeout: float, interrupt: Callable[[str], bool] | None = None
    ) -> tuple[int, str]:
        assert self._process.stdout is not None
        said, until, end = b"", time.monotonic() + timeout, None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while end is None:
                left = until - time.monotonic()
                more = (
                    os.read(self._process.stdout.fileno(), 65536)
                    if left > 0 and selector.select(left)
                    else b""
                )
                said += more
                end = _END.search(said)
                if interrupt is not None and interrupt(said.decode(errors="replace")):
                    _interrupt(self._process.pid)
                    interrupt = None
                if not more and end is None:
                    shown = said.decode(errors="replace")[-2000:]
                    raise AssertionError(
                        f"{line!r} on {self._device.name} didn't end in {timeout:g} s: {shown}"
                    )
        return int(end[1]), said[: end.start()].decode(errors="replace")


def _interrupt(terminal: int) -> None:
    """Send SIGINT to what the shell runs; a pipe has no Ctrl-C."""
    shell = terminal
    while Path(f"/proc/{shell}/comm").read_text() != "bash\n":
        [shell] = _children(shell)
    for pid in _children(shell):
        os.kill(pid, signal.SIGINT)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
