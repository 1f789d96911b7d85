"""A lan whose nats-server is as `harmony server init` makes it, and the command `harmony` with its
authority.

Must not know what a device does with its bundle.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest

from harmony_fleet.authority import setup
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.cli import main
from harmony_fleet.manifests import signing_keys
from tests.device.lab import ServedLan
from tests.device.network import NATS_HOST


class Authority:
    """The operator's home. Commands run in this process, one at a time."""

    def __init__(self, folder: Path, lan: ServedLan) -> None:
        self.folder, self.home, self._lan = folder, folder / "home", lan
        self.home.mkdir(parents=True)
        setup.init(self.home, setup.checked(ServerRequest("fleet", folder / "nats", (NATS_HOST,))))
        signing_keys.new(self.home)
        lan.nats.stop()
        shutil.copyfile(folder / "nats" / "server.conf", lan.nats.folder / "nats.conf")
        lan.nats.start()
        place = self.home / setup.CONTEXT
        url = f"tls://127.0.0.1:{lan.nats.host_port}"
        place.write_text(
            re.sub(r"^server = .*$", f'server = ["{url}"]', place.read_text(), flags=re.MULTILINE)
        )
        self("server", "push")

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run `harmony`; all that it said."""
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HARMONY_HOME", str(self.home))
            patch.setenv("COLUMNS", "")
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                ended = main(words)
        assert ended == code, out.getvalue()
        return out.getvalue()

    def bundle(self, device: str, verb: str = "enroll", *words: str) -> Path:
        """Where the bundle that the command wrote is."""
        path = self.folder / f"{device}.{verb}"
        self("device", verb, device, "-o", str(path), *words)
        return path
