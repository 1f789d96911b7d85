"""Talks to the guest agent in a virtual machine, over a virtio port: no network, and it answers
early in the boot.

The guest agent is Debian's own, qemu-guest-agent. Must not know how the machine was started, nor
what runs in it.
"""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.device.commands import CommandError, Result
from tests.device.tools import HarnessError

_POLL, _SLOWEST_POLL = (
    0.02,
    0.5,
)  # seconds between two questions whether a command has ended; each costs the guest time
_SYNC = b"\xff"  # starts the guest agent's parser anew, and stands before its answer to guest-sync-delimited


class GuestGone(HarnessError):
    """The guest agent doesn't answer: the machine boots, reboots, hangs, or is off."""


class GuestRefused(HarnessError):
    """The guest agent answered with an error."""


class Guest:
    """One connection to the guest agent. Not for several threads."""

    def __init__(self, path: Path) -> None:
        self._path, self._socket, self._rest = path, socket.socket(socket.AF_UNIX), b""
        self._number = 0
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise GuestGone(f"cannot reach the guest agent at {path}: {error}") from error

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def sync(self, timeout: float) -> None:
        """Return when the guest agent answers to what is asked now, and not to what was asked
        before.
        """
        self._number += 1
        ask = {"execute": "guest-sync-delimited", "arguments": {"id": self._number}}
        deadline = time.monotonic() + timeout
        self._send(_SYNC + json.dumps(ask).encode() + b"\n", deadline)
        while True:
            line = self._line(deadline).rpartition(_SYNC)[2]
            with contextlib.suppress(ValueError):
                if json.loads(line) == {"return": self._number}:
                    return

    def call(self, command: str, *, timeout: float = 20, **arguments: Any) -> Any:
        """One command of the guest agent's own protocol; its answer."""
        deadline = time.monotonic() + timeout
        self._send(
            json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n", deadline
        )
        answer = json.loads(self._line(deadline))
        if "error" in answer:
            raise GuestRefused(f"cannot do {command} in the guest: {answer['error'].get('desc')}")
        return answer["return"]

    def run(
        self, argv: Sequence[str], *, given: bytes | None, env: Mapping[str, str], timeout: float
    ) -> Result:  # fmt: skip
        """Run a command to its end. After `timeout` seconds it is killed and CommandError
        raised.
        """
        asked: dict[str, Any] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        asked["env"] = [f"{key}={value}" for key, value in env.items()]
        if given is not None:
            asked["input-data"] = base64.b64encode(given).decode()
        try:
            pid = self.call("guest-exec", timeout=timeout, **asked)["pid"]
        except GuestRefused as error:
            return Result(127, b"", str(error).encode())
        deadline = time.monotonic() + timeout
        killed, poll = False, _POLL
        while not (seen := self.call("guest-exec-status", pid=pid))["exited"]:
            if time.monotonic() > deadline:
                if killed:
                    raise GuestGone(
                        f"cannot end {' '.join(argv)} in the guest: it was killed and is still there"
                    )
                self.call("guest-exec", path="kill", arg=["-KILL", str(pid)])
                deadline, killed = deadline + 10, True
            time.sleep(poll)
            poll = min(poll * 1.2, _SLOWEST_POLL)
        out, err = (base64.b64decode(seen.get(name, "")) for name in ("out-data", "err-data"))
        if killed:
            said = (err or out).decode(errors="replace").strip()[-1000:]
            raise CommandError(f"{' '.join(argv)} had not ended after {timeout:g} s: {said}")
        return Result(seen["exitcode"] if "exitcode" in seen else 128 + seen["signal"], out, err)

    def _send(self, data: bytes, deadline: float) -> None:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise GuestGone(f"cannot ask the guest agent: {error}") from error

    def _line(self, deadline: float) -> bytes:
        while b"\n" not in self._rest:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                more = self._socket.recv(1 << 20)
            except OSError as error:
                raise GuestGone(f"cannot hear the guest agent: {error}") from error
            if not more:
                raise GuestGone("cannot hear the guest agent: the machine is off")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line
