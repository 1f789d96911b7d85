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
from collections.abc import Mapping
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
            [*enter, "env", f"--chdir={folder}", *as_user, "bash", "--noediting", "--norc", "-i"],
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

    def type(self, line: str, timeout: float) -> tuple[int, str]:
        """How the line ended, and all that was shown meanwhile."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        return self._read(line, timeout)

    def _read(self, line: str, timeout: float) -> tuple[int, str]:
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
                if not more and end is None:
                    shown = said.decode(errors="replace")[-2000:]
                    raise AssertionError(
                        f"{line!r} on {self._device.name} didn't end in {timeout:g} s: {shown}"
                    )
        return int(end[1]), said[: end.start()].decode(errors="replace")
