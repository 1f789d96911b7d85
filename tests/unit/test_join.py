"""What a bundle makes of the configuration that stands: pure parts of `harmony-agent join`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.adapters.secrets import make_key_file
from harmony_agent.commands.join import CA, CONFIG, CREDENTIALS, KEY, Cannot, _files, to_toml
from harmony_agent.settings import Settings
from scores.bundle import Bundle
from scores.manifest import validate
from scores.signatures import spell_key

CREDS = (
    "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\n"
    f"-----BEGIN USER NKEY SEED-----\nSU{'A' * 56}\n------END USER NKEY SEED------\n"
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUE = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.lists(TEXT, max_size=3))


def bundle(**more: Any) -> Bundle:
    fields = {
        "api": "harmony/v1",
        "type": "DeviceBundle",
        "device": "pi-01",
        "issued": "2026-11-29T18:00:00.000Z",
        "servers": ["tls://nats.lan:4222"],
        "credentials": CREDS,
    }
    return validate(Bundle, fields | more)


def configured(found: dict[str, Any], **more: Any) -> dict[str, Any]:
    files = {file.path: file.data for file in _files(bundle(**more), found)}
    assert list(files)[-1] == CONFIG, "the file that names the others is the last"
    value = tomllib.loads(files[CONFIG].decode())
    Settings.model_validate(value)
    return value


@given(st.dictionaries(TEXT, VALUE, max_size=4))
def test_toml_is_read_as_it_was_written(values: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml({"": {}, "section": values}))["section"] == values


def test_a_first_join_says_no_more_than_the_bundle() -> None:
    assert configured({}) == {
        "agent": {"device_id": "pi-01"},
        "nats": {"servers": ["tls://nats.lan:4222"], "credentials": str(CREDENTIALS)},
        "secrets": {"key": str(KEY)},
    }


def test_what_the_bundle_speaks_of_is_written_and_the_rest_stays() -> None:
    found = {
        "agent": {"device_id": "pi-01", "kinds": ["File"]},
        "files": {"roots": ["/old"], "setuid": True},
        "labels": {"site": "home", "rack": "1"},
        "intervals": {"poll": 2},
    }
    key = spell_key(bytes(32))
    certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    value = configured(
        found,
        roots=["/srv"],
        labels={"site": "away"},
        trusted_keys=[key],
        tls_ca=certificate,
        profile="system",
    )
    assert value["agent"] == {"device_id": "pi-01", "kinds": ["File"]}
    assert value["files"] == {"roots": ["/srv"], "setuid": True}
    assert value["labels"] == {"site": "away"}
    assert value["intervals"] == {"poll": 2}
    assert value["trust"] == {"require": True, "keys": [key]}
    assert value["systemd"] == {"scope": "system"}
    assert value["nats"]["tls_ca"] == str(CA)


def test_a_configuration_that_could_not_be_used_is_named_by_its_keys() -> None:
    with pytest.raises(Cannot) as raised:
        _files(bundle(), {"intervals": {"poll": "hunter2"}, "odd": {"a": 1}})
    assert (raised.value.code, "intervals.poll, odd" in str(raised.value)) == (2, True)
    assert "hunter2" not in str(raised.value)


def test_a_bundle_shows_no_credentials() -> None:
    assert "SUAA" not in repr(bundle())


def test_the_devices_own_key_is_made_once_and_no_bundle_has_it(tmp_path: Path) -> None:
    """One that the agent made before the first join with such a bundle is taken along."""
    made = make_key_file(str(tmp_path / "device.key"))
    first = {file.path: file.data for file in _files(bundle(), {})}[KEY]
    found = {"agent": {"device_id": "pi-01", "state_dir": str(tmp_path)}}
    kept = {file.path: file.data for file in _files(bundle(), found)}[KEY]
    assert (len(first), kept) == (32, made)
    assert first != made
