"""Each key and each flag of an input is in the manifest, or named in a comment; what comes of any
input is valid.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harmony_fleet.errors import HarmonyError
from harmony_fleet.importing.compose_keys import SAME, SPECIAL, WHY
from harmony_fleet.importing.options import NOT_YET, OPTIONS
from harmony_fleet.importing.quadlet import _OWN, KEYS
from harmony_fleet.importing.run_line import SWITCHES
from harmony_fleet.importing.whole import Import, imported
from scores.container import Container
from tests.unit.importing.read import Read, read

FIELDS = {
    "add-host": "extra_hosts",
    "annotation": "annotations",
    "device": "devices",
    "device-cgroup-rule": "device_cgroup_rules",
    "entrypoint": "command",
    "env-file": "env",
    "group-add": "groups",
    "health-cmd": "healthcheck",
    "health-interval": "healthcheck",
    "health-retries": "healthcheck",
    "health-start-period": "healthcheck",
    "health-timeout": "healthcheck",
    "ipc": "host_ipc",
    "ip": "networks",
    "ip6": "networks",
    "label": "labels",
    "network-alias": "networks",
    "log-opt": "log_size",
    "mount": "mounts",
    "no-healthcheck": "no_healthcheck",
    "pid": "host_pid",
    "pids-limit": "pids",
    "publish": "ports",
    "stop-timeout": "stop_grace_seconds",
    "sysctl": "sysctls",
    "tmpfs": "mounts",
    "tz": "timezone",
    "ulimit": "ulimits",
    "volume": "mounts",
    "workdir": "working_dir",
}
"""Options of `podman run`, and the field that each becomes where that isn't named alike."""
GOOD = {
    "add-host": "broker:192.0.2.1",
    "annotation": "a=b",
    "cap-add": "NET_ADMIN",
    "cap-drop": "ALL",
    "cpus": "0.5",
    "device": "/dev/ttyUSB0",
    "device-cgroup-rule": "c 189:* rwm",
    "dns": "192.0.2.53",
    "dns-search": "lan",
    "entrypoint": "httpd -f",
    "env": "A=1",
    "env-file": "web.env",
    "group-add": "dialout",
    "health-cmd": "true",
    "health-retries": "3",
    "health-interval": "30s",
    "health-start-period": "30s",
    "health-timeout": "30s",
    "hostname": "web",
    "image": "docker.io/library/nginx:1",
    "init": "true",
    "ipc": "host",
    "label": "a=b",
    "log-driver": "k8s-file",
    "log-opt": "max-size=10m",
    "memory": "64m",
    "mount": "type=bind,source=/srv/m,target=/m",
    "ip": "10.89.5.10",
    "ip6": "fd00::5",
    "network": "host",
    "network-alias": "mqtt",
    "no-healthcheck": "true",
    "pid": "host",
    "pids-limit": "100",
    "privileged": "true",
    "publish": "8080:80",
    "pull": "always",
    "read-only": "true",
    "restart": "on-failure:3",
    "restart-tries": "3",
    "security-opt": "no-new-privileges",
    "shm-size": "64m",
    "stop-signal": "INT",
    "stop-timeout": "30",
    "sysctl": "net.ipv4.ip_forward=1",
    "tmpfs": "/run:size=64m",
    "tty": "true",
    "tz": "Europe/Berlin",
    "ulimit": "nofile=1024:2048",
    "user": "1000:1000",
    "userns": "keep-id",
    "volume": "/srv/x:/x:ro",
    "workdir": "/app",
}
"""A value of each option that a Container can have."""
TEXTS = st.one_of(
    st.sampled_from([*GOOD.values(), "", "x", "true", "no", "1", "-1", "a=b", "a:b:c", "/", "$A"]),
    st.text(max_size=12),
)
SERVICE_VALUES: Any = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(-5, 70_000)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
SERVICE_KEYS = sorted({*SAME, *SPECIAL, *WHY, "container_name", "x-odd", "mac_address"})


def field_of(option: str) -> str:
    name = FIELDS.get(option, option.replace("-", "_"))
    return name if name in Container.model_fields else ""


