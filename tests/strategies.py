"""Hypothesis strategies for what passes the borders: names, Scores of every kind, manifests that
are valid as a whole.

`manifests()` draws Python values (what JSON or YAML gives); `wire_manifests()` their decoded
models. Every optional field is sometimes left out, sometimes set to its default and sometimes to
another value: the three differ on the wire.
"""

from __future__ import annotations

import base64
import string
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from scores.manifest import WireManifest

Value = dict[str, Any]

_ALNUM = string.ascii_letters + string.digits
UNIT_TYPES = (
    "service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope",
)  # fmt: skip
LINEAGE = "7b0e4a52-1111-4222-8333-444455556666"


def _joined(first: str, rest: str, most: int) -> st.SearchStrategy[str]:
    return st.builds(str.__add__, st.sampled_from(first), st.text(rest, max_size=most - 1))


def texts(most: int = 40, least: int = 0) -> st.SearchStrategy[str]:
    """Any text without NUL and lone surrogates; quotes, newlines and astral characters among it."""
    return st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        min_size=least,
        max_size=most,
    )


def device_names() -> st.SearchStrategy[str]:
    return st.from_regex(r"\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def container_names() -> st.SearchStrategy[str]:
    return _joined(_ALNUM, _ALNUM + "_.-", 40)


def resource_names() -> st.SearchStrategy[str]:
    return _joined(_ALNUM + "_@:\\", _ALNUM + "._@:\\-", 253)


def unit_names() -> st.SearchStrategy[str]:
    stem = _joined(_ALNUM + "_:\\", _ALNUM + "_.:\\-", 30)
    instance = st.just("") | st.text(_ALNUM + "_.:\\-", min_size=1, max_size=10).map("@".__add__)
    suffix = st.sampled_from(UNIT_TYPES)
    return st.builds("{}{}.{}".format, stem, instance, suffix)


def paths() -> st.SearchStrategy[str]:
    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0/")
    part = st.text(characters, min_size=1, max_size=20).filter(lambda text: text not in (".", ".."))
    return st.lists(part, min_size=1, max_size=5).map(lambda parts: "/" + "/".join(parts))


def times() -> st.SearchStrategy[str]:
    return st.builds(
        lambda moment, digits: moment.isoformat(timespec="seconds") + digits + "Z",
        st.datetimes(),
        st.just("") | st.text("0123456789", min_size=1, max_size=9).map(".".__add__),
    )


def numbers(least: float, most: float, *, zero: bool = True) -> st.SearchStrategy[int | float]:
    """Whole numbers as integers, as the wire has them, and others as floats."""
    whole = st.integers(int(least) or int(not zero), int(most))
    others = st.floats(least, most, exclude_min=not zero, allow_subnormal=False)
    return whole | others.filter(lambda number: not number.is_integer())


def _some(required: Value, optional: Value) -> st.SearchStrategy[Value]:
    return st.fixed_dictionaries(required, optional=optional)


def probes(*, exec_too: bool) -> st.SearchStrategy[Value]:
    ports = st.integers(1, 65535)
    visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20).map(
        "/".__add__
    )
    ways: list[st.SearchStrategy[Value]] = [
        _some({"port": ports}, {"path": visible, "scheme": st.sampled_from(["http", "https"])}).map(
            lambda http: {"http": http}
        ),
        ports.map(lambda port: {"tcp": {"port": port}}),
    ]
    if exec_too:
        ways.append(
            st.lists(texts(), min_size=1, max_size=4).map(lambda command: {"exec": command})
        )
    pace = {
        "period_seconds": numbers(0, 86_400, zero=False),
        "timeout_seconds": numbers(0, 86_400, zero=False),
        "initial_delay_seconds": numbers(0, 86_400),
        "success_threshold": st.integers(1, 1000),
        "failure_threshold": st.integers(1, 1000),
    }
    return st.builds(lambda way, rest: {**way, **rest}, st.one_of(ways), _some({}, pace))


def quantities() -> st.SearchStrategy[int | str]:
    """Enough for a container's memory."""
    least = 4 * 1024 * 1024
    text = st.builds(
        "{}{}".format, st.integers(4096, 1_000_000), st.sampled_from(["Ki", "Mi", "Gi"])
    )
    return text | st.integers(least, 2**53 - 1) | st.integers(least, 2**53 - 1).map(str)


_COMMON: Value = {
    "drift": st.sampled_from(["enforce", "report"]),
    "on_remove": st.sampled_from(["delete", "orphan"]),
    "adopt": st.booleans(),
}
_OWNER: Value = {
    "owner": st.sampled_from(["root", "0", "fleet-agent", "_apt", "box$"]),
    "group": st.sampled_from(["root", "4294967295", "www-data"]),
    "parents": st.booleans(),
}


