"""Settings of an enrolment: remembered through rotations and copies, changed by a word alone, and
shown.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.commands.join import CONFIG, _files
from harmony_fleet.authority import enroll, setup, shared
from harmony_fleet.authority.authority_store import Authority, Issued
from harmony_fleet.authority.claims import OPERATOR, Identity
from harmony_fleet.authority.enrolled import FIELDS, Enrolled, EnrollOptions, changed
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.authority.shared import Record
from harmony_fleet.cli import complete, main
from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests import signing_keys
from harmony_fleet.nats.consumer import Entry
from scores.bundle import Bundle, decode
from scores.canonical import canonical
from scores.keys import FLEET

ALL = EnrollOptions(
    servers=("tls://nats.lan:4222",),
    labels={"site": "home", "rack": "1"},
    roots=["/srv", "/opt/app"],
    units=["web-*"],
    kinds=["File", "Session"],
    profile="system",
)
NAMES = st.sampled_from(["site", "rack", "row"])
TEXTS = st.sampled_from(["a", "b"])
ASKED = st.builds(
    EnrollOptions,
    servers=st.sampled_from([(), ("tls://a:1",)]),
    labels=st.none() | st.dictionaries(NAMES, TEXTS, min_size=1),
    roots=st.none() | st.lists(TEXTS, min_size=1),
    units=st.none() | st.lists(TEXTS, min_size=1),
    kinds=st.none() | st.just(["File"]),
    profile=st.none() | TEXTS,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    setup.init(home, setup.checked(ServerRequest("fleet", tmp_path / "nats", ("localhost",))))
    signing_keys.new(home)
    return home


def on_a_wiped_device(bundle: Bundle) -> dict[str, Any]:
    """The configuration that a join makes where nothing stands, but for the credentials' place."""
    files = {file.path: file.data for file in _files(bundle, {})}
    return tomllib.loads(files[CONFIG].decode())


def test_a_rotation_without_a_word_keeps_all(home: Path) -> None:
    authority = Authority.load(home)
    first = enroll.enroll(authority, home, "pi-01", ALL)
    for at_once in (False, True):
        bundle = enroll.rotate(
            Authority.load(home), home, "pi-01", EnrollOptions(), at_once=at_once
        )
        assert on_a_wiped_device(bundle) == on_a_wiped_device(first)
        assert bundle.credentials != first.credentials
    user = Authority.load(home).state.devices["pi-01"].user
    enroll.settle(Authority.load(home), "pi-01", user)
    settings = Authority.load(home).state.devices["pi-01"].settings
    assert settings == changed("pi-01", None, ALL)


@pytest.mark.parametrize(
    ("asked", "now"),
    [
        ({"labels": {"site": "away"}}, {"labels": {"site": "away", "rack": "1"}}),
        ({"labels": {"row": "2"}, "no_labels": ["rack"]}, {"labels": {"site": "home", "row": "2"}}),
        ({"no_labels": ["site", "rack"]}, {"labels": {}}),
        ({"roots": ["/data"]}, {"roots": ["/data"]}),
        ({"units": ["*"]}, {"units": ["*"]}),
        ({"kinds": ["File"]}, {"kinds": ["File"]}),
        ({"profile": "user"}, {"profile": "user"}),
        ({"servers": ("tls://b:1",)}, {"servers": ["tls://b:1"]}),
    ],
    ids=str,
)
def test_a_change_is_explicit_and_touches_nothing_else(
    asked: dict[str, Any], now: dict[str, Any]
) -> None:
    before = changed("pi-01", Enrolled(), ALL)
    assert before is not None
    after = changed("pi-01", before, EnrollOptions(**asked))
    assert after is not None
    assert after.said() == before.said() | now


@given(st.lists(ASKED, max_size=5))
def test_asking_for_nothing_changes_nothing_and_asking_twice_is_asking_once(
    words: list[EnrollOptions],
) -> None:
    known: Enrolled | None = Enrolled()
    for asked in words:
        known = changed("pi-01", known, asked)
        assert changed("pi-01", known, asked) == known
        assert changed("pi-01", known, EnrollOptions()) == known
    assert known is not None
    assert Enrolled.model_validate_json(json.dumps(known.said())) == known


def test_a_label_that_is_not_there_is_not_taken_away() -> None:
    with pytest.raises(InvalidInput, match="without it") as caught:
        changed("pi-01", Enrolled(labels={"site": "home"}), EnrollOptions(no_labels=["rack"]))
    assert "harmony device show pi-01" in caught.value.hint