def made_of(files: dict[str, str]) -> Read | None:
    """The import of these files; None where it is refused as a whole, with a code."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return read(Path(folder), files)
        except HarmonyError:
            return None


def score_of(made: Read) -> dict[str, Any]:
    [found] = [one for one in made.value["scores"] if one["kind"] == "Container"]
    assert isinstance(found, dict)
    return found


def test_each_option_has_a_good_value_and_a_field() -> None:
    assert set(GOOD) == set(OPTIONS)
    assert not set(OPTIONS) & set(NOT_YET)
    for option in set(OPTIONS) - {"security-opt"}:
        assert field_of(option), option
    assert set(SAME.values()) | set(KEYS.values()) <= set(OPTIONS) | set(NOT_YET)


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_a_good_value_of_each_option_is_taken(option: str, tmp_path: Path) -> None:
    more = {
        "health-interval": "--health-cmd true",
        "health-retries": "--health-cmd true",
        "health-start-period": "--health-cmd true",
        "health-timeout": "--health-cmd true",
        **dict.fromkeys(("ip", "ip6", "network-alias"), "--network iot"),
    }.get(option, "")
    (tmp_path / "web.env").write_text("A=1\n")
    value = "" if option in SWITCHES else f"={GOOD[option]!r}"
    flags = f"--{option}{value}" if option != "image" else ""
    made = read(tmp_path, {"run.txt": f"podman run --name web {more} {flags} docker.io/x/y\n"})
    field = "no_new_privileges" if option == "security-opt" else field_of(option)
    assert field in made.score("web")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted({*OPTIONS, *NOT_YET, "odd"})), TEXTS), max_size=8),
    st.lists(st.text(alphabet="ab-_./ ", min_size=1, max_size=5), max_size=2),
)
def test_each_flag_of_a_line_is_there(flags: list[tuple[str, str]], words: list[str]) -> None:
    typed = ["podman", "run", "--name", "web"]
    typed += [f"--{name}={value}" for name, value in flags if name != "image"]
    text = " ".join(shell_word(word) for word in [*typed, "docker.io/x/y", *words])
    made = made_of({"run.txt": text.replace("\n", " ") + "\n"})
    if made is None:
        return
    score = score_of(made)
    for name, _ in flags:
        there = field_of(name) in score or (name == "security-opt" and "no_new_privileges" in score)
        there = there or (name == "health-cmd" and "no_healthcheck" in score)
        there = there or (name == "env-file" and "env_files" in score)
        there = there or (name == "network" and "networks" in score)
        there = there or (name in ("ip", "ip6", "network-alias") and "only where" in made.comments)
        assert name == "image" or there or named(made, f"--{name}", field_of(name)), (
            name,
            made.text,
        )
    if words:
        assert score["args"] == words or named(made, "args", "args")


def shell_word(word: str) -> str:
    quote = "'\"'\"'"
    return f"'{word.replace(chr(39), quote)}'"


def named(made: Read, *names: str) -> bool:
    return any(name and f"#   {name}" in made.comments for name in names)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.sampled_from(SERVICE_KEYS), SERVICE_VALUES, max_size=7))
@example({"ports": [{"target": 80, "published": 8080, "odd": 1}]})
@example({"healthcheck": {"test": ["CMD-SHELL", "curl x | grep y"], "odd": "1"}})
@example({"image": "x", "volumes": ["/:/host"]})
def test_each_key_of_a_service_is_there(service: dict[str, Any]) -> None:
    made = made_of({"compose.yaml": json.dumps({"services": {"web": service}})})
    if made is None:
        return
    score = score_of(made)
    for key, value in service.items():
        option = SAME.get(key, key)
        fields = {field_of(option), *SERVICE_FIELDS.get(key, ())} - {""}
        empty = value in (None, "", [], {}) or key == "container_name"
        assert empty or fields & set(score) or mentions(made, key, fields), (key, made.text)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["services", "volumes", "networks", "name", "secrets", "x-a", "odd"]),
        SERVICE_VALUES,
    )
)
def test_each_key_of_a_compose_file_is_there(document: dict[str, Any]) -> None:
    made = made_of({"compose.yaml": json.dumps({"services": {"web": None}, **document})})
    for key in set(document) - {"services", "name"} if made is not None else ():
        value, kind = document[key], {"volumes": "Volume", "networks": "Network"}.get(key)
        named_there = f"#   {key}" in made.comments
        if kind and isinstance(value, dict) and value:
            scores = [one for one in made.value["scores"] if one["kind"] == kind]
            assert scores or named_there or "it can't be made valid" in made.comments
        else:
            assert value in (None, "", [], {}, False, 0) or named_there


SERVICE_FIELDS = {
    "command": ("args",),
    "depends_on": ("after",),
    "deploy": ("cpus", "memory", "pids", "restart", "restart_tries"),
    "entrypoint": ("command",),
    "env_file": ("env", "env_files"),
    "healthcheck": ("healthcheck", "no_healthcheck"),
    "logging": ("log_driver", "log_size"),
    "networks": ("network", "networks"),
    "network_mode": ("network", "networks"),
    "security_opt": ("security_opt", "no_new_privileges"),
}


def mentions(made: Read, key: str, fields: set[str]) -> bool:
    return named(made, key, *fields) or f"${key}" in made.comments


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted({*KEYS, *_OWN, "AutoUpdate", "Odd"})),
            st.text(alphabet="ab/:=.1 ", max_size=10),
        ),
        max_size=8,
    )
)
def test_each_key_of_a_quadlet_is_there(lines: list[tuple[str, str]]) -> None:
    text = "[Container]\nImage=docker.io/x/y\n" + "".join(f"{key}={one}\n" for key, one in lines)
    made = made_of({"web.container": text})
    assert made is not None
    score = score_of(made)
    for key, value in lines:
        option = KEYS.get(key, "")
        own = {"Exec": "args", "User": "user", "Group": "user"}.get(key, "")
        fields = {field_of(option), own, *QUADLET_FIELDS.get(key, ())} - {""}
        there = fields & set(score) or named(made, f"[Container] {key}", *fields)
        there = there or (
            key == "PodmanArgs" and (not value.strip() or named(made, value.split()[0]))
        )
        only_one = key in ("IP", "IP6", "NetworkAlias") and "only where" in made.comments
        assert there or only_one or not value.strip(), (key, made.text)


QUADLET_FIELDS = {
    "EnvironmentFile": ("env_files",),
    "HealthCmd": ("no_healthcheck",),
    **dict.fromkeys(["Network", "IP", "IP6", "NetworkAlias"], ("networks",)),
    "NoNewPrivileges": ("no_new_privileges",),
    **dict.fromkeys(
        [
            "AppArmor",
            "Mask",
            "SeccompProfile",
            "SecurityLabelDisable",
            "SecurityLabelType",
            "SecurityLabelLevel",
            "Unmask",
        ],
        ("security_opt",),
    ),
}


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=200))
def test_a_unit_is_taken_as_it_is(text: str) -> None:
    plain = text.replace("\r", "").replace("\x00", "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "web.service")
        path.write_bytes(plain.encode("utf-8", errors="replace"))
        try:
            made = Read(imported(Import([str(path)], "web")))
        except HarmonyError:
            return
        wanted = path.read_bytes().decode("utf-8-sig")
        assert made.score("web.service")["content"].rstrip("\n") == wanted.rstrip("\n")
