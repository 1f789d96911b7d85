"""The composition root: what DeviceInfo says while a manager hangs, what no File may touch, what
`plan` exits with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harmony_agent import app, cli
from harmony_agent.adapters.secrets import LocalSecrets
from harmony_agent.adapters.updater import SocketUpdater
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.device_info import DeviceDescription
from harmony_agent.settings import Settings
from harmony_agent.topology.updater import Offer, UpdaterRefused
from scores.file import File
from tests.fakes.clock import FakeClock
from tests.fakes.store import FakeStore


def settings(tmp_path: Path, **more: Any) -> Settings:
    agent = {"device_id": "pi-01", "state_dir": str(tmp_path / "state"), "kinds": ["File"]}
    return Settings.model_validate({"agent": agent, "files": {"roots": [str(tmp_path)]}, **more})


def made(tmp_path: Path, **more: Any) -> app.ComposedKind:
    store: KindView = FakeStore("File")
    return app.KINDS["File"](
        app.KindContext(
            settings(tmp_path, **more),
            store,
            FakeClock(),
            None,
            LocalSecrets("pi-01", str(tmp_path)),
        )
    )  # type: ignore[arg-type]


async def test_a_manager_that_hangs_is_still_there(tmp_path: Path) -> None:
    answers: list[str | Exception] = []

    async def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    parts = {"Container": app.ComposedKind(made(tmp_path).reconciler, ask)}
    describe = DeviceDescription(settings(tmp_path), parts)
    hangs = Transient("PodmanUnreachable", "podman does not answer", phase="Unknown")
    gone = Transient("PodmanUnavailable", "cannot reach podman", phase="Blocked")
    answers += [hangs, "4.3.1", hangs, "5.4.2", gone, hangs, "5.4.2", Terminal("X", "no")]
    told = [(await describe()).capabilities.podman for _ in range(8)]
    assert told == [None, "4.3.1", "4.3.1", "5.4.2", None, None, "5.4.2", None]


async def test_an_updater_that_is_busy_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, gone = UpdaterRefused("busy", "ask again"), UpdaterRefused("forbidden", "no")
    offer = Offer(1, ("AptFullUpgradeV1",))
    answers: list[Offer | Exception] = [
        *(busy, offer, busy, gone, offer),
        Transient("UpdaterUnavailable", "nobody answers"),
    ]

    async def capabilities(_updater: SocketUpdater) -> Offer:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(SocketUpdater, "capabilities", capabilities)
    parts = {"SystemUpgrade": app.ComposedKind(made(tmp_path).reconciler)}
    describe = DeviceDescription(settings(tmp_path), parts)
    told = [(await describe()).capabilities.updater is not None for _ in range(6)]
    assert told == [False, True, True, False, True, False]


def test_no_file_is_the_agents_own(tmp_path: Path) -> None:
    creds = str(tmp_path / "secret" / "agent.creds")
    kind = made(tmp_path, nats={"credentials": creds}).reconciler
    for path, allowed in [
        (creds, False),
        (f"{tmp_path}/secret", False),
        (f"{tmp_path}/state/ledger.db", False),
        (f"{tmp_path}/secret/other", True),
        (f"{tmp_path}/a", True),
    ]:
        codes = [error.code for error in kind.admit(File(name="a", path=path, content=""))]
        assert codes == ([] if allowed else ["PathForbidden"]), path


@pytest.mark.parametrize("content", [None, b"\xff", b"[" * 100_000, b"{}"])
def test_a_manifest_that_cannot_be_used_is_no_plan(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 would say that something is to be done."""
    config = tmp_path / "agent.toml"
    config.write_text(f'[agent]\ndevice_id = "pi-01"\nstate_dir = "{tmp_path}/state"\n')
    manifest = tmp_path / "manifest.json"
    if content is not None:
        manifest.write_bytes(content)
    assert cli.main(["plan", "--config", str(config), str(manifest)]) == 2
    assert capsys.readouterr().err.startswith("harmony-agent: ")
    assert not (tmp_path / "state").exists()