@st.composite
def files(draw: st.DrawFn) -> Value:
    """A File of any type, as a JSON object."""
    kind = draw(st.sampled_from(["file", "directory", "symlink", "absent"]))
    mode = st.from_regex(r"\A[0-7]{4}\Z")
    fields: Value = {}
    if kind == "file":
        reference = st.fixed_dictionaries(
            {
                "bucket": _joined(_ALNUM, _ALNUM + "_-", 20),
                "name": texts(20, 1),
                "digest": st.binary(min_size=32, max_size=32).map(
                    lambda raw: f"sha256:{raw.hex()}"
                ),
            }
        )
        way, value = draw(
            st.tuples(
                st.just("content"), st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
            )
            | st.tuples(
                st.just("content_base64"),
                st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode()),
            )
            | st.tuples(st.just("object"), reference)
        )
        fields = {way: value, **draw(_some({}, {"mode": mode, **_OWNER, "type": st.just("file")}))}
    elif kind == "directory":
        fields = {"type": kind, **draw(_some({}, {"mode": mode, **_OWNER}))}
    elif kind == "symlink":
        fields = {"type": kind, "target": draw(texts(30, 1)), **draw(_some({}, _OWNER))}
    else:
        fields = {"type": kind}
    common = draw(_some({}, _COMMON))
    return {
        "kind": "File",
        "name": draw(resource_names()),
        "path": draw(paths()),
        **fields,
        **common,
    }


@st.composite
def units(draw: st.DrawFn) -> Value:
    """A SystemdUnit, as a JSON object."""
    optional = {
        "content": texts(60),
        "dropins": st.dictionaries(
            _joined(_ALNUM, _ALNUM + "-", 8).map(lambda stem: f"{stem}.conf"), texts(), max_size=3
        ),
        "state": st.sampled_from(["running", "stopped", "none", None]),
        "enabled": st.sampled_from([True, False, None]),
        "readiness": probes(exec_too=False),
        "liveness": probes(exec_too=False) | st.none(),
    }
    name = draw(unit_names())
    if name.endswith(".scope"):
        del optional["content"]
    value: Value = {
        "kind": "SystemdUnit",
        "name": name,
        **draw(_some({}, {**optional, **_COMMON})),
    }
    if draw(st.integers(0, 5)) == 0:
        for name in ("content", "enabled"):
            value.pop(name, None)
        value |= {"masked": True, "state": draw(st.sampled_from(["stopped", "none"]))}
    return value


def _environments() -> st.SearchStrategy[dict[str, str]]:
    names = texts(12, 1).filter(lambda name: "=" not in name)
    return st.dictionaries(names, texts(), max_size=4)


def _mounts() -> st.SearchStrategy[Value]:
    read_only = {"read_only": st.booleans()}
    volume = container_names()
    return st.one_of(
        _some({"type": st.just("bind"), "target": paths(), "source": paths()}, read_only),
        _some({"type": st.just("volume"), "target": paths(), "source": volume}, read_only),
        _some({"type": st.just("tmpfs"), "target": paths()}, {**read_only, "size": quantities()}),
    )


def _mount_lists() -> st.SearchStrategy[list[Value]]:
    return st.lists(_mounts(), max_size=3, unique_by=lambda mount: mount["target"])


