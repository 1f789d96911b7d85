"""Forms of values, variables, quadlets, lines and units, one table each; and the command itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.cli import main
from harmony_fleet.importing.env_file import filled, parse_env
from harmony_fleet.importing.fit import deployment_name
from harmony_fleet.importing.resource import NotTakenError
from harmony_fleet.importing.run_line import parsed
from harmony_fleet.importing.values import ports, seconds, size
from tests.unit.importing.read import compose, line, read

ENV = {"A": "1", "EMPTY": "", "B": "two"}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("plain", "plain"),
        ("$A-${B}", "1-two"),
        ("$$A", "$A"),
        ("${NO:-x}", "x"),
        ("${EMPTY:-x}|${EMPTY-x}", "x|"),
        ("${A:-x}", "1"),
        ("${A:+set}|${NO:+set}|${EMPTY+set}|${EMPTY:+set}", "set||set|"),
        ("${NO:-${B}}", "two"),
        ("${NO:-${ALSO:-deep}}", "deep"),
        ("${A:?needed}", "1"),
        ("cost: 5$", "cost: 5$"),
        ("${A", "${A"),
    ],
)
def test_variables_are_filled_in_as_compose_does(text: str, made: str) -> None:
    missing: list[str] = []
    assert filled(text, ENV, missing.append) == made
    assert missing == []


def test_a_variable_without_a_value_is_named() -> None:
    missing: list[str] = []
    assert filled("$NO ${NOT?needed} ${1}", ENV, missing.append) == "  "
    assert missing == ["NO", "NOT", "1"]


def test_an_env_file_is_read_as_compose_does() -> None:
    text = """
# a comment
A=plain # behind it
B="quoted # not behind\\n${A}"
C='$A stays'
export D=d
E=
F
G="two
lines"
H: colon
"""
    values = parse_env(text, {}, lambda _: None)
    assert values == {
        "A": "plain",
        "B": "quoted # not behind\nplain",
        "C": "$A stays",
        "D": "d",
        "E": "",
        "F": None,
        "G": "two\nlines",
    }


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("64m", "64Mi"),
        ("64MB", "64Mi"),
        ("1g", "1Gi"),
        ("1.5g", "1536Mi"),
        ("1000", 1000),
        ("1000000000", 1_000_000_000),
        ("512k", "512Ki"),
        ("2GiB", "2Gi"),
    ],
)
def test_sizes(text: str, made: int | str) -> None:
    assert size(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [("90", 90), ("1m30s", 90), ("1h", 3600), ("500ms", 0.5), ("1min 5s", 65), ("1.5s", 1.5)],
)
def test_times(text: str, made: float) -> None:
    assert seconds(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("8080:80", [(8080, 80, "", "")]),
        ("127.0.0.1:8080:80/udp", [(8080, 80, "udp", "127.0.0.1")]),
        ("[::1]:8080:80", [(8080, 80, "", "::1")]),
        ("0.0.0.0:53:53/tcp", [(53, 53, "", "")]),
        ("3000-3001:4000-4001", [(3000, 4000, "", ""), (3001, 4001, "", "")]),
    ],
)
def test_ports(text: str, made: list[tuple[int, int, str, str]]) -> None:
    found = [
        (one["host_port"], one["container_port"], one.get("protocol", ""), one.get("host_ip", ""))
        for one in ports(text)
    ]
    assert found == made


@pytest.mark.parametrize(
    ("read_it", "text"),
    [
        (size, "much"),
        (seconds, "soon"),
        (seconds, ""),
        (ports, "80"),
        (ports, "1-3:1-2"),
        (ports, "1-65535:1-65535"),
        (ports, "0:80"),
        (ports, "a:b"),
    ],
)
def test_what_is_no_value_is_not_taken(read_it: Any, text: str) -> None:
    with pytest.raises(NotTakenError):
        read_it(text)


def test_options_of_a_line() -> None:
    typed = ["-dit", "-p80:80", "-e", "A=1", "--name=x", "--rm", "-v", "a:/a", "image", "-x", "y"]
    line = parsed(typed)
    assert [(name, value) for _, name, value in line.options] == [
        ("detach", ""),
        ("interactive", ""),
        ("tty", ""),
        ("publish", "80:80"),
        ("env", "A=1"),
        ("name", "x"),
        ("rm", ""),
        ("volume", "a:/a"),
    ]
    assert line.rest == ["image", "-x", "y"]


def test_several_lines_and_what_is_no_run(tmp_path: Path) -> None:
    made = line(
        tmp_path,
        """# both
docker network create iot
sudo docker run -d \\
  --name broker eclipse-mosquitto:2
