"""From a Score to podman's input: every field, the label, env files, and what may be shown."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core.env_files import BadEnvFile, parse_env
from harmony_agent.kinds.container import payload as made_of
from harmony_agent.topology.containers import Image
from scores.container import Container
from tests.unit.container.bench import web

PLAIN = Image(id="1" * 64, digest=None)
ENTRY = Image(id="2" * 64, digest=None, entrypoint=("/entry", "-x"))
MINIMAL = {
    "name": "web",
    "image": "localhost/busybox",
    "labels": {"l": "1"},
    "env": {},
    "restart_policy": "no",
    "stop_timeout": 10,
}


def payload(
    spec: Container, image: Image = PLAIN, files: dict[str, str] | None = None
) -> dict[str, Any]:
    return made_of.payload(spec, {"l": "1"}, image, files or {})


PAYLOADS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"command": ["/bin/sh", "-c", "true"]}, {"entrypoint": ["/bin/sh", "-c", "true"]}),
    ({"command": []}, {"entrypoint": []}),
    ({"args": ["-p", "1"]}, {"command": ["-p", "1"]}),
    ({"command": ["a"], "args": ["b"]}, {"entrypoint": ["a"], "command": ["b"]}),
    ({"args": []}, {}),
    ({"env": {"A": "1"}}, {"env": {"A": "1"}}),
    ({"labels": {"team": "x", "l": "0"}}, {"labels": {"team": "x", "l": "1"}}),
    ({"user": "1000:1000"}, {"user": "1000:1000"}),
    ({"working_dir": "/srv"}, {"work_dir": "/srv"}),
    ({"hostname": "h"}, {"hostname": "h"}),
    ({"stop_signal": "SIGUSR1"}, {"stop_signal": 10}),
    ({"stop_signal": "SIGRTMIN+3"}, {"stop_signal": 37}),
    ({"stop_grace_seconds": 3}, {"stop_timeout": 3}),
    (
        {"cap_add": ["NET_ADMIN"], "cap_drop": ["ALL", "CAP_CHOWN"]},
        {"cap_add": ["CAP_NET_ADMIN"], "cap_drop": ["ALL", "CAP_CHOWN"]},
    ),
    (
        {"read_only": True, "no_new_privileges": True},
        {"read_only_filesystem": True, "no_new_privileges": True},
    ),
    ({"userns": "keep-id"}, {"userns": {"nsmode": "keep-id"}}),
    ({"userns": "auto"}, {"userns": {"nsmode": "auto"}, "idmappings": {"AutoUserNs": True}}),
    (
        {"userns": "auto:size=5000"},
        {
            "userns": {"nsmode": "auto"},
            "idmappings": {"AutoUserNs": True, "AutoUserNsOpts": {"Size": 5000}},
        },
    ),
    (
        {"userns": "keep-id:uid=1883,gid=1884"},
        {"userns": {"nsmode": "keep-id", "value": "uid=1883,gid=1884"}},
    ),
    ({"groups": ["20", "video"]}, {"groups": ["20", "video"]}),
    ({"groups": ["keep-groups"]}, {"annotations": {"run.oci.keep_original_groups": "1"}}),
    (
        {
            "devices": [
                {"source": "/dev/ttyUSB0"},
                {"source": "/dev/a", "target": "/dev/b", "access": "r"},
            ]
        },
        {"devices": [{"path": "/dev/ttyUSB0:/dev/ttyUSB0:rwm"}, {"path": "/dev/a:/dev/b:r"}]},
    ),
    (
        {"device_cgroup_rules": ["c 189:* rwm", "b *:7 r"]},
        {
            "device_cgroup_rule": [
                {"allow": True, "type": "c", "major": 189, "access": "rwm"},
                {"allow": True, "type": "b", "minor": 7, "access": "r"},
            ]
        },
    ),
    (
        {"privileged": True, "devices": [{"source": "/dev/a", "target": "/dev/b"}]},
        {
            "privileged": True,
            "mounts": [
                {
                    "type": "bind",
                    "source": "/dev/a",
                    "destination": "/dev/b",
                    "options": ["rbind", "rw", "dev"],
                }
            ],
        },
    ),
    (
        {"privileged": True, "host_pid": True, "host_ipc": True},
        {"privileged": True, "pidns": {"nsmode": "host"}, "ipcns": {"nsmode": "host"}},
    ),
    ({"init": True, "tty": True}, {"init": True, "terminal": True}),
    ({"log_driver": "none"}, {"log_configuration": {"driver": "none"}}),
    (
        {"log_driver": "k8s-file", "log_size": "1Mi"},
        {"log_configuration": {"driver": "k8s-file", "size": 1048576}},
    ),
    (
        {"security_opt": {"label": ["disable"], "seccomp": "unconfined", "apparmor": "a"}},
        {
            "selinux_opts": ["disable"],
            "seccomp_profile_path": "unconfined",
            "apparmor_profile": "a",
        },
    ),
    (
        {"security_opt": {"mask": ["/proc/uptime"], "unmask": ["ALL"]}},
        {"mask": ["/proc/uptime"], "unmask": ["ALL"]},
    ),
    ({"shm_size": "256Mi"}, {"shm_size": 268435456}),
    (
        {"ulimits": {"nofile": {"soft": 10, "hard": 20}}},
        {"r_limits": [{"type": "NOFILE", "soft": 10, "hard": 20}]},
    ),
    ({"sysctls": {"net.ipv4.ip_forward": "1"}}, {"sysctl": {"net.ipv4.ip_forward": "1"}}),
    ({"dns": ["192.0.2.53"]}, {"dns_server": ["192.0.2.53"]}),
    ({"dns_search": ["lan"]}, {"dns_search": ["lan"]}),
    ({"extra_hosts": {"db": "2001:db8::1"}}, {"hostadd": ["db:2001:db8::1"]}),
    ({"annotations": {"a.b/c": "d"}}, {"annotations": {"a.b/c": "d"}}),
    ({"timezone": "Europe/Berlin"}, {"timezone": "Europe/Berlin"}),
    ({"no_healthcheck": True}, {"healthconfig": {"Test": ["NONE"]}}),
    (
        {"mounts": [{"type": "bind", "source": "/srv/a", "target": "/a", "chown": True}]},
        {
            "mounts": [
                {
                    "type": "bind",
                    "source": "/srv/a",
                    "destination": "/a",
                    "options": ["rbind", "rw", "U"],
                }
            ]
        },
    ),
    ({"memory": "64Mi"}, {"resource_limits": {"memory": {"limit": 67108864}}}),
    ({"cpus": 0.5}, {"resource_limits": {"cpu": {"period": 100000, "quota": 50000}}}),
    ({"pids": 10}, {"resource_limits": {"pids": {"limit": 10}}}),
    ({"network": "host"}, {"netns": {"nsmode": "host"}}),
    ({"network": "none"}, {"netns": {"nsmode": "none"}}),
    ({"network": "lan"}, {"netns": {"nsmode": "bridge"}, "networks": {"lan": {}}}),
    (
        {
            "ports": [
                {"host_port": 80, "container_port": 8080},
                {"host_port": 53, "container_port": 53, "protocol": "udp", "host_ip": "127.0.0.1"},
            ]
        },
        {
            "portmappings": [
                {"host_ip": "", "host_port": 80, "container_port": 8080, "protocol": "tcp"},
                {"host_ip": "127.0.0.1", "host_port": 53, "container_port": 53, "protocol": "udp"},
            ]
        },
    ),
    (
        {
            "mounts": [
                {"type": "bind", "source": "/srv/a", "target": "/a", "read_only": True},
                {"type": "volume", "source": "data", "target": "/b"},
                {"type": "tmpfs", "target": "/c", "size": "1Mi"},
                {"type": "tmpfs", "target": "/d", "read_only": True},
            ]
        },
        {
            "mounts": [
                {
                    "type": "bind",
                    "source": "/srv/a",
                    "destination": "/a",
                    "options": ["rbind", "ro"],
                },
                {
                    "type": "tmpfs",
                    "source": "tmpfs",
                    "destination": "/c",
                    "options": ["nosuid", "nodev", "rw", "size=1048576"],
                },
                {
                    "type": "tmpfs",
                    "source": "tmpfs",
                    "destination": "/d",
                    "options": ["nosuid", "nodev", "ro"],
                },
            ],
            "volumes": [{"Name": "data", "Dest": "/b", "Options": ["rw"]}],
        },
    ),
    (
        {
            "healthcheck": {
                "command": ["/ok"],
                "interval_seconds": 1.5,
                "timeout_seconds": 2,
                "start_period_seconds": 3,
                "retries": 4,
            }
        },
        {
            "healthconfig": {
                "Test": ["CMD", "/ok"],
                "Interval": 1500000000,
                "Timeout": 2000000000,
                "StartPeriod": 3000000000,
                "Retries": 4,
            }
        },
    ),
]


@pytest.mark.parametrize(("fields", "expected"), PAYLOADS)
def test_payload(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert payload(web(**fields)) == {**MINIMAL, **expected}


def test_empty_args_keep_the_entrypoint_and_drop_the_images_arguments() -> None:
    assert payload(web(args=[]), ENTRY)["entrypoint"] == ["/entry", "-x"]
    assert "entrypoint" not in payload(web(args=["a"]), ENTRY)


def test_env_wins_over_env_files() -> None:
    made = payload(web(env={"A": "1"}, env_files=["/srv/e"]), files={"A": "0", "B": "2"})
    assert made["env"] == {"A": "1", "B": "2"}


def test_every_field_of_the_score_is_accounted_for() -> None:
    """A new field must either go into the making, or be known to take effect without it."""
    without = {
        *(
            "kind",
            "name",
            "after",
            "restart_on",
            "drift",
            "on_remove",
            "adopt",
            "restart",
            "restart_tries",
            "state",
            "pull",
            "schedule",
            "run_missed",
            "pull_at",
            "login",
        ),
        *("stop_grace_seconds", "readiness", "liveness"),
    }
    assert set(Container.model_fields) == without | made_of._MADE_OF


LABEL_STAYS = [
    {"state": "stopped"},
    {"restart": "never"},
    {"pull": "always"},
    {"pull_at": "02:00-05:00"},
    {"login": {"user": "pi", "password": {"secret": "registry"}}},
    {"adopt": True},
    {"drift": "report"},
    {"on_remove": "orphan"},
    {"stop_grace_seconds": 3},
    {"after": ["File/a"]},
    {"restart_on": ["File/a"]},
    {"readiness": {"tcp": {"port": 1}}},
    {"liveness": {"tcp": {"port": 1}}},
]


@pytest.mark.parametrize("fields", LABEL_STAYS)
def test_label_stays_for_what_needs_no_new_container(fields: dict[str, Any]) -> None:
    assert made_of.spec_label(web(**fields), {}) == made_of.spec_label(web(), {})


@pytest.mark.parametrize(
    "fields", [fields for fields, _ in PAYLOADS[1:] if set(fields) & made_of._MADE_OF]
)
def test_label_differs_for_what_goes_into_the_making(fields: dict[str, Any]) -> None:
    assert made_of.spec_label(web(**fields), {}) != made_of.spec_label(web(), {})


def test_label_is_the_same_for_the_same_spec_in_every_version_of_the_model() -> None:
    """The bytes stand here: should others be digested, every container of every device would be
    made anew.
    """
    spec = web(command=["httpd"], env={"A": "1"}, mounts=[{"type": "tmpfs", "target": "/t"}])
    made = b'{"command":["httpd"],"env":{"A":"1"},"image":"localhost/busybox","mounts":[{"target":"/t","type":"tmpfs"}]}'
    expected = "1:" + hashlib.sha256(made).hexdigest()
    assert made_of.spec_label(spec, {}) == expected


def test_a_new_field_with_a_default_changes_no_label() -> None:
    class Newer(Container):
        brand_new: bool = False

    assert made_of.spec_label(Newer(name="web", image="i"), {}) == made_of.spec_label(
        Container(name="web", image="i"), {}
    )


def test_label_follows_the_content_of_env_files() -> None:
    spec = web(env_files=["/srv/e"])
    assert made_of.spec_label(spec, {"/srv/e": "sha256:a"}) != made_of.spec_label(
        spec, {"/srv/e": "sha256:b"}
    )


def test_init_payload_shares_mounts_and_network_but_no_ports() -> None:
    spec = web(
        mounts=[{"type": "tmpfs", "target": "/t"}],
        network="host",
        ports=[{"host_port": 1, "container_port": 1}],
        init_containers=[
            {"name": "a", "command": ["x"], "env": {"P": "1"}, "user": "7"},
            {"name": "b", "image": "other", "mounts": []},
        ],
    )
    first, second = (
        made_of.init_payload(spec, init, {"l": "1"}, PLAIN) for init in spec.init_containers
    )
    assert first == {
        "name": "web.init-a",
        "image": "localhost/busybox",
        "labels": {"l": "1", "io.harmony.init": "a"},
        "env": {"P": "1"},
        "restart_policy": "no",
        "entrypoint": ["x"],
        "mounts": payload(spec)["mounts"],
        "netns": {"nsmode": "host"},
        "user": "7",
    }
    assert second["image"] == "other"
    assert "mounts" not in second


def test_env_file() -> None:
    content = b"# a comment\n\nA=1\n  B=two words \r\nC=a=b\nD=\n"
    assert parse_env("/srv/e", content) == {
        "A": "1",
        "B": "two words ",
        "C": "a=b",
        "D": "",
    }


@pytest.mark.parametrize(
    "content", [b"A=1\nhunter2\n", b"=hunter2", b"A=hun\0ter2", b"A=\xffhunter2"]
)
def test_a_bad_env_file_is_refused_without_its_content(content: bytes) -> None:
    with pytest.raises(BadEnvFile) as caught:
        parse_env("/srv/e", content)
    assert "hunter2" not in str(caught.value)
    assert "/srv/e" in str(caught.value)


@given(
    st.dictionaries(
        st.text("ABC_", min_size=1),
        st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"])),
    )
)
def test_env_file_takes_values_literally(variables: dict[str, str]) -> None:
    variables = {name: value.rstrip("\r") for name, value in variables.items()}
    content = "".join(f"{name}={value}\n" for name, value in variables.items()).encode()
    assert parse_env("/e", content) == variables


@pytest.mark.parametrize(
    "text",
    [
        "bad value hunter2 in env",
        "line one\\nline two was bad",
        'json: {\\"a\\": \\"q\\\\\\"uote\\"}',
        "second line: line two",
        "code 7",
    ],
)
def test_words_that_repeat_a_value_are_withheld(text: str) -> None:
    spec = web(
        env={"P": "hunter2", "M": "line one\nline two", "S": "7"},
        init_containers=[{"name": "i", "env": {"Q": 'q\\"uote'}}],
    )
    assert (
        made_of.safe(text, made_of.secrets(spec, {}))
        == "(podman's words are withheld: they repeat a value of env)"
    )


def test_words_are_kept_on_one_line_and_short() -> None:
    spec = web(env={"S": "7", "E": ""})
    hidden = made_of.secrets(spec, {"F": "filed"})
    assert hidden == {"7", "filed"}
    assert made_of.safe("no such\nimage 17", hidden) == "no such image 17"
    assert len(made_of.safe("x" * 1000, hidden)) == 400


@pytest.mark.parametrize(
    "name", ["SIGNOPE", "SIGRTMIN+99", "SIGTERM+1", "SIGRTMIN+", "SIGRTMAX-40"]
)
def test_unknown_signals(name: str) -> None:
    assert not made_of.known_signal(name)


@pytest.mark.parametrize(
    ("name", "number"), [("SIGTERM", 15), ("SIGRTMIN", 34), ("SIGRTMAX-1", 63)]
)
def test_signals(name: str, number: int) -> None:
    assert made_of.signal_number(name) == number


DAMAGE = [
    (
        "mounting storage for container 5f: stat /var/lib/containers/storage/overlay/23: no such file or directory",
        True,
    ),
    ("getting graph driver info: stat /x/overlay/2: no such file or directory", True),
    ("lstat /x/overlay-containers/c0/userdata: no such file or directory", True),
    ("unexpected end of JSON input", True),
    ('runc create failed: exec: "/bin/nope": stat /bin/nope: no such file or directory', False),
    ("statfs /srv/missing: no such file or directory", False),
]


@pytest.mark.parametrize(("text", "damaged"), DAMAGE)
def test_damage_is_told_from_other_errors(text: str, *, damaged: bool) -> None:
    assert made_of.damaged(text) is damaged


def test_who_holds_a_name() -> None:
    assert (
        made_of.name_holder(f'the container name "x" is already in use by {"a" * 64}. You')
        == "a" * 64
    )
    assert made_of.name_holder("in use by somebody") is None