def containers() -> st.SearchStrategy[Value]:
    """A Container, as a JSON object."""
    args = st.lists(texts(), max_size=3)
    images = st.sampled_from(
        ["busybox", "localhost/busybox:1.36", "registry.test/a/b@sha256:" + "0" * 64]
    )
    ports = _some(
        {"host_port": st.integers(1, 65535), "container_port": st.integers(1, 65535)},
        {
            "protocol": st.sampled_from(["tcp", "udp"]),
            "host_ip": st.sampled_from(["", "127.0.0.1", "::1"]),
        },
    )
    inits = _some(
        {"name": container_names()},
        {
            "image": images,
            "command": args,
            "args": args,
            "env": _environments(),
            "mounts": _mount_lists(),
            "user": texts(8),
            "timeout_seconds": numbers(0, 86_400, zero=False),
        },
    )
    seconds = numbers(0, 86_400, zero=False)
    health = _some(
        {"command": st.lists(texts(), min_size=1, max_size=3)},
        {
            "interval_seconds": seconds,
            "timeout_seconds": seconds,
            "start_period_seconds": numbers(0, 86_400),
            "retries": st.integers(1, 1000),
        },
    )
    optional: Value = {
        "command": args | st.none(),
        "args": args,
        "env": _environments(),
        "env_files": st.lists(paths(), max_size=2),
        "ports": st.lists(ports, max_size=3, unique_by=lambda port: port["host_port"]),
        "mounts": _mount_lists(),
        "network": st.sampled_from(["host", "none", "lan_1"]),
        "user": texts(8),
        "working_dir": paths(),
        "hostname": st.sampled_from(["web", "a-b.c"]),
        "labels": st.dictionaries(texts(8, 1).map("x".__add__), texts(), max_size=3),
        "restart": st.sampled_from(["always", "on-failure", "never"]),
        "state": st.sampled_from(["running", "stopped"]),
        "pull": st.sampled_from(["missing", "always"]),
        "pull_at": st.sampled_from(["02:00-05:00", "22:30-06:00"]),
        "stop_signal": st.sampled_from(["SIGTERM", "SIGRTMIN+3"]),
        "stop_grace_seconds": st.integers(0, 3600),
        "memory": quantities(),
        "cpus": numbers(0, 1024, zero=False),
        "pids": st.integers(1, 4_194_304),
        "cap_add": st.lists(st.sampled_from(["NET_ADMIN", "CAP_SYS_TIME", "ALL"]), max_size=2),
        "cap_drop": st.lists(st.sampled_from(["NET_RAW", "CAP_CHOWN"]), max_size=2),
        "read_only": st.booleans(),
        "no_new_privileges": st.booleans(),
        "init_containers": st.lists(inits, max_size=2, unique_by=lambda init: init["name"]),
        "userns": st.sampled_from(["keep-id", "keep-id:uid=1,gid=2"]),
        "groups": st.lists(st.sampled_from(["20", "video"]), max_size=2),
        "shm_size": quantities(),
        "ulimits": st.just({"nofile": {"soft": 1, "hard": 2}}),
        "sysctls": st.just({"net.ipv4.ip_forward": "1"}),
        "dns": st.lists(st.sampled_from(["192.0.2.53", "2001:db8::1"]), max_size=2),
        "dns_search": st.lists(st.just("lan"), max_size=1),
        "extra_hosts": st.just({"a": "host-gateway"}),
        "annotations": st.dictionaries(texts(8, 1), texts(), max_size=2),
        "timezone": st.sampled_from(["local", "Europe/Berlin"]),
        "devices": st.lists(
            _some(
                {"source": st.sampled_from(["/dev/a", "/dev/b/c"])},
                {"access": st.sampled_from(["r", "rwm"])},
            ),
            max_size=2,
            unique_by=lambda device: device["source"],
        ),
        "device_cgroup_rules": st.lists(st.sampled_from(["c 189:* rwm", "a *:* r"]), max_size=2),
        "security_opt": st.sampled_from([{"label": ["disable"]}, {"unmask": ["ALL"]}]),
        "privileged": st.booleans(),
        "host_pid": st.booleans(),
        "host_ipc": st.booleans(),
        "init": st.booleans(),
        "tty": st.booleans(),
        "log_driver": st.sampled_from(["journald", "k8s-file", "none"]),
        "healthcheck": health,
        "readiness": probes(exec_too=True),
        "liveness": probes(exec_too=True),
        **_COMMON,
    }
    made = _some(
        {"kind": st.just("Container"), "name": container_names(), "image": images}, optional
    )
    jobs = st.sampled_from(["0 3 * * *", "*/5 6-20 * * mon-fri"])
    return made | st.builds(_as_job, made, jobs, st.booleans())


_OF_SERVICES = ("restart", "restart_on", "init_containers", "readiness", "liveness")


def _as_job(container: Value, schedule: str, run_missed: bool) -> Value:
    """It runs at times: without what is for services alone."""
    made = {key: value for key, value in container.items() if key not in _OF_SERVICES}
    return made | {"schedule": schedule, "run_missed": run_missed}


def upgrades() -> st.SearchStrategy[Value]:
    """A SystemUpgrade, as a JSON object."""
    identifiers = _joined(_ALNUM, _ALNUM + "._-", 128)
    required = {
        "kind": st.just("SystemUpgrade"),
        "name": resource_names(),
        "attempt_id": identifiers,
        "run_uid": identifiers,
        "expires_at": times(),
    }
    return _some(required, _COMMON)