podman run nginx:1 'echo "x'
docker compose run web
docker run "unclosed
""",
    )
    assert [one["name"] for one in made.value["scores"]] == ["broker", "nginx"]
    assert made.score("broker")["image"] == "docker.io/library/eclipse-mosquitto:2"
    assert made.score("nginx")["args"] == ['echo "x']
    for words in (
        "network create iot",
        "compose run web",
        "a quote in it isn't closed",
        "a short name is looked up",
    ):
        assert words in made.comments


def test_quadlets_of_one_folder_belong_together(tmp_path: Path) -> None:
    made = read(
        tmp_path,
        {
            "app.container": """[Unit]
Requires=db.service other.service
[Container]
Image=docker.io/x/app
Network=net.network
Volume=data.volume:/data:U
Environment=A=1 "B=two words" \\
  C=3
User=1000
Group=1000
Exec=serve --port 80
PodmanArgs=--cpus 0.5 --odd 1
NoNewPrivileges=true
[Service]
Restart=on-abnormal
""",
            "db.container": "[Container]\nImage=docker.io/x/db\nContainerName=database\nPod=all.pod\n",
            "net.network": "[Network]\nNetworkName=inner\nSubnet=10.1.0.0/24\nIPRange=10.1.0.8/29\n"
            "DisableDNS=true\nLabel=a=b c=d\n",
            "data.volume": "[Volume]\nDevice=/dev/sda1\nDriver=local\n",
            "all.pod": "[Unit]\nDescription=x\n[Pod]\nPublishPort=80:80\nVolume=data.volume:/data\n",
        },
    )
    score = made.score("systemd-app")
    assert score["after"] == ["Container/database"]
    assert (score["network"], score["user"], score["cpus"]) == ("inner", "1000:1000", 0.5)
    assert score["env"] == {"A": "1", "B": "two words", "C": "3"}
    assert score["args"] == ["serve", "--port", "80"]
    assert (score["restart"], score["no_new_privileges"]) == ("on-failure", True)
    assert score["mounts"] == [
        {"type": "volume", "source": "systemd-data", "target": "/data", "chown": True}
    ]
    assert made.score("inner") == {
        "subnet": "10.1.0.0/24",
        "dns": False,
        "labels": {"a": "b", "c": "d"},
    }
    assert (made.score("systemd-data"), made.score("systemd-all")) == ({}, {})
    database = made.score("database")
    assert (database["network"], database["ports"]) == (
        "systemd-all",
        [{"host_port": 80, "container_port": 80}],
    )
    assert [one["source"] for one in database["mounts"]] == ["systemd-data"]
    for words in (
        "other.service",
        "--odd 1",
        "[Network] IPRange 10.1.0.8/29",
        "[Volume] Device /dev/sda1",
        "[Volume] Driver local",
        "all.pod, [Unit] Description x",
        "all.pod: it is the pod's",
        "it became on-failure",
    ):
        assert words in made.comments


@pytest.mark.parametrize("source", ["%h/data", "$PWD/x", "~/x", "/srv/%n"])
def test_a_path_that_another_fills_in_is_named(source: str, tmp_path: Path) -> None:
    text = f"[Container]\nImage=docker.io/x/y\nVolume={source}:/data\nEnvironmentFile={source}\n"
    made = read(tmp_path, {"a.container": text})
    assert made.score("systemd-a") == {"image": "docker.io/x/y"}
    for key in ("Volume", "EnvironmentFile"):
        assert f"[Container] {key} {source}" in made.comments


def test_anchors_and_merges_of_yaml(tmp_path: Path) -> None:
    text = """
x-common: &common
  restart: always
  environment: {TZ: UTC}
services:
  a: {<<: *common, image: x/a}
  b: {<<: *common, image: x/b, restart: "no"}
