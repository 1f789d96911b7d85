"""A disposable virtual machine: Debian with a kernel of its own, on a processor that QEMU emulates.

It is used as a device is (tests/device): runs commands, gives up its files and its journal,
reboots, loses its power. QEMU runs in a lan's network namespace, so that what the machine reaches
is what listens there and nothing else. Must not import pytest.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.device.agent import Agent
from tests.device.claims import Claim, Run, kill_cgroup
from tests.device.commands import CommandError, Result
from tests.device.files import Files
from tests.device.lab import Lab, ServedLan
from tests.device.machine import journal_terms
from tests.device.nspawn import start_in_cgroup
from tests.device.prepare import UID, USER, users
from tests.device.tools import HarnessError
from tests.vm.guest import Guest, GuestGone
from tests.vm.image import SUITE, VmImages

if TYPE_CHECKING:
    from tests.device.machine import Device

QEMU = "qemu-system-x86_64"
_CLOCK = Path(__file__).with_name("clock.py")
_RESTARTS, _POWERS_OFF = (
    "reboot: Restarting system",
    "reboot: Power down",
)  # the kernel's last words
_KERNEL_LINE = "root=/dev/vda rw console=ttyS0 quiet mitigations=off audit=0 systemd.show_status=1"


class Vm(Files):
    """One virtual machine. Everything but boot() needs it to be running."""

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        disk: Path,
        root: Path,
        lan: ServedLan,
        folder: Path,
        claims: Sequence[Claim],
        parameters: str = "",
    ) -> None:
        """`parameters` are added to the kernel's own, as a board's cmdline.txt does."""
        self.name, self.root, self._users = name, root, users(root)
        self._parameters = f"{_KERNEL_LINE} {parameters}".strip()
        self._run, self._lan, self._disk = run, lan, disk
        self.console, self._qemu_log, self._port = (
            folder / f"{name}.{end}" for end in ("console", "qemu", "port")
        )
        self._groups = [f"{name}-qemu", f"{name}-clock"]
        self._claims = [*claims, *(run.claim("cgroup", group) for group in self._groups)]
        self._process: subprocess.Popen[bytes] | None = None
        self._clock: subprocess.Popen[bytes] | None = None
        self._guest: Guest | None = None

    # -- power
    # ---------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether QEMU has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def boot(self, timeout: float = 300) -> "Vm":
        """Power on, and return when the system and fleet-agent's own manager are up."""
        self.power_on()
        try:
            self._await_boot(time.monotonic() + timeout)
        except BaseException:
            self.kill()
            raise
        return self

    def power_on(self) -> None:
        """Start QEMU, and a clock for the machine beside it; return at once."""
        if self.running:
            raise HarnessError(f"cannot boot {self.name}: it is running")
        self._port.unlink(missing_ok=True)
        if self._clock is None:
            argv = self._lan.enter(sys.executable, "-I", "-S", str(_CLOCK))
            self._clock = start_in_cgroup(self._groups[1], argv, env=None, output=self._qemu_log)
        argv = self._lan.enter(*self._command())
        self._process = start_in_cgroup(self._groups[0], argv, env=None, output=self._qemu_log)

    def _command(self) -> list[str]:
        [kernel], [initrd] = (
            list((self.root / "boot").glob(pattern)) for pattern in ("vmlinuz-*", "initrd.img-*")
        )
        return [
            *(
                QEMU,
                "-accel",
                os.environ.get("HARMONY_VM_ACCEL", "tcg"),
                "-machine",
                "q35",
                "-cpu",
                "max",
            ),
            # One processor: emulated ones that wait for one another starve where the host is busy.
            # At a reboot QEMU ends and is started again: a reset leaves it with what it had
            # translated, and takes twice as long.
            *("-smp", "1", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-kernel", str(kernel), "-initrd", str(initrd), "-append", self._parameters),
            *("-drive", f"file={self._disk},format=raw,if=virtio,cache=writeback,discard=unmap"),
            *(
                "-chardev",
                f"file,id=console,path={self.console},append=on",
                "-serial",
                "chardev:console",
            ),
            *(
                "-device",
                "virtio-serial-pci",
                "-chardev",
                f"socket,id=guest,path={self._port},server=on,wait=off",
            ),
            *(
                "-device",
                "virtserialport,chardev=guest,name=org.qemu.guest_agent.0",
                "-device",
                "virtio-rng-pci",
            ),
            *("-netdev", "user,id=lan,ipv6=off", "-device", "virtio-net-pci,netdev=lan"),
        ]

    def _await_boot(self, deadline: float) -> None:
        """Wait for the guest agent, then for the system and for fleet-agent's manager."""
        while True:
            try:
                self._connect(min(2.0, max(deadline - time.monotonic(), 0.1)))
            except GuestGone as error:
                if not self.running or time.monotonic() > deadline:
                    raise HarnessError(
                        f"cannot see {self.name} boot: {error}: {self.last_words()}"
                    ) from error
                time.sleep(0.1)
            else:
                break
        self.run(
            ["systemctl", "is-system-running", "--wait"],
            check=False,
            timeout=deadline - time.monotonic(),
        )
        bus, left = f"/run/user/{UID}/bus", deadline - time.monotonic()
        self.until(f"the manager of {USER} is up", ["test", "-S", bus], timeout=left)
        self.run(["systemctl", "--user", "is-system-running", "--wait"], user=USER, check=False)

    def _connect(self, timeout: float) -> None:
        if self._guest is None:
            self._guest = Guest(self._port)
        self._guest.sync(timeout)

    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def reboot(self, timeout: float = 300) -> "Vm":
        """Ask it to reboot, and return when it is up again."""
        self.run(["systemctl", "--no-block", "reboot"])
        return self.await_reboot(timeout)

    def await_reboot(self, timeout: float = 300) -> "Vm":
        """Wait until it reboots for a reason of its own, and return when it is up again.

        What was in its memory is gone with the QEMU that ended: it is a cold reboot, as of a board
        that is reset.
        """
        deadline = time.monotonic() + timeout
        self._await_end(_RESTARTS, timeout)
        return self.boot(max(deadline - time.monotonic(), 1))

    def stop(self, timeout: float = 120) -> None:
        """Shut down in order. boot() starts it again."""
        self.run(["systemctl", "--no-block", "poweroff"])
        self._await_end(_POWERS_OFF, timeout)

    def _await_end(self, word: str, timeout: float) -> None:
        """Wait until the kernel has ended what it does, and see in its last words that it was
        `word`.
        """
        if self._process is None:
            raise HarnessError(f"cannot wait for {self.name}: it was never started")
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise HarnessError(
                f"cannot see {self.name} end within {timeout:g} s: {self.last_words()}"
            ) from error
        self._hang_up()
        if code != 0 or word not in self.last_words()[-300:]:
            raise HarnessError(
                f"cannot see {self.name} end with {word!r}: exit code {code}: {self.last_words()}"
            )

    def kill(self) -> None:
        """Cut the power: what the machine had not synced is lost. boot() starts it again."""
        self._end(0, self._process)
        self._hang_up()

    def _end(self, group: int, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None:
            process.kill()  # it may not have joined its group yet
        kill_cgroup(self._groups[group])
        if process is not None:
            process.wait(10)

    def _hang_up(self) -> None:
        if self._guest is not None:
            self._guest.close()
        self._guest = None

    def close(self) -> None:
        """End it and remove all that was made for it. Does nothing the second time."""
        self.kill()
        self._end(1, self._clock)
        for claim in reversed(self._claims):
            self._run.free(claim)

    def last_words(self) -> str:
        """The end of what QEMU and the machine's console said."""
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in (self._qemu_log, self.console)
                 if path.exists())  # fmt: skip
        return "\n".join(texts)[-3000:].strip() or "it said nothing"

    # -- commands
    # ------------------------------------------------------------------------------------------------

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        input: bytes | str | None = None,  # noqa: A002 - as a device's
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = True,
    ) -> Result:
        """Run a command in the machine, as root or as `user`, and return when it has ended; as a
        device's run().
        """
        if self._guest is None:
            raise HarnessError(f"cannot reach {self.name}: it isn't running; boot it first")
        full: list[str] = []
        if user is not None:
            uid, gid, _ = self._users[user]
            full = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--"]
        given = input.encode() if isinstance(input, str) else input
        result = self._guest.run(
            [*full, *argv],
            given=given,
            env={**self.environment(user), **(env or {})},
            timeout=timeout,
        )
        if check and result.rc != 0:
            said = (result.stderr or result.stdout).strip()[-2000:]
            raise CommandError(f"{' '.join(argv)} on {self.name} ended with {result.rc}: {said}")
        return result

    def until(
        self,
        what: str,
        argv: Sequence[str],
        *,
        says: str = "",
        user: str | None = None,
        timeout: float = 60,
    ) -> Result:
        """Run a command again and again until it ends with 0 and has `says` in its output; `what`
        names that.
        """
        deadline = time.monotonic() + timeout
        while (
            result := self.run(argv, user=user, check=False)
        ).rc != 0 or says not in result.stdout:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"cannot see within {timeout:g} s that {what}: {result.stdout}{result.stderr}"
                )
            time.sleep(0.5)
        return result

    def _look(self, argv: Sequence[str], *, check: bool = True) -> Result:
        return self.run(argv, check=check)

    @property
    def agent(self) -> Agent:
        """The agent's unit on this machine."""
        return Agent(cast("Device", self))  # it uses what both have

    def journal(
        self, *, unit: str | None = None, user: bool = False, boot: str | None = None
    ) -> list[dict[str, Any]]:
        """The journal's entries, oldest first, with all their fields, as a device's."""
        self.run(["journalctl", "--sync"])
        argv = [
            "journalctl",
            "--output=json",
            "--all",
            "--quiet",
            "--no-pager",
            *journal_terms(unit, user, boot),
        ]
        return [json.loads(line) for line in self.run(argv).stdout.splitlines()]

    def messages(self, *, unit: str | None = None, user: bool = False) -> list[str]:
        """The journal's messages alone, oldest first."""
        return [str(entry.get("MESSAGE", "")) for entry in self.journal(unit=unit, user=user)]


class VmLab(Lab):
    """A Lab that makes virtual machines too."""

    def __enter__(self) -> "VmLab":
        super().__enter__()
        self.images = VmImages(self._pool, self._run)
        return self

    def vm(self, lan: ServedLan, *, boot: bool = True, parameters: str = "") -> Vm:
        """A new machine whose network is `lan`, where it reaches the nats-server as `nats`; its
        kernel has these `parameters` besides.
        """
        name = self._run.unique("vm")
        disk, _, claims = self._pool.disk(self._run, self.images.disk(SUITE), name)
        root = self.images.base(SUITE)
        made = Vm(
            self._run,
            name,
            disk=disk,
            root=root,
            lan=lan,
            folder=self.folder,
            claims=claims,
            parameters=parameters,
        )
        self._stack.callback(made.close)
        return made.boot() if boot else made