def sessions() -> st.SearchStrategy[Value]:
    """A Session, as a JSON object."""
    programs = st.sampled_from(["/usr/bin/top", "/bin/sleep", "/opt/a b"])
    argv = st.tuples(programs, st.lists(texts(), max_size=3)).map(lambda pair: [pair[0], *pair[1]])
    optional: Value = {
        "working_dir": paths().filter(lambda path: "#" not in path),
        "env": _environments(),
        "env_files": st.lists(paths(), max_size=2),
        "restart": st.sampled_from(["always", "on-failure", "never"]),
        "state": st.sampled_from(["running", "stopped"]),
        "readiness": probes(exec_too=False),
        "liveness": probes(exec_too=False),
        **{name: made for name, made in _COMMON.items() if name != "adopt"},
    }
    names = _joined(_ALNUM + "_", _ALNUM + "_-", 64)
    return _some({"kind": st.just("Session"), "name": names, "command": argv}, optional)


def volumes() -> st.SearchStrategy[Value]:
    """A Volume, as a JSON object."""
    common = {key: value for key, value in _COMMON.items() if key != "adopt"}
    optional = {
        **common,
        "on_remove": st.sampled_from(["delete", "orphan", "delete-data"]),
        "driver": st.just("local"),
        "labels": st.dictionaries(texts(8, 1).map("x".__add__), texts(), max_size=2),
    }
    return _some({"kind": st.just("Volume"), "name": container_names()}, optional)


def networks() -> st.SearchStrategy[Value]:
    """A Network, as a JSON object."""
    common = {key: value for key, value in _COMMON.items() if key != "adopt"}
    optional = {
        **common,
        "driver": st.just("bridge"),
        "subnet": st.sampled_from(["10.89.5.0/24", "fd00:1::/64"]),
        "internal": st.booleans(),
    }
    return _some({"kind": st.just("Network"), "name": container_names()}, optional)


def packages() -> st.SearchStrategy[Value]:
    """A Package, as a JSON object."""
    common = {key: value for key, value in _COMMON.items() if key != "adopt"}
    optional = {
        **common,
        "package": st.sampled_from(["libstdc++6", "g++"]),
        "version": st.sampled_from(["1:2.0~rc1-3+b1", "5"]),
    }
    names = _joined("abc0", "abc0.-", 20).map("p".__add__)
    return _some({"kind": st.just("Package"), "name": names}, optional)


KINDS: dict[str, Callable[[], st.SearchStrategy[Value]]] = {
    "File": files,
    "SystemdUnit": units,
    "Container": containers,
    "SystemUpgrade": upgrades,
    "Session": sessions,
    "Volume": volumes,
    "Network": networks,
    "Package": packages,
}


def scores() -> st.SearchStrategy[Value]:
    """A Score of any kind, as a JSON object."""
    return st.one_of([make() for make in KINDS.values()])


@st.composite
def manifests(draw: st.DrawFn, most: int = 6) -> Value:
    """A whole valid manifest as it stands in desired-state, as a JSON object; its graph of needs
    has no circle.
    """
    drawn = draw(
        st.lists(scores(), max_size=most, unique_by=lambda score: (score["kind"], score["name"]))
    )
    chosen: list[Value] = []
    used: set[str] = set()
    for score in drawn:
        if score.get("path") not in used:
            used.add(score.get("path", ""))
            chosen.append(_with_needs(draw, score, chosen))
    value: Value = {
        "api": "harmony/v1",
        "device": draw(device_names()),
        "deployment": draw(device_names()),
        "lineage": str(draw(st.uuids())),
        "generation": draw(st.integers(1, 2**53 - 1)),
        "scores": draw(st.permutations(chosen)),
    }
    if not chosen and draw(st.booleans()):
        value["removed"] = True
    optional = {"allow_prune": st.integers(0, 1000), "supersedes": st.uuids().map(str)}
    return {**value, **draw(_some({}, optional))}


def _with_needs(draw: st.DrawFn, score: Value, earlier: list[Value]) -> Value:
    """The Score, needing some of those that were chosen before it."""
    keys = [f"{other['kind']}/{other['name']}" for other in earlier]
    if not keys or draw(st.booleans()):
        return score
    some = st.lists(st.sampled_from(keys), max_size=3)
    fields = {"after": some}
    if score["kind"] in ("SystemdUnit", "Container", "Session") and "schedule" not in score:
        fields["restart_on"] = some
    if score["kind"] == "SystemdUnit":
        fields["reload_on"] = some
    return {**score, **draw(_some({}, fields))}


def wire_manifests(most: int = 6) -> st.SearchStrategy[WireManifest]:
    """A manifest as the agent has it after decoding."""
    return manifests(most).map(WireManifest.model_validate)


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, wrong types in any nesting."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text()
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
