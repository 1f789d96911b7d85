"""``harmony-agent plan`` as a person sees it: lines and exit codes, over a real ledger and real
files.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from harmony_agent import app, cli
from harmony_agent.adapters.ledger.ledger import SqliteLedger
from harmony_agent.core.manifests import desired_of
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.settings import load
from harmony_agent.topology.control_plane import StoredManifest
from scores.canonical import canonical
from scores.manifest import decode
from scores.signatures import content_digest
from tests.fakes.clock import FakeClock
from tests.fakes.control import FakeBuckets
from tests.fakes.store import FakeStore

LINEAGE = "7b0e0000-0000-4000-8000-000000000001"


class Device:
    """A state directory with one accepted manifest, and the folder that its Files lie in."""

    def __init__(self, folder: Path) -> None:
        self.state, self.srv = folder / "state", folder / "srv"
        self.srv.mkdir()
        self.config = folder / "agent.toml"
        self.configure('["File"]')

    def configure(self, kinds: str) -> None:
        self.config.write_text(
            f'[agent]\ndevice_id = "pi-01"\nstate_dir = "{self.state}"\nkinds = {kinds}\n'
            f'[files]\nroots = ["{self.srv}"]\n'
        )

    def file(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "kind": "File",
            "name": name,
            "path": f"{self.srv}/{name}",
            "content": "hi\n",
            "mode": "0644",
            **more,
        }

    def manifest(self, *scores: dict[str, Any], **more: Any) -> dict[str, Any]:
        value = {
            "api": "harmony/v1",
            "device": "pi-01",
            "deployment": "web",
            "lineage": LINEAGE,
            "generation": 1,
        }
        return {**value, "scores": list(scores), **more}

    def accepted(self, *scores: dict[str, Any]) -> None:
        """These were accepted, claimed, and converged once."""
        self.state.mkdir(mode=0o700)
        ledger = SqliteLedger(self.state)
        value = self.manifest(*scores)
        data = canonical(value)
        desired = desired_of(decode(data, device="pi-01", deployment="web"), {})
        settings = load(str(self.config), {})
        kind = app.KINDS["File"](
            app.KindContext(
                settings, FakeStore("File"), FakeClock(), FakeBuckets(), app.secrets_of(settings)
            )
        ).reconciler
        records = [_record(kind, key, one) for key, one in desired.items()]
        asyncio.run(
            ledger.accept(StoredManifest("web", LINEAGE, 1, content_digest(value), data, {}))
        )
        asyncio.run(ledger.put(records))
        ledger.close()
        for score in scores:
            path = Path(score["path"])
            path.write_text("hi\n")
            path.chmod(0o644)

    def plan(self, *arguments: str) -> int:
        return cli.main(["plan", "--config", str(self.config), *arguments])

    def written(self, folder: Path, *scores: dict[str, Any], **more: Any) -> str:
        path = folder / "m.json"
        path.write_text(json.dumps({"deployment": "web", "scores": list(scores), **more}))
        return str(path)


def _record(kind: Any, key: Key, desired: Any) -> OwnershipRecord:
    facts, claims = kind.facts(desired, None, None), kind.claims(desired.spec)
    spec = desired.spec
    return OwnershipRecord(
        key.kind, key.name, "web", desired.digest, 1, spec.on_remove, claims, desired.version, facts
    )


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def test_what_is_only_reported_is_told_as_reported(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    device.accepted(device.file("motd", drift="report"))
    (device.srv / "motd").write_text("edited by hand\n")
    assert device.plan() == 1
    assert capsys.readouterr().out.splitlines() == [
        "File/motd: DriftReported: content differs; it is left as it is",
        "nothing would change; 1 can't be as wanted now and would be left as they are",
    ]


def test_what_is_as_wanted_is_no_line(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    device.accepted(device.file("motd"))
    assert (device.plan(), capsys.readouterr().out) == (0, "nothing would change\n")


def test_a_change_and_what_comes_after_it(
    device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device.accepted(device.file("motd"))
    path = device.written(
        tmp_path, device.file("motd", content="new\n"), device.file("next", after=["File/motd"])
    )
    assert device.plan(path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("File/motd: ")
    assert lines[1].startswith("File/next: ")
    assert lines[1].endswith(" (after File/motd)")
    assert lines[2] == "2 of 2 resources would change"
    assert (device.srv / "motd").read_text() == "hi\n"
    assert not (device.srv / "next").exists()


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        ({"generation": 1}, 5, "Rejected/GenerationReused"),
        ({"lineage": "7b0e0000-0000-4000-8000-000000000002"}, 3, "Fenced/LineageChanged"),
        ({"scores": []}, 5, "Held/PruneGuard"),
    ],
)
def test_a_manifest_that_the_agent_would_refuse_is_refused(
    device: Device,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: dict[str, Any],
    code: int,
    reason: str,
) -> None:
    device.accepted(device.file("a"), device.file("b"))
    assert device.plan(device.written(tmp_path, device.file("a"), **more)) == code
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"web: would be refused: {reason}: ")
    assert last == "nothing would change"


def test_a_kind_that_is_not_allowed_any_more_is_blocked(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    device.accepted(device.file("motd"))
    device.configure('["SystemUpgrade"]')
    assert device.plan() == 1
    assert capsys.readouterr().out.startswith("File/motd: Blocked/KindNotAllowed: ")


def test_what_is_released_is_told_so(
    device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device.accepted(device.file("a", on_remove="orphan"), device.file("b"))
    assert device.plan(device.written(tmp_path, device.file("b"))) == 1
    assert "File/a: released: it stays as it is and is ours no more\n" in capsys.readouterr().out
