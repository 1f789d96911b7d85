"""Where a command connects and in whose name: the order of sources, and a lineage that is made
once.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from harmony_fleet.context import DEFAULT_SERVER, load_context, load_lineage
from harmony_fleet.errors import InvalidInput

UUID = "7b0e0000-0000-4000-8000-000000000001"


def env(home: Path, **more: str) -> dict[str, str]:
    return {"HARMONY_HOME": str(home), **more}


def test_defaults_to_the_loopback(tmp_path: Path) -> None:
    context = load_context(environ=env(tmp_path))
    assert (context.servers, context.creds, context.tls_ca, context.replicas) == (
        (DEFAULT_SERVER,),
        None,
        None,
        1,
    )


def test_flag_before_variable_before_file(tmp_path: Path) -> None:
    (tmp_path / "context.toml").write_text('server = ["nats://c:1", "nats://d:2"]\nreplicas = 3\n')
    variables = env(tmp_path, HARMONY_SERVER="nats://b:1")
    assert load_context(server="nats://a:1", environ=variables).servers == ("nats://a:1",)
    assert load_context(environ=variables).servers == ("nats://b:1",)
    saved = load_context(environ=env(tmp_path))
    assert (saved.servers, saved.replicas) == (("nats://c:1", "nats://d:2"), 3)


def test_several_servers_with_commas(tmp_path: Path) -> None:
    assert load_context(server="nats://a:1, tls://b:2", environ=env(tmp_path)).servers == (
        "nats://a:1",
        "tls://b:2",
    )


def test_a_path_in_the_file_is_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "context.toml").write_text('creds = "me.creds"\ntls_ca = "ca.pem"\n')
    (tmp_path / "me.creds").write_text("x")
    (tmp_path / "ca.pem").write_text("x")
    context = load_context(environ=env(tmp_path))
    assert (context.creds, context.tls_ca) == (tmp_path / "me.creds", tmp_path / "ca.pem")


def test_a_message_shows_no_password_of_a_url(tmp_path: Path) -> None:
    context = load_context(server="nats://me:s3cret@a:1,nats://b:2", environ=env(tmp_path))
    assert context.place() == "a:1, nats://b:2"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("server = 5", "ContextInvalid"),
        ("replicas = true", "ContextInvalid"),
        ("replicas = 0", "ContextInvalid"),
        ('sever = "nats://a:1"', "ContextInvalid"),
        ("not toml", "ContextInvalid"),
        ('server = "a b"', "ServerInvalid"),
        ("server = []", "ServerInvalid"),
        ('creds = "nowhere"', "FileMissing"),
    ],
)
def test_a_wrong_context_file_is_told(tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "context.toml").write_text(content)
    with pytest.raises(InvalidInput) as caught:
        load_context(environ=env(tmp_path))
    assert caught.value.code == code
    assert caught.value.hint


def test_a_context_file_of_bytes_is_told(tmp_path: Path) -> None:
    (tmp_path / "context.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="cannot read"):
        load_context(environ=env(tmp_path))
    (tmp_path / "context.toml").unlink()
    (tmp_path / "context.toml").mkdir()
    with pytest.raises(InvalidInput, match="cannot read"):
        load_context(environ=env(tmp_path))


def test_lineage_is_made_once_and_kept(tmp_path: Path) -> None:
    context = load_context(environ=env(tmp_path / "new" / "home"))
    first = load_lineage(context.home, environ={})
    assert load_lineage(context.home, environ={}) == first
    kept = tmp_path / "new" / "home" / "lineage"
    assert kept.read_text() == f"{first}\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert os.listdir(kept.parent) == ["lineage"]


def test_lineage_of_flag_and_variable(tmp_path: Path) -> None:
    context = load_context(environ=env(tmp_path))
    other = UUID.replace("1", "2")
    assert load_lineage(context.home, UUID, {"HARMONY_LINEAGE": other}) == UUID
    assert load_lineage(context.home, None, {"HARMONY_LINEAGE": other}) == other
    assert not (tmp_path / "lineage").exists()
    with pytest.raises(InvalidInput, match="no lower-case UUID"):
        load_lineage(context.home, UUID.upper(), {})


def test_many_at_once_agree_on_one_lineage(tmp_path: Path) -> None:
    context = load_context(environ=env(tmp_path / "home"))
    found: list[str] = []
    start = threading.Barrier(8)

    def use() -> None:
        start.wait()
        found.append(load_lineage(context.home, environ={}))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "content", [b"", b"7b0e", b"\xff", b"7B0E0000-0000-4000-8000-000000000001"]
)
def test_a_spoilt_lineage_is_told_and_never_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lineage").write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        load_lineage(load_context(environ=env(tmp_path)).home, environ={})
    assert str(tmp_path / "lineage") in caught.value.message
    assert (tmp_path / "lineage").read_bytes() == content


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to("/proc/no/such/place")
    with pytest.raises(InvalidInput) as caught:
        load_lineage(load_context(environ=env(tmp_path / "home")).home, environ={})
    assert caught.value.code == "LineageUnwritable"
    assert "HARMONY_HOME" in caught.value.hint
