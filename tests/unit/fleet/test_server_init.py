"""`harmony server init` on disk: alone, all of it or nothing, and over nothing that is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.authority import setup, tls
from harmony_fleet.authority.authority_store import Authority
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.storage import durable
from harmony_fleet.storage.lock import alone


def files(folder: Path) -> list[Path]:
    """What is in it, at any depth."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("host", ["::1", "[fd00::1]", "fd00::1%eth0", "-nats", "nats/", ""])
def test_a_host_by_which_nothing_would_be_reached_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidInput):
        setup.checked(ServerRequest("fleet", tmp_path, (host,)))
    assert setup.checked(ServerRequest("fleet", tmp_path, ("nats.lan", "10.0.0.1", "n3"))).hosts


def test_of_many_inits_at_once_one_makes_all_and_the_others_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = [sys.executable, "-m", "tests.unit.fleet.forks", "inits", str(home), "6"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=200)
    assert json.loads(done.stdout) == {"0": 1, "5": 5}
    (made,) = tmp_path.glob("nats-*")
    authority = Authority.load(home)
    assert (made / "ca.pem").read_bytes() == (authority.folder / "ca.pem").read_bytes()
    assert json.dumps(authority.operator_token()) in (made / "server.conf").read_text()
    assert authority.key("system").public in (made / "server.conf").read_text()


def test_an_init_is_alone_in_the_servers_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two homes, one servers' folder: whoever is second has made nothing, and says why."""
    monkeypatch.setattr(setup, "LOCK_SECONDS", 0.1)
    wanted, other = (
        setup.checked(ServerRequest("fleet", tmp_path / "other", ("localhost",))),
        tmp_path / "another",
    )
    wanted.folder.mkdir()
    with (
        alone(wanted.folder, 0, Refused("Busy", "")),
        pytest.raises(Refused, match="another command"),
    ):
        setup.init(other, wanted)
    assert files(other) == files(wanted.folder) == []
    setup.init(other, wanted)
    again = files(other)
    with pytest.raises(Refused, match="second authority"):
        setup.init(other, wanted)
    assert files(other) == again


@pytest.mark.parametrize(
    "last", ["fleet.seed", "ca-key.pem", "system.creds", "authority.json", setup.CONTEXT]
)
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stop"]
)
def test_an_init_that_ends_early_leaves_nothing_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, error: BaseException
) -> None:
    home = tmp_path / "home"
    wanted = setup.checked(ServerRequest("fleet", home / "nats", ("n1", "n2", "n3")))

    def until(path: str, data: bytes, **more: Any) -> None:
        if path.endswith(f"/{last}"):
            raise error
        Path(path).write_bytes(data)

    monkeypatch.setattr(durable, "replace", until)
    with pytest.raises((InvalidInput, KeyboardInterrupt)):
        setup.init(home, wanted)
    assert files(tmp_path) == []
    monkeypatch.setattr(
        durable, "replace", lambda path, data, **_more: Path(path).write_bytes(data)
    )
    setup.init(home, wanted)
    assert Authority.load(home).state.servers


def test_a_write_that_outlives_a_killed_init_keeps_its_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a key of the killed one could come over that of the next, which has signed with its own
    by then.
    """
    home, folder, held = tmp_path / "home", tmp_path / "nats", set[bool]()
    run = subprocess.run

    def look(*words: Any, pass_fds: list[int], **more: Any) -> Any:
        kept = [os.fstat(fd) for fd in pass_fds]
        places = [os.stat(place) for place in (home / "authority", folder)]
        held.add(all(any(os.path.samestat(one, place) for one in kept) for place in places))
        return run(*words, pass_fds=pass_fds, **more)

    monkeypatch.setattr(subprocess, "run", look)
    setup.init(home, setup.checked(ServerRequest("fleet", folder, ("localhost",))))
    assert held == {True}


def test_an_init_that_ends_early_leaves_what_lay_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    notes, backup = home / "authority" / "notes", home / "authority" / "old" / "authority.json"
    backup.parent.mkdir(parents=True)
    for path in (notes, backup):
        path.write_text("mine")

    def full(_path: str, _data: bytes, **_more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "replace", full)
    with pytest.raises(InvalidInput, match="No space"):
        setup.init(home, setup.checked(ServerRequest("fleet", tmp_path / "nats", ("localhost",))))
    assert files(tmp_path) == [notes, backup]


@pytest.mark.parametrize("left", ["fleet.seed", "ca-key.pem", "operator.creds"])
def test_no_key_that_is_left_of_an_authority_is_written_over(tmp_path: Path, left: str) -> None:
    """The seeds may have been taken away to be safe: what stayed is theirs."""
    key = tmp_path / "home" / "authority" / left
    key.parent.mkdir(parents=True)
    key.write_text("mine")
    with pytest.raises(Refused, match="keys already"):
        setup.init(
            tmp_path / "home",
            setup.checked(ServerRequest("fleet", tmp_path / "nats", ("localhost",))),
        )
    assert files(tmp_path) == [key]


def test_keys_whose_state_was_lost_are_not_written_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    setup.init(home, setup.checked(ServerRequest("fleet", tmp_path / "nats", ("localhost",))))
    authority = Authority.load(home)
    (authority.folder / "authority.json").unlink()
    (home / setup.CONTEXT).unlink()
    with pytest.raises(InvalidInput, match="no authority") as caught:
        Authority.load(home)
    assert "backup" in caught.value.hint
    before = {path: path.read_bytes() for path in files(home)}
    with pytest.raises(Refused, match="keys already"):
        setup.init(home, setup.checked(ServerRequest("fleet", tmp_path / "again", ("localhost",))))
    assert {path: path.read_bytes() for path in files(home)} == before


def test_no_private_key_is_in_a_representation() -> None:
    ca = tls.make_ca("fleet", datetime.now(UTC))
    pair = tls.make_server(ca, ["localhost"], datetime.now(UTC))
    assert b"PRIVATE KEY" in ca.key
    assert "PRIVATE KEY" not in repr((ca, pair))


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="Not a directory"):
        setup.init(
            tmp_path / "new",
            setup.checked(ServerRequest("fleet", tmp_path / "file", ("localhost",))),
        )
    assert files(tmp_path) == [tmp_path / "file"]
