"""`harmony device setup` where the other end fails: the first error is told, and that the bundle is
still there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harmony_fleet.authority import device_setup
from harmony_fleet.authority.device_setup import Setup
from harmony_fleet.authority.ssh import Remote
from harmony_fleet.commands.common import note
from harmony_fleet.context import Context
from harmony_fleet.errors import Unreachable
from scores.canonical import canonical
from tests.unit.test_join import bundle

PLACE = "/tmp/harmony-setup.12345678"


class Lost(Remote):
    """Gone after the folder was made."""

    def run(
        self, words: Sequence[str], _seconds: float, what: str, *, as_root: bool = False
    ) -> str:
        if words[0] == "mktemp":
            return f"{PLACE}\n"
        raise Unreachable("SshFailed", f"cannot {what} {'as root' if as_root else ''}", "")

    def copy(self, files: Sequence[Path], folder: str, _seconds: float) -> None:
        assert (folder, len(files)) == (PLACE, 2)


def test_the_first_error_is_told_and_that_the_bundle_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def none(_context: Context, _device: str) -> int:
        return 0

    monkeypatch.setattr(device_setup, "_beat", none)
    path = tmp_path / "pi-01.bundle"
    path.write_bytes(canonical(bundle().wire()))
    wanted = Setup(Lost("pi@pi-01"), path, [tmp_path / "agent.deb"], tmp_path, 1.0)
    with pytest.raises(Unreachable, match="install the packages"):
        device_setup.setup(Context((), None, None, tmp_path), wanted, note)
    assert f"ssh pi@pi-01 rm -r {PLACE}" in capsys.readouterr().err
