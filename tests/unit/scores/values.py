"""One manifest of each kind as JSON objects, with every position that can hold a value, for the
tests of `scores`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.strategies import LINEAGE

Value = dict[str, Any]

FILE: Value = {
    "kind": "File",
    "name": "motd",
    "path": "/srv/web/motd",
    "content": "hi\n",
    "mode": "0644",
}
UNIT: Value = {
    "kind": "SystemdUnit",
    "name": "web.service",
    "content": "[Service]\nExecStart=/usr/bin/web\n",
}
CONTAINER: Value = {"kind": "Container", "name": "web", "image": "localhost/busybox:1.36"}
UPGRADE: Value = {
    "kind": "SystemUpgrade",
    "name": "weekly",
    "attempt_id": "a-1",
    "run_uid": "r-1",
    "expires_at": "2026-11-29T18:00:00.000Z",
}
SESSION: Value = {"kind": "Session", "name": "worker", "command": ["/usr/bin/top"]}
VOLUME: Value = {"kind": "Volume", "name": "data"}
NETWORK: Value = {"kind": "Network", "name": "home"}
PACKAGE: Value = {"kind": "Package", "name": "gpiod"}
EACH = {
    value["kind"]: value
    for value in (FILE, UNIT, CONTAINER, UPGRADE, SESSION, VOLUME, NETWORK, PACKAGE)
}

PROBE: Value = {
    "http": {"port": 8080, "path": "/ready", "scheme": "http"},
    "period_seconds": 5,
    "timeout_seconds": 0.5,
    "initial_delay_seconds": 1,
    "success_threshold": 1,
    "failure_threshold": 2,
}
COMMON: Value = {"drift": "report", "on_remove": "orphan", "adopt": True}
FULL: dict[str, Value] = {
    "File": {
        **FILE,
        **COMMON,
        "type": "file",
        "owner": "root",
        "group": "root",
        "parents": True,
        "after": ["SystemdUnit/web.service"],
    },
    "FileObject": {
        "kind": "File",
        "name": "big",
        "path": "/srv/web/big",
        "object": {"bucket": "files", "name": "big", "digest": "sha256:" + "0" * 64},
    },
    "FileLink": {
        "kind": "File",
        "name": "link",
        "path": "/srv/web/link",
        "type": "symlink",
        "target": "motd",
    },
    "SystemdUnit": {
        **UNIT,
        **COMMON,
        "dropins": {"10-mem.conf": "[Service]\nMemoryMax=64M\n"},
        "state": "running",
        "enabled": True,
        "masked": False,
        "restart_on": ["SystemUpgrade/weekly"],
        "reload_on": ["SystemUpgrade/weekly"],
        "readiness": PROBE,
        "liveness": {"tcp": {"port": 22}},
    },
    "Container": {
        **CONTAINER,
        **COMMON,
        "command": ["httpd"],
        "args": ["-f"],
        "env": {"PASSWORD": "x"},
        "env_files": ["/srv/web/env"],
        "ports": [
            {"host_port": 8080, "container_port": 80, "protocol": "tcp", "host_ip": "127.0.0.1"}
        ],
        "mounts": [
            {"type": "bind", "source": "/srv/web", "target": "/www", "read_only": True},
            {"type": "tmpfs", "target": "/tmp", "size": "64Mi"},
        ],
        "network": "lan",
        "user": "1000",
        "working_dir": "/www",
        "hostname": "web",
        "labels": {"team": "a"},
        "restart": "always",
        "state": "running",
        "pull": "missing",
        "stop_signal": "SIGTERM",
        "stop_grace_seconds": 5,
        "memory": "64Mi",
        "cpus": 0.5,
        "pids": 100,
        "cap_add": ["NET_ADMIN"],
        "cap_drop": ["ALL"],
        "read_only": True,
        "no_new_privileges": True,
        "init_containers": [
            {
                "name": "init",
                "image": "busybox",
                "command": ["true"],
                "args": ["x"],
                "env": {"A": "b"},
                "mounts": [{"type": "volume", "source": "data", "target": "/data"}],
                "user": "0",
                "timeout_seconds": 10,
            }
        ],
        "healthcheck": {
            "command": ["true"],
            "interval_seconds": 30,
            "timeout_seconds": 3,
            "start_period_seconds": 1,
            "retries": 3,
        },
        "readiness": {"exec": ["true"]},
        "liveness": PROBE,
    },
    "SystemUpgrade": {**UPGRADE, **COMMON},
    "Session": {
        **SESSION,
        "drift": "report",
        "on_remove": "orphan",
        "command": ["/usr/bin/top", "-b"],
        "working_dir": "/srv/web",
        "env": {"PASSWORD": "x"},
        "env_files": ["/srv/web/env"],
        "restart": "on-failure",
        "state": "running",
        "readiness": PROBE,
        "liveness": {"tcp": {"port": 22}},
    },
    "Volume": {
        **VOLUME,
        "drift": "report",
        "on_remove": "delete-data",
        "driver": "local",
        "labels": {"team": "web"},
    },
    "Network": {
        **NETWORK,
        "drift": "report",
        "on_remove": "orphan",
        "driver": "bridge",
        "subnet": "10.89.5.0/24",
        "gateway": "10.89.5.1",
        "internal": True,
        "labels": {"team": "web"},
    },
    "Package": {
        **PACKAGE,
        "drift": "report",
        "on_remove": "orphan",
        "package": "libgpiod2",
        "version": "1.6.3-1+b3",
    },
}
LATER: dict[str, Value] = {
    "NetworkDns": {**NETWORK, "name": "quiet", "dns": False},
    "SystemdUnitJob": {**UNIT, "name": "job.service", "ignore_failure": True},
    "ContainerAround": {
        **CONTAINER,
        "name": "around",
        "userns": "keep-id:uid=1883,gid=1883",
        "groups": ["20"],
        "shm_size": "256Mi",
        "ulimits": {"nofile": {"soft": 1024, "hard": 4096}},
        "sysctls": {"net.ipv4.ip_forward": "1"},
        "dns": ["192.0.2.53"],
        "dns_search": ["lan"],
        "extra_hosts": {"broker": "192.0.2.10"},
        "annotations": {"a.b/c": "d"},
        "timezone": "Europe/Berlin",
        "no_healthcheck": True,
        "mounts": [{"type": "bind", "source": "/srv/web", "target": "/www", "chown": True}],
    },
    "ContainerHardware": {
        **CONTAINER,
        "name": "hardware",
        "devices": [{"source": "/dev/serial/by-id/a", "target": "/dev/ttyUSB0", "access": "rw"}],
        "device_cgroup_rules": ["c 189:* rwm"],
        "groups": ["keep-groups"],
        "security_opt": {
            "label": ["disable"],
            "seccomp": "unconfined",
            "apparmor": "unconfined",
            "mask": ["/proc/uptime"],
            "unmask": ["/proc/acpi"],
        },
        "privileged": True,
        "host_pid": True,
        "host_ipc": True,
        "init": True,
        "tty": True,
        "log_driver": "k8s-file",
        "log_size": "10Mi",
        "restart_tries": 3,
        "networks": [{"name": "home", "aliases": ["mqtt"], "address": "10.89.5.10"}],
    },
    "ContainerPull": {
        **CONTAINER,
        "name": "pulled",
        "pull_at": "02:00-05:00",
        "login": {"user": "pi", "password": {"secret": "registry"}},
    },
    "ContainerJob": {**CONTAINER, "name": "job", "schedule": "0 3 * * *", "run_missed": True},
}
"""Fields that came after the digests of `FULL` were written down."""
ALL = FULL | LATER


def manifest(*scores: Value, **fields: Any) -> Value:
    """A manifest for ``pi-01.web``."""
    return {
        "api": "harmony/v1",
        "device": "pi-01",
        "deployment": "web",
        "lineage": LINEAGE,
        "generation": 3,
        "scores": list(scores),
        **fields,
    }


Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every position of a value: leaves, and the lists and objects that hold them."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*at, index))


def replaced(value: Any, at: Place, new: Any) -> Any:
    """A copy of `value` with `new` at a position."""
    if not at:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = replaced(value[at[0]], at[1:], new)
    return copy