"""
    made = read(tmp_path, {"compose.yaml": text})
    assert made.score("a")["env"] == {"TZ": "UTC"}
    assert (made.score("a")["restart"], made.score("b")["restart"]) == ("always", "never")


def test_a_timer_s_service_is_left_to_its_timer(tmp_path: Path) -> None:
    made = read(
        tmp_path,
        {
            "job.service": "[Service]\nType=oneshot\nExecStart=/opt/job/run\n",
            "job.timer": "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n",
            "job.service.d/10-mem.conf": "[Service]\nMemoryMax=64M\n",
            "x@.service": "[Service]\nExecStart=/bin/sleep 1d\n[Install]\nWantedBy=default.target\n",
            "gone.service.d/1.conf": "[Service]\n",
        },
    )
    assert made.score("job.service")["state"] == "none"
    assert made.score("job.service")["dropins"] == {"10-mem.conf": "[Service]\nMemoryMax=64M\n"}
    assert made.score("job.timer")["enabled"] is True
    assert "enabled" not in made.score("x@.service")
    for words in ("/opt/job/run", "gone.service.d/1.conf"):
        assert words in made.comments


@pytest.mark.parametrize(
    ("test", "command"),
    [
        ('["CMD", "pg_isready", "-q"]', ["pg_isready", "-q"]),
        ('["CMD-SHELL", "curl -f http://localhost || exit 1"]', ["curl", "-f", "http://localhost"]),
        ("pg_isready -q", ["pg_isready", "-q"]),
    ],
)
def test_a_health_check_is_a_list(test: str, command: list[str], tmp_path: Path) -> None:
    made = compose(tmp_path, f"a: {{image: x, healthcheck: {{test: {test}, retries: 5}}}}")
    assert made.score("a")["healthcheck"] == {"command": command, "retries": 5}


def test_a_health_check_that_needs_a_shell_is_told(tmp_path: Path) -> None:
    made = compose(tmp_path, 'a: {image: x, healthcheck: {test: "a | grep b", interval: 5s}}')
    assert "healthcheck" not in made.score("a")
    assert "healthcheck.test a | grep b: it needs the container's shell" in made.comments
    assert "the image's own is not known" in made.comments


def test_what_no_manifest_may_have_goes_alone(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
a: {image: "x", container_name: "A/b", cap_add: [NET_ADMIN, nope!], user: "", depends_on: [b]}
b: {image: "UP PER", depends_on: [a], memory: 1}
""",
    )
    score = made.score("A-b")
    assert score["cap_add"] == ["NET_ADMIN"]
    assert made.score("b")["image"] == "localhost/unnamed"
    for words in ("cap_add nope!", "name A/b", "image: ", "after Container/"):
        assert words in made.comments


def test_the_value_of_a_variable_is_in_no_comment(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        'a: {image: x, environment: ["=hunter2", "A=hunter2"], env_file: [gone.env]}',
    )
    assert made.score("a")["env_files"] == ["/srv/web/gone.env"]
    assert "hunter2" not in made.comments
    assert "put it to /srv/web/gone.env on the device" in made.comments


