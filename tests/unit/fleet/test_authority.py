"""What is issued and withdrawn, on disk: whole or not at all, for good, and for nobody else's
eyes.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.authority import enroll, live, setup
from harmony_fleet.authority.authority_store import Authority
from harmony_fleet.authority.enrolled import EnrollOptions
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.cli import main
from harmony_fleet.commands import device as commands
from harmony_fleet.context import Context, load_context
from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.manifests import signing_keys
from harmony_fleet.manifests.signing import Key
from harmony_fleet.storage import durable
from scores.bundle import Bundle

PLAIN = EnrollOptions()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    setup.init(home, setup.checked(ServerRequest("fleet", tmp_path / "nats", ("localhost",))))
    signing_keys.new(home)
    return home


def issued_at(bundle: Bundle) -> int:
    """`iat` of the JWT in the credentials."""
    body = bundle.credentials.splitlines()[1].split(".")[1]
    return int(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["iat"])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_withdrawn_stays_so_though_the_clock_went_ahead_when_it_was_issued(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, authority = time.time(), Authority.load(home)
    monkeypatch.setattr(time, "time", lambda: now + 10 * 365 * 86_400)
    bundle = enroll.enroll(authority, home, "pi-01", PLAIN)
    user = authority.state.devices["pi-01"].user
    monkeypatch.setattr(time, "time", lambda: now)
    enroll.revoke(authority, "pi-01")
    state = Authority.load(home).state
    assert "pi-01" not in state.devices
    assert state.revoked[user] >= issued_at(bundle) > now


def test_a_bundle_that_cannot_be_made_withdraws_nothing(home: Path) -> None:
    authority = Authority.load(home)
    enroll.enroll(authority, home, "pi-01", PLAIN)
    before = Authority.load(home).state
    with pytest.raises(InvalidInput):
        enroll.rotate(
            authority, home, "pi-01", EnrollOptions(servers=("http://localhost",)), at_once=True
        )
    assert Authority.load(home).state == before
    enroll.rotate(authority, home, "pi-01", PLAIN, at_once=True)
    after = Authority.load(home).state
    assert list(after.revoked) == [before.devices["pi-01"].user]
    assert after.stamp > before.stamp


def test_a_rotation_is_not_finished_for_credentials_that_were_replaced_in_turn(home: Path) -> None:
    authority = Authority.load(home)
    enroll.enroll(authority, home, "pi-01", PLAIN)
    enroll.rotate(authority, home, "pi-01", PLAIN, at_once=False)
    used = authority.state.devices["pi-01"].user
    enroll.rotate(authority, home, "pi-01", PLAIN, at_once=False)
    with pytest.raises(Conflict):
        enroll.settle(authority, "pi-01", used)
    assert dict(Authority.load(home).state.revoked) == {}
    newest = authority.state.devices["pi-01"].user
    assert enroll.settle(authority, "pi-01", newest) == 2
    assert used in Authority.load(home).state.revoked
    assert newest not in Authority.load(home).state.revoked


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
def test_a_key_that_others_may_read_is_not_used(home: Path, mode: int) -> None:
    seed = home / "authority" / "device-signer.seed"
    seed.chmod(mode)
    with pytest.raises(Conflict, match="others") as caught:
        enroll.enroll(Authority.load(home), home, "pi-01", PLAIN)
    assert (caught.value.code, f"chmod 600 {seed}" in caught.value.hint) == ("KeyExposed", True)
    assert not Authority.load(home).state.devices
    seed.chmod(0o400)
    assert enroll.enroll(Authority.load(home), home, "pi-01", PLAIN).device == "pi-01"


@pytest.mark.parametrize("who", ["operator", "system"])
def test_credentials_that_others_may_read_are_not_used(home: Path, who: str) -> None:
    environ = {"HARMONY_HOME": str(home)}
    authority, context = Authority.load(home), load_context(environ=environ)
    (home / "authority" / f"{who}.creds").chmod(0o644)
    uses = {
        "operator": lambda: load_context(environ=environ),
        "system": lambda: asyncio.run(live.push(authority, context)),
    }
    with pytest.raises(Conflict, match=rf"{who}\.creds"):
        uses[who]()


def test_a_key_that_cannot_be_read_is_named_and_not_told(home: Path) -> None:
    seed = home / "authority" / "devices.seed"
    right = seed.read_text()
    for broken, code in (
        (right[:-4], "AuthorityUnreadable"),
        ("", "AuthorityUnreadable"),
        (None, "KeyUnreadable"),
    ):
        seed.unlink() if broken is None else seed.write_text(broken)
        with pytest.raises(InvalidInput, match=r"devices\.seed") as caught:
            Authority.load(home).key("devices")
        assert caught.value.code == code
        assert "backup" in caught.value.hint
        assert right[4:20] not in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize("version", [3, 0, "1", None])
def test_a_state_of_another_version_is_refused_and_stays(home: Path, version: Any) -> None:
    path = home / "authority" / "authority.json"
    told = {**json.loads(path.read_text()), "version": version, "invented": "later"}
    path.write_text(json.dumps(told))
    with pytest.raises(InvalidInput, match="version") as caught:
        Authority.load(home)
    assert (str(path) in caught.value.message, "harmony that wrote it" in caught.value.hint) == (
        True,
        True,
    )
    assert json.loads(path.read_text()) == told


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["finish"], 1),
        (["finish", "--wait", "50ms"], 4),
        (["rotate", "-o", "x.bundle", "--wait", "50ms"], 4),
    ],
)
def test_a_device_that_does_not_come_in_time_is_code_4(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
) -> None:
    async def nobody(_authority: Authority, _context: Context) -> set[str]:
        return set()

    monkeypatch.setenv("HARMONY_HOME", str(home))
    monkeypatch.chdir(home)
    monkeypatch.setattr(live, "connected", nobody)
    monkeypatch.setattr(commands, "_POLL_SECONDS", 0.01)
    enroll.enroll(Authority.load(home), home, "pi-01", PLAIN)
    enroll.rotate(Authority.load(home), home, "pi-01", PLAIN, at_once=False)
    assert main(["device", words[0], "pi-01", *words[1:]]) == code
    assert "hasn't connected with its new credentials" in capsys.readouterr().err.replace("\n", " ")
    assert not Authority.load(home).state.revoked


def test_what_cannot_be_read_or_written_is_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> str:
        assert main(words) == 2
        return " ".join(capsys.readouterr().err.split())

    def full(_path: str, _data: bytes, **_more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("HARMONY_HOME", str(home))
    monkeypatch.chdir(home)
    assert "harmony device rotate pi-01 -o FILE" in told(
        "device", "enroll", "pi-01", "-o", "no/such/folder/x"
    )
    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", full)
        assert "authority.json: No space left" in told("device", "rotate", "pi-01")
    (home / "authority" / "ca.pem").write_bytes(b"\xff")
    assert "ca.pem" in told("device", "rotate", "pi-01")
    (home / "authority" / "system.creds").unlink()
    assert "system.creds" in told("server", "push")


def test_no_device_is_enrolled_to_believe_whatever_is_unsigned(home: Path) -> None:
    for path in signing_keys.keys_folder(home).iterdir():
        path.unlink()
    with pytest.raises(Refused, match="signing key"):
        enroll.enroll(Authority.load(home), home, "pi-01", PLAIN)
    assert not Authority.load(home).state.devices


@pytest.mark.parametrize("nameless", [True, False])
def test_a_secret_is_closed_though_the_file_before_it_was_open(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE")
    path, seen = tmp_path / "pi-01.bundle", list[int]()
    path.write_text("")
    path.chmod(0o644)
    fsync = os.fsync

    def look(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        fsync(fd)

    authority = Authority.load(home)
    bundle = enroll.enroll(authority, home, "pi-01", PLAIN)
    monkeypatch.setattr(os, "fsync", look)
    enroll.write_bundle(bundle, path)
    seed = authority.folder / "device-signer.seed"
    seed.chmod(0o644)
    authority.put(seed.name, seed.read_bytes())
    assert (mode(path), mode(seed), set(seen)) == (0o600, 0o600, {0o600})
    durable.replace(str(path), b"")
    path.chmod(0o644)
    durable.replace(str(path), b"no secret")
    assert mode(path) == 0o644


def test_the_lock_is_held_until_a_write_that_outlives_its_command_is_done(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what a killed command was about to write could come over what the next one wrote: a
    revocation, lost.
    """
    authority, folder, held = Authority.load(home), os.stat(home / "authority"), list[bool]()
    run = subprocess.run

    def look(*words: Any, pass_fds: list[int], **more: Any) -> Any:
        held.append(any(os.path.samestat(os.fstat(fd), folder) for fd in pass_fds))
        return run(*words, pass_fds=pass_fds, **more)

    monkeypatch.setattr(subprocess, "run", look)
    with authority.locked():
        enroll.enroll(authority, home, "pi-01", PLAIN)
        enroll.revoke(authority, "pi-01")
    assert held == [True, True]


def test_keys_are_turned_by_one_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that retire a key each, and both saw the other's, would leave none that signs."""
    first, _second = signing_keys.load(home).keys[0], signing_keys.new(home)
    read, tries = signing_keys.all_keys, list[str]()

    def while_another_tries(place: Path) -> list[Key]:
        fd = os.open(signing_keys.keys_folder(place), os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            tries.append("refused")
        finally:
            os.close(fd)
        return read(place)

    monkeypatch.setattr(signing_keys, "all_keys", while_another_tries)
    assert signing_keys.turn(home, first.id, "retired")
    assert tries == ["refused"]
    monkeypatch.undo()
    assert len(signing_keys.load(home).keys) == 1
