"""The device's own key, and what it keeps of secrets: on a real disk, by real boxes."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
from nacl.public import PrivateKey

from harmony_agent.adapters.secrets import LocalSecrets, make_key_file, read_key_file
from harmony_agent.core.errors import Transient
from harmony_agent.topology.secrets import CannotOpen
from harmony_fleet.authority.claims import USER, Identity, credentials
from harmony_fleet.manifests.sealing import seal
from scores.secrets import SealedSecret, proof, read_key

VALUE = b"hunter2"


def made(folder: Path, key: str = "") -> LocalSecrets:
    return LocalSecrets("pi-01", str(folder), key)


def sealed_for(secrets: LocalSecrets, version: int = 1, device: str = "pi-01") -> SealedSecret:
    told = secrets.told("")
    assert told is not None
    return seal(read_key(told.key), device, "pw", version, VALUE)


def give(secrets: LocalSecrets, found: SealedSecret) -> None:
    secrets.keep(found)
    secrets.use(found)


def test_its_key_is_made_once_and_closed_to_others(tmp_path: Path) -> None:
    first = made(tmp_path).told("")
    path = tmp_path / "device.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first == made(tmp_path).told("")
    with pytest.raises(FileExistsError):
        make_key_file(str(path))
    assert read_key_file(str(path)) == path.read_bytes()


@pytest.mark.parametrize("spoil", ["open", "short", "folder"])
def test_a_key_that_is_none_or_open_to_all_is_not_used(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "device.key"
    if spoil == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * (32 if spoil == "open" else 31))
        path.chmod(0o644 if spoil == "open" else 0o600)
    secrets = made(tmp_path)
    assert secrets.told("") is None
    with pytest.raises(Transient):
        secrets.digest(b"x")


def test_its_identity_vouches_for_it(tmp_path: Path) -> None:
    user = Identity.make(USER)
    creds = tmp_path / "pi.creds"
    creds.write_text(credentials("a.b.c", user))
    told = made(tmp_path).told(str(creds))
    assert told is not None
    assert told.user == user.public
    assert user.genuine(proof("pi-01", read_key(told.key)), told.signature)
    creds.write_text("no credentials")
    bare = made(tmp_path).told(str(creds))
    assert bare is not None
    assert (bare.user, bare.signature) == ("", "")


def test_what_is_kept_is_sealed_and_opened_again_after_a_restart(tmp_path: Path) -> None:
    secrets = made(tmp_path)
    give(secrets, sealed_for(secrets))
    assert secrets.value("pw") == VALUE
    again = made(tmp_path)
    assert list(again.load()) == ["pw"]
    assert again.value("pw") == VALUE
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert VALUE not in kept
    assert hashlib.sha256(VALUE).hexdigest().encode() not in kept
    (file,) = (tmp_path / "secrets").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_taken_back_is_gone(tmp_path: Path) -> None:
    secrets = made(tmp_path)
    give(secrets, sealed_for(secrets))
    give(secrets, SealedSecret(device="pi-01", name="pw", version=2, removed=True))
    with pytest.raises(Transient) as caught:
        secrets.value("pw")
    assert (caught.value.reason, caught.value.phase) == ("SecretMissing", "Blocked")
    assert VALUE.decode() not in "".join(path.read_text() for path in tmp_path.rglob("*.json"))


def test_a_box_for_another_key_device_or_version_is_not_kept(tmp_path: Path) -> None:
    secrets = made(tmp_path)
    good = sealed_for(secrets)
    strange = seal(bytes(PrivateKey.generate().public_key), "pi-01", "pw", 1, VALUE)
    others = [
        strange,
        strange.model_copy(update={"key": good.key}),
        sealed_for(secrets, device="pi-02").model_copy(update={"device": "pi-01"}),
        good.model_copy(update={"version": 2}),
        good.model_copy(update={"name": "other"}),
        good.model_copy(update={"sealed": "!"}),
    ]
    for other in others:
        with pytest.raises(CannotOpen):
            secrets.keep(other)
    assert not (tmp_path / "secrets").exists()


def test_a_digest_is_the_devices_own(tmp_path: Path) -> None:
    here, there = made(tmp_path), made(tmp_path, str(tmp_path / "other.key"))
    assert here.digest(VALUE) == made(tmp_path).digest(VALUE)
    assert here.digest(VALUE) != there.digest(VALUE)
    assert hashlib.sha256(VALUE).hexdigest() not in here.digest(VALUE)


def test_what_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "pw.json").write_text("{")
    assert made(tmp_path).load() == {}