@pytest.mark.parametrize(
    ("text", "name"),
    [("My App_2", "my-app-2"), ("---", "imported"), ("x" * 99, "x" * 63), ("ä", "imported")],
)
def test_a_deployment_s_name(text: str, name: str) -> None:
    assert deployment_name(text) == name


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    monkeypatch.setenv("TAG", "7")
    (tmp_path / "compose.yaml").write_text("services: {a: {image: 'x/y:$TAG', restart: always}}")
    assert main(["import", str(tmp_path / "compose.yaml"), "--folder", "/opt/x"]) == 0
    out = capsys.readouterr().out
    assert f"deployment: {deployment_name(tmp_path.name)}\n" in out
    assert "docker.io/x/y:7" in out
    given = io.TextIOWrapper(io.BytesIO(b"podman run --name w -v ./d:/d localhost/x\n"))
    monkeypatch.setattr("sys.stdin", given)
    assert main(["import", "-", "--name", "w"]) == 0
    out, err = capsys.readouterr()
    assert "source: /srv/w/d" in out
    assert "remarks, as comments below" in err


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("x.yaml", "a: 1\n", "UnknownFormat"),
        ("x.yaml", "a: [\n", "NotYaml"),
        ("x.yaml", "services: {}\n---\nservices: {}\n", "UnknownFormat"),
        ("x.odd", "nothing\n", "UnknownFormat"),
        ("a.service.d/1.conf", "[Service]\n", "NoManifest"),
        ("gone.yaml", None, "FileMissing"),
    ],
)
def test_what_is_nothing_to_import(
    file: str,
    text: str | None,
    code: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    if text is not None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    assert main(["import", str(tmp_path / file), "-o", "json"]) == 2
    assert f'"{code}"' in capsys.readouterr().err


def test_the_example_of_the_guide_is_what_is_printed(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs/author.md").read_text()
    shown = guide.partition("  - kind: Container\n    name: wg\n")
    assert shown[1]
    words = "podman run --name wg --cap-add NET_ADMIN --secret wgkey lscr.io/linuxserver/wireguard"
    made = line(tmp_path, words)
    assert (shown[1] + shown[2].partition("```")[0]) in made.text


def test_networks_and_volumes_of_a_compose_file_are_scores(tmp_path: Path) -> None:
    text = """
name: home
services:
  broker:
    image: x/broker
    container_name: mosquitto
    networks:
      iot: {aliases: [mqtt, broker], ipv4_address: 10.89.5.10, ipv6_address: "fd00::5", priority: 5}
      old: {}
  bridge: {image: x/bridge, volumes: ["data:/data", "there:/there"]}
  other: {image: x/other}
networks:
  iot:
    driver: macvlan
    internal: true
    attachable: true
    enable_ipv6: false
    labels: {team: x}
    driver_opts: {parent: eth0}
    ipam:
      driver: default
      config: [{subnet: 10.89.5.0/24, gateway: 10.89.5.1, ip_range: 10.89.5.8/29}, {subnet: "fd00::/64"}]
  odd: {driver: overlay, name: "odd one"}
  old: {external: true}
volumes:
  data: {driver: local, labels: ["team=x"], driver_opts: {type: nfs}}
  there: {external: true, name: kept}
"""
    made = read(tmp_path, {"compose.yaml": text}, name="")
    assert made.value["deployment"] == "home"
    assert made.score("home_iot") == {
        "driver": "macvlan",
        "internal": True,
        "labels": {"team": "x"},
        "subnet": "10.89.5.0/24",
        "gateway": "10.89.5.1",
    }
    assert made.score("home_data") == {"labels": {"team": "x"}}
    assert made.score("home_default") == made.score("odd-one") == {}
    kinds = [one["kind"] for one in made.value["scores"]]
    assert kinds == ["Network"] * 3 + ["Volume"] + ["Container"] * 3
    assert made.score("mosquitto")["networks"] == [
        {"name": "home_iot", "aliases": ["mqtt", "broker"], "address": "10.89.5.10"},
        {"name": "old", "aliases": ["broker"]},
    ]
    assert [one["source"] for one in made.score("bridge")["mounts"]] == ["home_data", "kept"]
    assert made.score("bridge")["network"] == "home_default"
    for words in (
        "networks iot, priority",
        "ipv6",
        "networks.iot.attachable true: each container may be in it",
        "networks.iot.ipam.config.ip_range",
        "networks.iot.ipam.config.subnet fd00::/64: a Network has one",
        "networks.iot.driver_opts",
        "networks.odd.driver overlay",
        "networks.old.external true: it has to be on the device already",
        "volumes.data.driver_opts",
        "volumes.there.external true: it has to be on the device already",
    ):
        assert words in made.comments, words


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--network iot", "network", "iot"),
        ("--network iot:alias=mqtt,ip=10.0.0.5", "networks", [{"name": "iot", "aliases": ["mqtt"], "address": "10.0.0.5"}]),
        ("--ip 10.0.0.5 --net iot --network-alias a", "networks", [{"name": "iot", "aliases": ["a"], "address": "10.0.0.5"}]),
        ("--network a --network b", "networks", [{"name": "a"}, {"name": "b"}]),
        ("--network host --network b", "network", "host"),
    ],
)  # fmt: skip
def test_networks_of_a_line(flags: str, field: str, value: object, tmp_path: Path) -> None:
    score = line(tmp_path, f"podman run --name x {flags} docker.io/x/y").score("x")
    assert {key: score[key] for key in score if key.startswith("network")} == {field: value}


def test_what_a_network_can_t_have_is_named(tmp_path: Path) -> None:
    made = line(
        tmp_path,
        "podman run --name x --network a:mtu=9,ip=10.0.0.1,ip6=fd00::1 --network b --ip 10.0.0.2 docker.io/x/y",
    )
    assert made.score("x")["networks"] == [{"name": "a", "address": "10.0.0.1"}, {"name": "b"}]
    for words in (
        "10.0.0.2: only where it is in one network",
        "network a, mtu=9",
        "network a, ip6=fd00::1",
    ):
        assert words in made.comments


def test_several_containers_of_a_pod_find_each_other_by_name(tmp_path: Path) -> None:
    box = "[Container]\nImage=docker.io/x/{0}\nContainerName={0}\nPod=all.pod\n"
    files = {
        "a.container": box.format("a"),
        "b.container": box.format("b"),
        "c.container": "[Container]\nImage=docker.io/x/c\nPod=gone.pod\nNetwork=gone.network\n",
        "all.pod": "[Pod]\nPodName=all\nPublishPort=80:80\nNetwork=iot.network\n",
        "iot.network": "[Network]\nDriver=macvlan\nInternal=false\n",
    }
    made = read(tmp_path, files)
    assert made.score("a")["network"] == made.score("b")["network"] == "systemd-iot"
    assert "driver" not in made.score("systemd-iot"), "it needs a subnet"
    assert made.score("systemd-c")["network"] == "systemd-gone"
    for words in (
        "all.pod, [Pod] PublishPort 80:80: give it to the container that listens there",
        "[Container] Pod gone.pod",
        "network gone.network: it isn't among the files",
        "driver macvlan: needs subnet",
    ):
        assert words in made.comments, words
