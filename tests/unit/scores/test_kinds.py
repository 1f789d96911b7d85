"""Each kind's fields: what is taken, what is refused, with which code and where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scores import Container, File, Manifest, Probe, SystemdUnit, TcpProbe
from scores.canonical import canonical
from scores.container_values import in_bytes
from scores.file import MAX_INLINE
from scores.manifest import SCORE_TYPES, InvalidManifest, decode, validate
from scores.systemd_unit import MAX_UNIT_FILE
from tests.unit.scores.values import (
    CONTAINER,
    EACH,
    FILE,
    NETWORK,
    PACKAGE,
    PROBE,
    UNIT,
    UPGRADE,
    VOLUME,
    manifest,
)

PLAIN = {"kind": "File", "name": "f", "path": "/srv/f"}
DIGEST = "sha256:" + "0" * 64
OBJECT = {"bucket": "b", "name": "n", "digest": DIGEST}


def _mount(**fields: Any) -> dict[str, Any]:
    return {**CONTAINER, "mounts": [{"target": "/t", **fields}]}


INIT = {"name": "i"}
MASK = {"kind": "SystemdUnit", "name": "a.service", "masked": True}
PORT = {"host_port": 1, "container_port": 1}
TMPFS = {"type": "tmpfs", "target": "/t"}


def _http(**fields: Any) -> dict[str, Any]:
    return {**UNIT, "liveness": {"http": {"port": 1, **fields}}}


def _devices(*devices: dict[str, str]) -> dict[str, Any]:
    return {**CONTAINER, "devices": list(devices)}


TWICE = ({"source": "/dev/a"}, {"source": "/dev/b", "target": "/dev/a"})


def _rules(*rules: str) -> dict[str, Any]:
    return {**CONTAINER, "device_cgroup_rules": list(rules)}


def _pace(**fields: Any) -> dict[str, Any]:
    return {**UNIT, "liveness": {**PROBE, **fields}}


def _port(**fields: Any) -> dict[str, Any]:
    return {**CONTAINER, "ports": [{"host_port": 1, "container_port": 1, **fields}]}


GOOD: dict[str, Any] = {
    "name of 253": {**FILE, "name": "n" * 253},
    "name with all characters": {**FILE, "name": "_Az09._@:\\-"},
    "path of 4095": {**FILE, "path": ("/" + "p" * 199) * 20 + "/" + "p" * 94},
    "path with spaces and dots": {**FILE, "path": "/srv/a b/...c/é"},
    "content of 512 KiB": {**FILE, "content": "x" * MAX_INLINE},
    "empty content": {**FILE, "content": ""},
    "content with NUL": {**FILE, "content": "a\0b"},
    "base64": {**PLAIN, "content_base64": "AAE="},
    "object": {**PLAIN, "object": OBJECT},
    "directory": {**PLAIN, "type": "directory", "mode": "0755", "parents": True},
    "symlink": {**PLAIN, "type": "symlink", "target": "../x", "owner": "root"},
    "absent": {**PLAIN, "type": "absent"},
    "setuid": {**FILE, "mode": "4755"},
    "numeric owner": {**FILE, "owner": "1000", "group": "0"},
    "getty@tty1": {"kind": "SystemdUnit", "name": "getty@tty1.service", "state": "running"},
    "escaped instance": {"kind": "SystemdUnit", "name": "x@a\\x2db.service"},
    "template": {**UNIT, "name": "x@.service"},
    "template, none": {**UNIT, "name": "x@.service", "state": "none"},
    "masked": {"kind": "SystemdUnit", "name": "x.service", "masked": True},
    "masked and stopped": {
        "kind": "SystemdUnit",
        "name": "x.service",
        "masked": True,
        "state": "stopped",
    },
    "masked and disabled": {
        "kind": "SystemdUnit",
        "name": "x.service",
        "masked": True,
        "enabled": False,
    },
    "unit file of 512 KiB": {**UNIT, "content": "x" * MAX_UNIT_FILE},
    "slice": {"kind": "SystemdUnit", "name": "-.slice"} | {"name": "a-b.slice"},
    "image by digest": {**CONTAINER, "image": f"registry.test:5000/a/b@{DIGEST}"},
    "memory in bytes": {**CONTAINER, "memory": 4 * 1024 * 1024},
    "least memory": {**CONTAINER, "memory": "4Mi"},
    "least tmpfs": _mount(type="tmpfs", size="64Ki"),
    "a scope that is there": {"kind": "SystemdUnit", "name": "init.scope", "state": "none"},
    "memory at most": {**CONTAINER, "memory": 2**53 - 1},
    "volume": _mount(type="volume", source="data"),
    "tmpfs": _mount(type="tmpfs", size="1Gi"),
    "same port, other protocol": {
        **CONTAINER,
        "ports": [
            {"host_port": 53, "container_port": 53, "protocol": "udp"},
            {"host_port": 53, "container_port": 53},
        ],
    },
    "realtime signal": {**CONTAINER, "stop_signal": "SIGRTMIN+3"},
    "exec probe": {**CONTAINER, "readiness": {"exec": ["true"]}},
    "whole cpus": {**CONTAINER, "cpus": 2},
    "time without fraction": {**UPGRADE, "expires_at": "2026-11-29T18:00:00Z"},
    "identifier of 128": {**UPGRADE, "attempt_id": "a" * 128},
}


@pytest.mark.parametrize("score", GOOD.values(), ids=GOOD)
def test_taken(score: dict[str, Any]) -> None:
    data = canonical(manifest(score))
    assert decode(data, device="pi-01", deployment="web").canonical() == data


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no name": ({key: value for key, value in FILE.items() if key != "name"}, "name", "Missing"),
    "empty name": ({**FILE, "name": ""}, "name", "TooShort"),
    "name of 254": ({**FILE, "name": "n" * 254}, "name", "TooLong"),
    "name with a dot first": ({**FILE, "name": ".a"}, "name", "InvalidName"),
    "name with a dash first": ({**FILE, "name": "-a"}, "name", "InvalidName"),
    "name with a slash": ({**FILE, "name": "a/b"}, "name", "InvalidName"),
    "name with a space": ({**FILE, "name": "a b"}, "name", "InvalidName"),
    "name with a newline at its end": ({**FILE, "name": "a\n"}, "name", "InvalidName"),
    "name with an umlaut": ({**FILE, "name": "ä"}, "name", "InvalidName"),
    "name with NUL": ({**FILE, "name": "a\0"}, "name", "InvalidName"),
    "name with a surrogate": ({**FILE, "name": "a\ud800"}, "name", "NotUnicode"),
    "name number": ({**FILE, "name": 5}, "name", "WrongType"),
    "drift": ({**FILE, "drift": "ignore"}, "drift", "NotAllowed"),
    "on_remove": ({**FILE, "on_remove": "keep"}, "on_remove", "NotAllowed"),
    "adopt": ({**FILE, "adopt": "yes"}, "adopt", "WrongType"),
    "no path": ({"kind": "File", "name": "f", "content": ""}, "path", "Missing"),
    "relative path": ({**FILE, "path": "srv/a"}, "path", "PathNotNormal"),
    "path with ..": ({**FILE, "path": "/srv/../etc"}, "path", "PathNotNormal"),
    "path with .": ({**FILE, "path": "/srv/./a"}, "path", "PathNotNormal"),
    "path with //": ({**FILE, "path": "//srv"}, "path", "PathNotNormal"),
    "path with / at its end": ({**FILE, "path": "/srv/"}, "path", "PathNotNormal"),
    "path /": ({**FILE, "path": "/"}, "path", "PathNotNormal"),
    "path empty": ({**FILE, "path": ""}, "path", "PathNotNormal"),
    "path with NUL": ({**FILE, "path": "/a\0b"}, "path", "NulInText"),
    "path with a surrogate": ({**FILE, "path": "/a\udcff"}, "path", "NotUnicode"),
    "path of 4096": ({**FILE, "path": "/p" * 2048}, "path", "PathTooLong"),
    "part of 256": ({**FILE, "path": "/" + "p" * 256}, "path", "PathTooLong"),
    "part of 256 bytes": ({**FILE, "path": "/" + "é" * 128}, "path", "PathTooLong"),
    "content over 512 KiB": ({**FILE, "content": "x" * (MAX_INLINE + 1)}, "content", "ContentTooLarge"),
    "content over 512 KiB in bytes": ({**FILE, "content": "é" * (MAX_INLINE // 2 + 1)}, "content", "ContentTooLarge"),
    "content with a surrogate": ({**FILE, "content": "\ud800"}, "content", "NotUnicode"),
    "content and base64": ({**FILE, "content_base64": "AA=="}, "", "ExactlyOneOf"),
    "content and object": ({**FILE, "object": OBJECT}, "", "ExactlyOneOf"),
    "no content": (PLAIN, "", "ExactlyOneOf"),
    "base64": ({**PLAIN, "content_base64": "A"}, "content_base64", "InvalidBase64"),
    "base64 with space": ({**PLAIN, "content_base64": "AA ==" }, "content_base64", "InvalidBase64"),
    "base64 not ASCII": ({**PLAIN, "content_base64": "é"}, "content_base64", "InvalidBase64"),
    "object's digest": ({**PLAIN, "object": {**OBJECT, "digest": "md5:0"}}, "object.digest", "InvalidDigest"),
    "object's bucket": ({**PLAIN, "object": {**OBJECT, "bucket": "a.b"}}, "object.bucket", "InvalidFormat"),
    "directory with content": ({**FILE, "type": "directory"}, "", "FieldNotForType"),
    "file with target": ({**FILE, "target": "x"}, "", "FieldNotForType"),
    "symlink without target": ({**PLAIN, "type": "symlink"}, "", "FieldNotForType"),
    "symlink with mode": ({**PLAIN, "type": "symlink", "target": "x", "mode": "0644"}, "", "FieldNotForType"),
    "target with NUL": ({**PLAIN, "type": "symlink", "target": "a\0"}, "target", "NulInText"),
    "absent with owner": ({**PLAIN, "type": "absent", "owner": "root"}, "", "FieldNotForType"),
    "absent with mode": ({**PLAIN, "type": "absent", "mode": "0644"}, "", "FieldNotForType"),
    "type": ({**PLAIN, "type": "fifo"}, "type", "NotAllowed"),
    "mode of 3": ({**FILE, "mode": "644"}, "mode", "InvalidFormat"),
    "mode not octal": ({**FILE, "mode": "0648"}, "mode", "InvalidFormat"),
    "mode with a newline": ({**FILE, "mode": "0644\n"}, "mode", "InvalidFormat"),
    "mode as number": ({**FILE, "mode": 420}, "mode", "WrongType"),
    "owner": ({**FILE, "owner": "a:b"}, "owner", "InvalidFormat"),
    "owner number": ({**FILE, "owner": 0}, "owner", "WrongType"),
    "a b.service": ({**UNIT, "name": "a b.service"}, "name", "InvalidName"),
    "../x.service": ({**UNIT, "name": "../x.service"}, "name", "InvalidName"),
    "a scope with a unit file": ({**UNIT, "name": "x.scope"}, "content", "ScopeWithContent"),
    "unit without suffix": ({**UNIT, "name": "web"}, "name", "InvalidUnitName"),
    "unit with a foreign suffix": ({**UNIT, "name": "web.conf"}, "name", "InvalidUnitName"),
    "unit with two @": ({**UNIT, "name": "a@b@c.service"}, "name", "InvalidUnitName"),
    "unit of @ alone": ({**UNIT, "name": "@.service"}, "name", "InvalidUnitName"),
    "unit file with NUL": ({**UNIT, "content": "a\0"}, "content", "NulInText"),
    "unit file over 512 KiB": ({**UNIT, "content": "x" * (MAX_UNIT_FILE + 1)}, "content", "ContentTooLarge"),
    "drop-in without .conf": ({**UNIT, "dropins": {"a": ""}}, "dropins", "InvalidDropinName"),
    "drop-in in a folder": ({**UNIT, "dropins": {"a/b.conf": ""}}, "dropins", "InvalidDropinName"),
    "drop-in ..conf": ({**UNIT, "dropins": {"..conf": ""}}, "dropins", "InvalidDropinName"),
    "drop-in of 256": ({**UNIT, "dropins": {"a" * 251 + ".conf": ""}}, "dropins", "InvalidDropinName"),
    "drop-in's text": ({**UNIT, "dropins": {"a.conf": "x\0"}}, "dropins.a.conf", "NulInText"),
    "template running": ({**UNIT, "name": "x@.service", "state": "running"}, "", "TemplateNotStartable"),
    "template stopped": ({**UNIT, "name": "x@.service", "state": "stopped"}, "", "TemplateNotStartable"),
    "masked running": ({**MASK, "state": "running"}, "", "MaskedNotStartable"),
    "masked with content": ({**UNIT, "masked": True}, "", "MaskedWithContent"),
    "masked enabled": ({**MASK, "enabled": True}, "", "MaskedNotEnabled"),
    "exec readiness of a unit": ({**UNIT, "readiness": {"exec": ["a"]}}, "readiness.exec", "ExecProbeNotForUnit"),
    "exec liveness of a unit": ({**UNIT, "liveness": {"exec": ["a"]}}, "liveness.exec", "ExecProbeNotForUnit"),
    "no way to probe": ({**UNIT, "readiness": {}}, "readiness", "ExactlyOneOf"),
    "two ways to probe": ({**UNIT, "readiness": {**PROBE, "tcp": {"port": 1}}}, "readiness", "ExactlyOneOf"),
    "probe's port": ({**UNIT, "liveness": {"tcp": {"port": 0}}}, "liveness.tcp.port", "OutOfRange"),
    "probe's path": (_http(path="x"), "liveness.http.path", "InvalidFormat"),
    "probe's path with a newline": (_http(path="/\r\nA: b"), "liveness.http.path", "InvalidFormat"),
    "probe's scheme": (_http(scheme="file"), "liveness.http.scheme", "NotAllowed"),
    "probe's period 0": (_pace(period_seconds=0), "liveness.period_seconds", "OutOfRange"),
    "probe's period text": (_pace(period_seconds="10"), "liveness.period_seconds", "WrongType"),
    "probe's period true": (_pace(period_seconds=True), "liveness.period_seconds", "WrongType"),
    "probe's threshold 0": (_pace(failure_threshold=0), "liveness.failure_threshold", "OutOfRange"),
    "probe with shell": ({**CONTAINER, "liveness": {"shell": "true"}}, "liveness.shell", "UnknownField"),
    "container named as a unit": ({**CONTAINER, "name": "a@b"}, "name", "InvalidContainerName"),
    "device not below /dev": (_devices({"source": "/etc/a"}), "devices[0].source", "InvalidDevicePath"),
    "device through ..": (_devices({"source": "/dev/../a"}), "devices[0].source", "PathNotNormal"),
    "device's target": (_devices({"source": "/dev/a", "target": "/a"}), "devices[0].target", "InvalidDevicePath"),
    "device's access": (_devices({"source": "/dev/a", "access": "x"}), "devices[0].access", "InvalidDeviceAccess"),
    "device's empty access": (_devices({"source": "/dev/a", "access": ""}), "devices[0].access", "InvalidDeviceAccess"),
    "device twice": (_devices(*TWICE), "devices[1].target", "DuplicateDevice"),
    "device rule": (_rules("c 189 rwm"), "device_cgroup_rules[0]", "InvalidDeviceRule"),
    "device rule without access": (_rules("c 189:* "), "device_cgroup_rules[0]", "InvalidDeviceRule"),
    "keep-groups beside others": ({**CONTAINER, "groups": ["keep-groups", "20"]}, "groups", "FieldConflict"),
    "label": ({**CONTAINER, "security_opt": {"label": ["off"]}}, "security_opt.label[0]", "InvalidSecurityLabel"),
    "seccomp": ({**CONTAINER, "security_opt": {"seccomp": "off"}}, "security_opt.seccomp", "PathNotNormal"),
    "log size alone": ({**CONTAINER, "log_size": "1Mi"}, "log_size", "FieldConflict"),
    "log size of the journal": ({**CONTAINER, "log_driver": "journald", "log_size": "1Mi"}, "log_size", "FieldConflict"),
    "log driver": ({**CONTAINER, "log_driver": "syslog"}, "log_driver", "NotAllowed"),
    "tries of never": ({**CONTAINER, "restart": "never", "restart_tries": 1}, "restart_tries", "FieldConflict"),
    "no tries": ({**CONTAINER, "restart_tries": 0}, "restart_tries", "OutOfRange"),
    "networks beside network": ({**CONTAINER, "network": "a", "networks": [{"name": "b"}]}, "networks", "FieldConflict"),
    "host among networks": ({**CONTAINER, "networks": [{"name": "host"}]}, "networks[0].name", "FieldConflict"),
    "network twice": ({**CONTAINER, "networks": [{"name": "a"}, {"name": "a"}]}, "networks[1].name", "DuplicateNetwork"),
    "fixed address": ({**CONTAINER, "networks": [{"name": "a", "address": "x"}]}, "networks[0].address", "InvalidAddress"),
    "volume's name as a unit's": ({**VOLUME, "name": "a@b"}, "name", "InvalidContainerName"),
    "volume adopted": ({**VOLUME, "adopt": True}, "adopt", "AdoptNotForVolume"),
    "volume restarted": ({**VOLUME, "driver": "A"}, "driver", "InvalidFormat"),
    "volume's on_remove": ({**VOLUME, "on_remove": "keep"}, "on_remove", "NotAllowed"),
    "file's on_remove": ({**FILE, "on_remove": "delete-data"}, "on_remove", "NotAllowed"),
    "network adopted": ({**NETWORK, "adopt": True}, "adopt", "AdoptNotForNetwork"),
    "network called host": ({**NETWORK, "name": "host"}, "name", "InvalidContainerName"),
    "subnet with a host": ({**NETWORK, "subnet": "10.0.0.1/24"}, "subnet", "InvalidSubnet"),
    "subnet without a length": ({**NETWORK, "subnet": "10.0.0.1"}, "subnet", "InvalidSubnet"),
    "gateway alone": ({**NETWORK, "gateway": "10.0.0.1"}, "gateway", "FieldConflict"),
    "gateway outside": ({**NETWORK, "subnet": "10.0.0.0/24", "gateway": "10.0.1.1"}, "gateway", "OutOfRange"),
    "a package that is no name": ({**PACKAGE, "name": "G_x"}, "name", "InvalidPackageName"),
    "a package with an option": ({**PACKAGE, "package": "-oDir::Etc=x"}, "package", "InvalidFormat"),
    "a package with a shell": ({**PACKAGE, "package": "a;reboot"}, "package", "InvalidFormat"),
    "a package's version": ({**PACKAGE, "version": "a b"}, "version", "InvalidFormat"),
    "adopt of a package": ({**PACKAGE, "adopt": True}, "adopt", "AdoptNotForPackage"),
    "macvlan with names": ({**NETWORK, "driver": "macvlan", "subnet": "10.0.0.0/24", "dns": False}, "dns", "FieldConflict"),
    "macvlan without subnet": ({**NETWORK, "driver": "macvlan"}, "driver", "FieldConflict"),
    "network's driver": ({**NETWORK, "driver": "host"}, "driver", "NotAllowed"),
    "no image": ({"kind": "Container", "name": "c"}, "image", "Missing"),
    "image empty": ({**CONTAINER, "image": ""}, "image", "TooShort"),
    "image with a space": ({**CONTAINER, "image": "a b"}, "image", "InvalidFormat"),
    "image like an option": ({**CONTAINER, "image": "--privileged"}, "image", "InvalidFormat"),
    "command text": ({**CONTAINER, "command": "httpd -f"}, "command", "WrongType"),
    "args with NUL": ({**CONTAINER, "args": ["a", "b\0"]}, "args[1]", "NulInText"),
    "args over 1024": ({**CONTAINER, "args": ["a"] * 1025}, "args", "TooMany"),
    "env number": ({**CONTAINER, "env": {"A": 1}}, "env.A", "WrongType"),
    "env empty name": ({**CONTAINER, "env": {"": "x"}}, "env", "InvalidEnvName"),
    "env name with =": ({**CONTAINER, "env": {"A=B": "x"}}, "env", "InvalidEnvName"),
    "env with NUL": ({**CONTAINER, "env": {"A": "x\0"}}, "env.A", "NulInText"),
    "env name with a surrogate": ({**CONTAINER, "env": {"\ud800": "x"}}, "env", "NotUnicode"),
    "relative env_files": ({**CONTAINER, "env_files": ["a"]}, "env_files[0]", "PathNotNormal"),
    "port 0": (_port(host_port=0), "ports[0].host_port", "OutOfRange"),
    "port 65536": (_port(container_port=65536), "ports[0].container_port", "OutOfRange"),
    "port's protocol": (_port(protocol="sctp"), "ports[0].protocol", "NotAllowed"),
    "port's address": (_port(host_ip="eth0"), "ports[0].host_ip", "InvalidFormat"),
    "port twice": ({**CONTAINER, "ports": [PORT] * 2}, "ports[1].host_port", "DuplicatePort"),
    "bind without source": (_mount(type="bind"), "mounts[0]", "FieldNotForType"),
    "bind with a relative source": (_mount(type="bind", source="a"), "mounts[0].source", "PathNotNormal"),
    "bind with .. in its source": (_mount(type="bind", source="/srv/../etc"), "mounts[0].source", "PathNotNormal"),
    "volume's name": (_mount(type="volume", source="/a"), "mounts[0].source", "InvalidName"),
    "tmpfs with source": (_mount(type="tmpfs", source="/a"), "mounts[0]", "FieldNotForType"),
    "size of a bind": (_mount(type="bind", source="/a", size=1), "mounts[0]", "FieldNotForType"),
    "target twice": ({**CONTAINER, "mounts": [TMPFS] * 2}, "mounts[1].target", "DuplicateMount"),
    "label of ours": ({**CONTAINER, "labels": {"io.harmony.device": "x"}}, "labels", "ReservedLabel"),
    "memory without its unit": ({**CONTAINER, "memory": 64}, "memory", "OutOfRange"),
    "memory as text without its unit": ({**CONTAINER, "memory": "512"}, "memory", "OutOfRange"),
    "too little memory": ({**CONTAINER, "memory": "4095Ki"}, "memory", "OutOfRange"),
    "size without its unit": (_mount(type="tmpfs", size=16), "mounts[0].size", "OutOfRange"),
    "memory 0": ({**CONTAINER, "memory": 0}, "memory", "OutOfRange"),
    "memory 0Mi": ({**CONTAINER, "memory": "0Mi"}, "memory", "InvalidQuantity"),
    "memory in MB": ({**CONTAINER, "memory": "64MB"}, "memory", "InvalidQuantity"),
    "memory with a newline": ({**CONTAINER, "memory": "64Mi\n"}, "memory", "InvalidQuantity"),
    "memory float": ({**CONTAINER, "memory": 1.5}, "memory", "WrongType"),
    "memory true": ({**CONTAINER, "memory": True}, "memory", "WrongType"),
    "memory too large": ({**CONTAINER, "memory": "9999999999999999Gi"}, "memory", "OutOfRange"),
    "cpus 0": ({**CONTAINER, "cpus": 0}, "cpus", "OutOfRange"),
    "cpus text": ({**CONTAINER, "cpus": "1"}, "cpus", "WrongType"),
    "pids 0": ({**CONTAINER, "pids": 0}, "pids", "OutOfRange"),
    "capability": ({**CONTAINER, "cap_add": ["net_admin"]}, "cap_add[0]", "InvalidFormat"),
    "signal": ({**CONTAINER, "stop_signal": "15"}, "stop_signal", "InvalidFormat"),
    "grace": ({**CONTAINER, "stop_grace_seconds": -1}, "stop_grace_seconds", "OutOfRange"),
    "restart": ({**CONTAINER, "restart": "unless-stopped"}, "restart", "NotAllowed"),
    "network": ({**CONTAINER, "network": "container:x"}, "network", "InvalidFormat"),
    "hostname": ({**CONTAINER, "hostname": "-a"}, "hostname", "InvalidFormat"),
    "init twice": ({**CONTAINER, "init_containers": [INIT] * 2}, "init_containers[1].name", "DuplicateResource"),
    "init's name": ({**CONTAINER, "init_containers": [{"name": "-"}]}, "init_containers[0].name", "InvalidFormat"),
    "healthcheck without command": ({**CONTAINER, "healthcheck": {"command": []}}, "healthcheck.command", "TooFew"),
    "attempt_id": ({**UPGRADE, "attempt_id": "../a"}, "attempt_id", "InvalidIdentifier"),
    "run_uid of 129": ({**UPGRADE, "run_uid": "a" * 129}, "run_uid", "InvalidIdentifier"),
    "expires_at without zone": ({**UPGRADE, "expires_at": "2026-11-29T18:00:00"}, "expires_at", "InvalidTime"),
    "expires_at on no day": ({**UPGRADE, "expires_at": "2026-02-30T18:00:00Z"}, "expires_at", "InvalidTime"),
    "expires_at number": ({**UPGRADE, "expires_at": 5}, "expires_at", "WrongType"),
}  # fmt: skip


@pytest.mark.parametrize(("score", "field", "code"), BAD.values(), ids=BAD)
def test_refused(score: dict[str, Any], field: str, code: str) -> None:
    text = json.dumps(
        manifest(score), ensure_ascii=False
    )  # a lone surrogate becomes its escape below
    with pytest.raises(InvalidManifest) as caught:
        decode(text.encode("utf-8", "backslashreplace"), device="pi-01", deployment="web")
    where = ".".join(part for part in ("scores[0]", field) if part)
    assert [tuple(error) for error in caught.value.errors] == [(where, code)]
    assert caught.value.code == code
    assert str(caught.value).startswith(f"{where}: ")


def test_a_template_and_a_masked_unit_are_not_to_run_by_themselves() -> None:
    assert SystemdUnit(name="web.service").wanted_state == "running"
    assert SystemdUnit(name="x@.service", content="").wanted_state == "none"
    assert SystemdUnit(name="x@.service", content="").is_template
    assert not SystemdUnit(name="x@1.service").is_template
    assert SystemdUnit(name="x@a\\x2db.timer").template == "x@.timer"
    assert SystemdUnit(name="x@1.service", content="").template == ""
    for name in ("x.service", "x@.service"):
        assert SystemdUnit(name=name).template == ""
    assert SystemdUnit(name="web.service", masked=True).wanted_state == "none"
    assert SystemdUnit(name="web.service", state="stopped").wanted_state == "stopped"


def test_needs_are_after_and_what_restarts_or_reloads() -> None:
    unit = SystemdUnit(
        name="a.service", after=["File/a", "File/b"], restart_on=["File/b"], reload_on=["File/c"]
    )
    assert unit.needs() == ("File/a", "File/b", "File/c")
    assert Container(name="c", image="i", after=["File/a"], restart_on=["File/a"]).needs() == (
        "File/a",
    )
    assert unit.key == "SystemdUnit/a.service"


@pytest.mark.parametrize(
    ("quantity", "count"),
    [(5, 5), ("5", 5), ("1Ki", 1024), ("64Mi", 67108864), ("2Gi", 2147483648)],
)
def test_quantities(quantity: int | str, count: int) -> None:
    assert in_bytes(quantity) == count


def test_no_quantity() -> None:
    with pytest.raises(ValueError, match="no quantity"):
        in_bytes("1 TB")


def test_content_as_bytes() -> None:
    assert File(name="a", path="/a", content="é").data() == b"\xc3\xa9"
    assert File(name="a", path="/a", content_base64="AAE=").data() == b"\0\1"
    assert File(name="a", path="/a", type="absent").data() is None


def test_a_repr_holds_no_content() -> None:
    secret = "hunter2marker"
    scores: list[Any] = [
        File(name="a", path="/a", content=secret),
        File(name="b", path="/b", content_base64=secret + "abc="),
        SystemdUnit(name="a.service", content=secret, dropins={"a.conf": secret}),
        Container(name="c", image="i", env={"A": secret}),
    ]
    assert secret not in repr(scores) + str(scores) + repr(Manifest(deployment="w", scores=scores))


def test_models_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        File(name="a", path="/a", content="").name = "b"  # type: ignore[misc]


def test_an_authors_mistake_in_python_is_explained_by_field() -> None:
    with pytest.raises(InvalidManifest, match=r"period_seconds: Input should be greater than 0"):
        validate(Probe, {"tcp": TcpProbe(port=1), "period_seconds": -1})


@pytest.mark.parametrize(
    ("quantity", "meant"),
    [(64, "64Mi"), ("64", "64Mi"), (512, "512Mi"), ("128Ki", "128Mi"), (1, ""), ("2Mi", "")],
)
def test_a_quantity_whose_unit_was_forgotten(quantity: int | str, meant: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        validate(Container, {**CONTAINER, "memory": quantity})
    told = str(caught.value)
    assert "at least 4Mi" in told
    assert (f"did you mean {meant}?" in told) if meant else "did you mean" not in told


@pytest.mark.parametrize(
    "score",
    [
        {**CONTAINER, "memory": 64},
        {**CONTAINER, "mounts": [{"type": "tmpfs", "target": "/t", "size": 16}]},
        {**UNIT, "name": "x.scope"},
    ],
)
def test_a_reader_of_what_stands_knows_no_later_rule(score: dict[str, Any]) -> None:
    value = {**manifest(score), "device": "pi-01", "deployment": "web"}
    data = canonical(value)
    with pytest.raises(InvalidManifest):
        decode(data, device="pi-01", deployment="web")
    kept = decode(data, device="pi-01", deployment="web", accepted=True)
    assert kept.canonical() == data


@pytest.mark.parametrize("kind", SCORE_TYPES)
def test_a_kind_with_a_process_can_be_stopped(kind: str) -> None:
    """What a fleet stops, or disables, keeps nothing running, whatever the kind."""
    score = SCORE_TYPES[kind].model_validate(EACH[kind])
    found = score.stopped()
    assert found.stopped() is found
    if not score.restarts:
        assert found is score
        return
    assert json.loads(found.canonical())["state"] == "stopped"
    assert found.model_dump(exclude={"state"}) == score.model_dump(exclude={"state"})
