"""The agent's configuration: the contract's example, overrides, and what is refused with file, key
and fix.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.settings import DEFAULT_PATH, InvalidSettings, Settings, load
from scores.base import KINDS
from tests.unit.fleet import broken

CONTRACT = """
[agent]
device_id = "pi-01"
state_dir = "/var/lib/harmony-agent"
kinds = ["File", "SystemdUnit", "Container", "SystemUpgrade", "Volume", "Network", "Package"]
[nats]
servers = ["nats://127.0.0.1:4222"]
credentials = ""            # a NATS .creds file
tls_ca = ""
insecure = false            # credentials without TLS
[files]
roots = ["/srv"]
[systemd]
scope = "user"              # user | system
units = ["*"]               # glob patterns of the units it may touch
[podman]
socket = ""                 # empty: found by scope
allow = []                  # rights that containers may ask for: privileged, host-pid, host-ipc
[sessions]
socket = ""                 # empty: in the runtime directory of the agent's user
[updater]
socket = "/run/harmony-updater/updater.sock"
[intervals]                 # seconds
heartbeat = 10
relist = 10
poll = 5
[labels]
site = "home"
"""
KEY = "ed25519:" + "A" * 43 + "="
LEAST = '[agent]\ndevice_id = "pi-01"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "agent.toml"


def read(place: Path, text: str, **environ: str) -> Settings:
    place.write_text(text)
    return load(str(place), environ)


def refused(place: Path, text: str, **environ: str) -> str:
    place.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load(str(place), environ)
    return str(caught.value)


def test_the_contracts_example_is_the_default_and_every_key_is_honoured(place: Path) -> None:
    settings = read(place, CONTRACT)
    least = read(place, LEAST + '[labels]\nsite = "home"\n')
    assert settings.model_dump(mode="json") == least.model_dump(mode="json")
    assert settings.agent.device_id == "pi-01"
    assert tuple(settings.agent.kinds) == tuple(kind for kind in KINDS if kind != "Session")
    assert settings.intervals.poll == 5
    assert settings.labels == {"site": "home"}
    assert settings.files.setuid is False


def test_where_it_is_read_from(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(LEAST)
    two.write_text(LEAST.replace("pi-01", "pi-02"))
    assert load(str(one), {"HARMONY_AGENT_CONFIG": str(two)}).agent.device_id == "pi-01"
    assert load(None, {"HARMONY_AGENT_CONFIG": str(two)}).agent.device_id == "pi-02"
    assert load("", {"HARMONY_AGENT_CONFIG": str(two)}).agent.device_id == "pi-02"
    assert DEFAULT_PATH == "/etc/harmony/agent.toml"


OVERRIDES: list[tuple[str, str, tuple[str, str], Any]] = [
    ("AGENT__DEVICE_ID", "pi-02", ("agent", "device_id"), "pi-02"),
    ("AGENT__DEVICE_ID", '"pi-02"', ("agent", "device_id"), "pi-02"),
    ("AGENT__DEVICE_ID", "12", ("agent", "device_id"), "12"),
    ("AGENT__DEVICE_ID", "true", ("agent", "device_id"), "true"),
    ("AGENT__DEVICE_ID", "2026-11-29", ("agent", "device_id"), "2026-11-29"),
    (
        "AGENT__DEVICE_ID",
        "2026-13-45",
        ("agent", "device_id"),
        "2026-13-45",
    ),  # no date, and a good name
    ("AGENT__KINDS", "File", ("agent", "kinds"), ["File"]),
    ("AGENT__KINDS", "File,Container", ("agent", "kinds"), ["File", "Container"]),
    ("AGENT__STATE_DIR", "/srv/state", ("agent", "state_dir"), "/srv/state"),
    ("NATS__SERVERS", "nats://a:1, nats://b:2,", ("nats", "servers"), ["nats://a:1", "nats://b:2"]),
    ("NATS__SERVERS", '["nats://a:1"]', ("nats", "servers"), ["nats://a:1"]),
    ("NATS__SERVERS", '"nats://a:1"', ("nats", "servers"), ["nats://a:1"]),
    ("TRUST__KEYS", KEY, ("trust", "keys"), [KEY]),
    ("TRUST__REQUIRE", "false", ("trust", "require"), False),
    ("NATS__CREDENTIALS", "", ("nats", "credentials"), ""),
    ("FILES__SETUID", "true", ("files", "setuid"), True),
    ("SYSTEMD__SCOPE", "system", ("systemd", "scope"), "system"),
    ("INTERVALS__POLL", "0.5", ("intervals", "poll"), 0.5),
    ("INTERVALS__RELIST", "30", ("intervals", "relist"), 30),
    ("LABELS__SITE", "home", ("labels", "site"), "home"),
    ("LABELS__RACK", "12", ("labels", "rack"), "12"),
    ("LABELS__RACK", "a,b", ("labels", "rack"), "a,b"),
]


@pytest.mark.parametrize(("name", "text", "where", "value"), OVERRIDES)
def test_a_variable_overrides(
    place: Path, name: str, text: str, where: tuple[str, str], value: Any
) -> None:
    settings = read(place, CONTRACT, **{f"HARMONY_AGENT__{name}": text})
    assert settings.model_dump(mode="json")[where[0]][where[1]] == value


def test_a_variable_alone_is_enough_for_a_section(place: Path) -> None:
    assert read(place, "", HARMONY_AGENT__AGENT__DEVICE_ID="a").agent.device_id == "a"


def test_other_variables_are_none_of_its_business(place: Path) -> None:
    read(place, LEAST, HARMONY_AGENT="x", HARMONY_SERVER="y", HARMONY_AGENT_CONFIG="z")


REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "no device": ("", {}, "agent: Field required"),
    "no device_id": ("[agent]\n", {}, "agent.device_id: Field required"),
    "device_id": ('[agent]\ndevice_id = "Pi 01"\n', {}, "agent.device_id: must be 1 to 63"),
    "unknown section": (LEAST + "[nts]\n", {}, "nts: nothing honours this key"),
    "unknown key": (LEAST + "[nats]\nserver = 'x'\n", {}, "nats.server: nothing honours this key"),
    "unknown kind": (LEAST + 'kinds = ["Shell"]\n', {}, "agent.kinds.0: Input should be 'File'"),
    "relative root": (LEAST + '[files]\nroots = ["srv"]\n', {}, "files.roots.0: must be absolute"),
    "root with ..": (
        LEAST + '[files]\nroots = ["/srv/.."]\n',
        {},
        "files.roots.0: must be absolute",
    ),
    "relative state_dir": (
        '[agent]\ndevice_id = "a"\nstate_dir = "x"\n',
        {},
        "agent.state_dir: must be absolute",
    ),
    "no servers": (LEAST + "[nats]\nservers = []\n", {}, "nats.servers"),
    "servers text": (LEAST + '[nats]\nservers = "x"\n', {}, "nats.servers"),
    "interval 0": (
        LEAST + "[intervals]\npoll = 0\n",
        {},
        "intervals.poll: Input should be greater than 0",
    ),
    "interval nan": (LEAST + "[intervals]\npoll = nan\n", {}, "intervals.poll"),
    "interval inf": (LEAST + "[intervals]\npoll = inf\n", {}, "intervals.poll"),
    "interval text": (LEAST + "[intervals]\npoll = 'often'\n", {}, "intervals.poll"),
    "interval true": (LEAST + "[intervals]\npoll = true\n", {}, "intervals.poll"),
    "scope": (
        LEAST + '[systemd]\nscope = "root"\n',
        {},
        "systemd.scope: Input should be 'user' or 'system'",
    ),
    "setuid text": (LEAST + '[files]\nsetuid = "yes"\n', {}, "files.setuid"),
    "label number": (LEAST + "[labels]\nrack = 12\n", {}, "labels.rack"),
    "section no table": (LEAST + "nats = 5\n", {}, "agent.nats: nothing honours this key"),
    "section number": ("nats = 5\n" + LEAST, {}, "nats: "),
    "section number with a variable": ("nats = 5\n" + LEAST, {"NATS__SERVERS": "a"}, "nats: "),
    "variable of no section": (
        LEAST,
        {"NTS__SERVERS": "a"},
        "cannot use $HARMONY_AGENT__NTS__SERVERS: nothing honours",
    ),
    "variable without key": (
        LEAST,
        {"NATS": "a"},
        "cannot use $HARMONY_AGENT__NATS: nothing honours",
    ),
    "variable of no key": (LEAST, {"NATS__SERVER": "a"}, "nats.server: nothing honours this key"),
    "variable with empty key": (LEAST, {"NATS__": "a"}, "nothing honours"),
    "trust without keys": (
        LEAST + "[trust]\nrequire = true\n",
        {},
        "trust: require = true needs keys",
    ),
    "trust no list": (LEAST + f'[trust]\nkeys = "{KEY}"\n', {}, "trust.keys: "),
    "trust no key": (
        LEAST + '[trust]\nkeys = ["hunter2"]\n',
        {},
        "trust.keys.0: must be ed25519: and the base64 of",
    ),
    "trust half a key": (
        LEAST + f'[trust]\nkeys = ["{KEY[:-4]}"]\n',
        {},
        "trust.keys.0: must be ed25519:",
    ),
    "trust twice": (
        LEAST + f'[trust]\nkeys = ["{KEY}", "{KEY}"]\n',
        {},
        "trust: keys has the same key twice",
    ),
    "trust require text": (LEAST + "[trust]\nrequire = 'yes'\n", {}, "trust.require"),
    "trust by a variable": (LEAST, {"TRUST__REQUIRE": "true"}, "trust: require = true needs keys"),
    "not TOML": ("[agent\n", {}, "cannot read the configuration"),
    "key twice": (LEAST + 'device_id = "b"\n', {}, "cannot read the configuration"),
}


@pytest.mark.parametrize(("text", "variables", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(place: Path, text: str, variables: dict[str, str], message: str) -> None:
    found = refused(
        place, text, **{f"HARMONY_AGENT__{name}": value for name, value in variables.items()}
    )
    assert message in found
    assert str(place) in found or "HARMONY_AGENT__" in found


def test_all_that_is_wrong_is_said_at_once(place: Path) -> None:
    found = refused(place, '[agent]\ndevice_id = "A"\nname = "x"\n[nats]\nport = 1\n')
    assert len(found.splitlines()) == 4


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSettings, match=r"cannot read the configuration .*/none\.toml: No such file"
    ):
        load(str(tmp_path / "none.toml"), {})
    with pytest.raises(InvalidSettings, match="Is a directory"):
        load(str(tmp_path), {})
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    with pytest.raises(InvalidSettings, match="cannot read the configuration"):
        load(str(tmp_path / "latin.toml"), {})


def test_no_value_is_told(place: Path) -> None:
    text = (
        LEAST
        + '[nats]\nservers = [5, "nats://user:hunter2@host"]\ncredentials = ["hunter2"]\nhunter3 = "hunter2"\n'
    )
    assert "hunter2" not in refused(place, text)


def test_what_is_trusted_is_handed_to_the_engine(place: Path) -> None:
    from harmony_agent.app import trust
    from tests.keys import ROSTER

    none = trust(read(place, LEAST))
    assert (none.require, none.keys) == (False, {})
    made = trust(read(place, LEAST + f'[trust]\nrequire = true\nkeys = ["{ROSTER.spelt}"]\n'))
    assert (made.require, made.keys) == (True, {ROSTER.id: ROSTER.public})


@pytest.mark.parametrize("name", broken.TOML)
def test_toml_that_is_none_is_told_with_its_place(place: Path, name: str) -> None:
    place.write_bytes(broken.TOML[name].encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidSettings) as caught:
        load(str(place), {})
    assert re.search(
        r"line [1-9][0-9]*, column [1-9][0-9]*|at end of document|agent: ", str(caught.value)
    )


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000, "\udcff", '"\\ud800"', "\0"])
def test_an_override_that_is_none_is_told(place: Path, value: str) -> None:
    place.write_text(LEAST)
    with pytest.raises(InvalidSettings):
        load(str(place), {"HARMONY_AGENT__INTERVALS__POLL": value})
    with pytest.raises(InvalidSettings):
        load(str(place), {"HARMONY_AGENT__AGENT__DEVICE_ID": value})


@pytest.mark.parametrize("value", ["2026-13-45", "2026-02-30", "2026-11-29"])
def test_a_date_is_no_number(place: Path, value: str) -> None:
    place.write_text(LEAST)
    with pytest.raises(InvalidSettings, match=r"intervals\.poll"):
        load(str(place), {"HARMONY_AGENT__INTERVALS__POLL": value})