def test_of_a_device_that_an_older_version_enrolled_nothing_is_made_up(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enroll.enroll(Authority.load(home), home, "pi-01", ALL)
    path = home / "authority" / "authority.json"
    state = json.loads(path.read_text())
    del state["devices"]["pi-01"]["settings"]
    path.write_text(json.dumps(state | {"version": 1}))
    bundle = enroll.rotate(Authority.load(home), home, "pi-01", EnrollOptions(), at_once=False)
    assert not {"labels", "roots", "units", "kinds", "profile"} & bundle.model_fields_set
    assert Authority.load(home).state.devices["pi-01"].settings is None
    monkeypatch.setenv("HARMONY_HOME", str(home))
    assert main(["device", "show", "pi-01"]) == 0
    assert "harmony device rotate pi-01 --label" in capsys.readouterr().err
    enroll.rotate(
        Authority.load(home), home, "pi-01", EnrollOptions(labels={"a": "b"}), at_once=False
    )
    settings = Authority.load(home).state.devices["pi-01"].settings
    assert settings is not None
    assert settings.said() == {"labels": {"a": "b"}}


def test_what_was_enrolled_is_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(home))
    enroll.enroll(Authority.load(home), home, "pi-01", ALL)
    enroll.enroll(Authority.load(home), home, "pi-02", EnrollOptions())
    assert main(["device", "show", "pi-01", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "device": "pi-01",
        "remembered": True,
        "profile": "system",
        "labels": {"site": "home", "rack": "1"},
        "roots": ["/srv", "/opt/app"],
        "units": ["web-*"],
        "kinds": ["File", "Session"],
        "servers": ["tls://nats.lan:4222"],
        "replaced": 0,
    }
    assert main(["device", "show", "pi-01"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("site=home rack=1", "/srv /opt/app", "web-*", "system"))
    assert main(["device", "show", "pi-02"]) == 0
    assert capsys.readouterr().out.count("as the device has it") == len(FIELDS)
    assert main(["device", "show", "pi-03"]) == 2
    assert complete.devices("pi") == ["pi-01", "pi-02"]


def test_a_rotation_tells_what_the_bundle_has(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(home))
    monkeypatch.setenv("HARMONY_SERVER", "tls://localhost:1")
    monkeypatch.chdir(home)
    enroll.enroll(Authority.load(home), home, "pi-01", ALL)
    assert main(["device", "rotate", "pi-01", "--label", "site=away", "--no-label", "rack"]) == 0
    assert "labels site=away, roots /srv /opt/app" in capsys.readouterr().err
    assert decode((home / "pi-01.bundle").read_bytes()).labels == {"site": "away"}


# -- what copies of a home share


OPERATOR_KEY = Identity.make(OPERATOR)


@pytest.mark.parametrize("settings", [None, Enrolled(), Enrolled(labels={"a": "b"}, roots=["/x"])])
def test_a_record_is_read_as_it_was_told(settings: Enrolled | None) -> None:
    record = Record(device="pi-01", user="U1", before=["U0"], revoked=[], settings=settings)
    entry = Entry(FLEET, "device.pi-01", shared._encode(OPERATOR_KEY, record), 1, None)
    assert shared._decode(OPERATOR_KEY, entry) == record


def test_a_record_without_settings_is_what_it_was_before_there_were_any() -> None:
    value = {"device": "pi-01", "user": "U1", "before": [], "revoked": ["U0"]}
    signature = OPERATOR_KEY.signed(b"harmony/v1/device-record\n" + canonical(value))
    told = canonical({"record": value, "signature": signature})
    record = shared._decode(OPERATOR_KEY, Entry(FLEET, "device.pi-01", told, 1, None))
    assert record == Record(device="pi-01", user="U1", before=[], revoked=["U0"])
    assert shared._encode(OPERATOR_KEY, record) == told


HOME, AWAY = Enrolled(labels={"site": "home"}), Enrolled(labels={"site": "away"})


@pytest.mark.parametrize(
    ("local", "there", "kept"),
    [
        (Issued(user="U1", settings=HOME), None, HOME),
        (None, Record(device="pi-01", user="U1", settings=HOME), HOME),
        (Issued(user="U1"), Record(device="pi-01", user="U1", settings=HOME), HOME),
        (Issued(user="U1", settings=HOME), Record(device="pi-01", user="U1"), HOME),
        (
            Issued(user="U1", settings=HOME),
            Record(device="pi-01", user="U2", before=["U1"], settings=AWAY),
            AWAY,
        ),
        (
            Issued(user="U2", before=("U1",), settings=AWAY),
            Record(device="pi-01", user="U1", settings=HOME),
            AWAY,
        ),
    ],
)
def test_of_two_copies_the_settings_of_the_credentials_in_use_hold(
    local: Issued | None, there: Record | None, kept: Enrolled
) -> None:
    assert shared.merged("pi-01", local, there, {}).settings == kept
