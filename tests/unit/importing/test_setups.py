"""The thirteen set-ups that people run, as they write them, and what they become."""

from __future__ import annotations

from pathlib import Path

from tests.unit.importing.read import compose, line, read


def test_1_zigbee2mqtt_as_a_rootless_quadlet(tmp_path: Path) -> None:
    made = read(
        tmp_path,
        {
            "zigbee2mqtt.container": """
[Unit]
Description=Zigbee2MQTT
After=network-online.target
[Container]
Image=docker.io/koenkk/zigbee2mqtt:2
ContainerName=zigbee2mqtt
AddDevice=/dev/serial/by-id/usb-stick:/dev/ttyUSB0
GroupAdd=keep-groups
Annotation=run.oci.keep_original_groups=1
Volume=z2m.volume:/app/data
Volume=/run/udev:/run/udev:ro
PublishPort=8080:8080
Timezone=Europe/Berlin
[Service]
Restart=always
[Install]
WantedBy=default.target
""",
            "z2m.volume": "[Volume]\n",
        },
    )
    score = made.score("zigbee2mqtt")
    assert score["mounts"] == [
        {"type": "volume", "source": "systemd-z2m", "target": "/app/data"},
        {"type": "bind", "source": "/run/udev", "target": "/run/udev", "read_only": True},
    ]
    assert score["ports"] == [{"host_port": 8080, "container_port": 8080}]
    assert (score["timezone"], score["restart"]) == ("Europe/Berlin", "always")
    assert score["annotations"] == {"run.oci.keep_original_groups": "1"}
    assert score["devices"] == [{"source": "/dev/serial/by-id/usb-stick", "target": "/dev/ttyUSB0"}]
    assert score["groups"] == ["keep-groups"]
    assert made.score("systemd-z2m") == {}
    for words in ("network-online.target", "WantedBy", "Description"):
        assert words in made.comments


def test_2_home_assistant(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
homeassistant:
  container_name: homeassistant
  image: ghcr.io/home-assistant/home-assistant:stable
  volumes:
    - ./config:/config
    - /etc/localtime:/etc/localtime:ro
    - /run/dbus:/run/dbus:ro
  devices: ["/dev/ttyUSB0:/dev/ttyUSB0"]
  restart: unless-stopped
  privileged: true
  network_mode: host
""",
    )
    score = made.score("homeassistant")
    assert (score["network"], score["restart"]) == ("host", "always")
    assert [one["source"] for one in score["mounts"]] == [
        "/srv/web/config",
        "/etc/localtime",
        "/run/dbus",
    ]
    assert score["devices"] == [{"source": "/dev/ttyUSB0"}]
    assert score["privileged"] is True
    assert "privileged: only where the device allows it" in made.comments
    assert "bring there what it holds" in made.comments


def test_3_mosquitto_and_zigbee2mqtt(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
mosquitto:
  image: eclipse-mosquitto:2
  user: 1000:1000
  volumes: ["./mosquitto.conf:/mosquitto/config/mosquitto.conf:ro"]
  restart: always
zigbee2mqtt:
  image: koenkk/zigbee2mqtt
  depends_on: [mosquitto]
  user: 1000:1000
  group_add: [dialout]
  devices: [/dev/ttyACM0]
  environment: {ZIGBEE2MQTT_CONFIG_MQTT_SERVER: "mqtt://mosquitto"}
  restart: always
""",
    )
    broker, bridge = made.score("mosquitto"), made.score("zigbee2mqtt")
    assert broker["network"] == bridge["network"] == f"{tmp_path.name}_default"
    assert bridge["after"] == ["Container/mosquitto"]
    assert (bridge["user"], bridge["groups"]) == ("1000:1000", ["dialout"])
    assert bridge["env"] == {"ZIGBEE2MQTT_CONFIG_MQTT_SERVER": "mqtt://mosquitto"}
    assert bridge["image"] == "docker.io/koenkk/zigbee2mqtt"
    assert made.score(broker["network"]) == {}


def test_4_telegraf_influxdb_mosquitto_grafana(tmp_path: Path) -> None:
    text = """
services:
  influxdb:
    image: influxdb:1.8
    environment:
      INFLUXDB_ADMIN_PASSWORD: ${PASSWORD:?set it}
    volumes: [influx:/var/lib/influxdb]
    networks: [iot]
  telegraf:
    image: telegraf:1.30
    depends_on:
      influxdb: {condition: service_healthy}
    volumes: ["/etc/telegraf.conf:/etc/telegraf/telegraf.conf:ro"]
    networks: [iot]
  mosquitto: {image: "eclipse-mosquitto:2", networks: [iot]}
  grafana:
    image: grafana/grafana:${GRAFANA:-11.0}
    ports: ["3000:3000"]
    env_file: grafana.env
    networks: [iot]
volumes: {influx: {name: influx}}
networks: {iot: {driver: bridge}}
"""
    files = {
        "compose.yaml": text,
        ".env": "PASSWORD='hunter2'\n",
        "grafana.env": 'GF_SECURITY_ADMIN_PASSWORD="a b" # comment\n',
    }
    made = read(tmp_path, files)
    assert made.score("influxdb")["env"] == {"INFLUXDB_ADMIN_PASSWORD": "hunter2"}
    assert made.score("influxdb")["mounts"] == [
        {"type": "volume", "source": "influx", "target": "/var/lib/influxdb"}
    ]
    assert made.score("telegraf")["after"] == ["Container/influxdb"]
    grafana = made.score("grafana")
    assert grafana["image"] == "docker.io/grafana/grafana:11.0"
    assert grafana["env"] == {"GF_SECURITY_ADMIN_PASSWORD": "a b"}
    assert made.score(f"{tmp_path.name}_iot") == made.score("influx") == {}
    for words in ("networks.iot.driver", "service_healthy", "use env_files", "restart"):
        assert words in made.comments
    assert "hunter2" not in made.comments


def test_5_pihole_and_unbound(tmp_path: Path) -> None:
    text = """
services:
  pihole:
    image: pihole/pihole:latest
    hostname: pihole
    ports: ["53:53/tcp", "53:53/udp", "80:80"]
    dns: [127.0.0.1, 10.5.0.3]
    cap_add: [NET_ADMIN]
    volumes: ["etc-pihole:/etc/pihole"]
    networks: {dns: {ipv4_address: 10.5.0.2}}
    restart: unless-stopped
  unbound:
    image: mvance/unbound
    networks: {dns: {ipv4_address: 10.5.0.3}}
volumes: {etc-pihole: }
networks:
  dns: {ipam: {config: [{subnet: 10.5.0.0/24}]}}
"""
    made = read(tmp_path, {"compose.yaml": text})
    score = made.score("pihole")
    assert score["ports"][1] == {"host_port": 53, "container_port": 53, "protocol": "udp"}
    assert (score["dns"], score["cap_add"]) == (["127.0.0.1", "10.5.0.3"], ["NET_ADMIN"])
    assert score["hostname"] == "pihole"
    name = f"{tmp_path.name}_dns"
    assert score["networks"] == [{"name": name, "address": "10.5.0.2"}]
    assert made.score(name) == {"subnet": "10.5.0.0/24"}
    assert made.score(f"{tmp_path.name}_etc-pihole") == {}


def test_6_frigate(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
frigate:
  image: ghcr.io/blakeblackshear/frigate:stable
  shm_size: 512mb
  stop_grace_period: 30s
  cap_add: [CAP_PERFMON]
  devices: [/dev/bus/usb:/dev/bus/usb, /dev/dri/renderD128]
  volumes:
    - /etc/localtime:/etc/localtime:ro
    - type: tmpfs
      target: /tmp/cache
      tmpfs: {size: 1000000000}
  ports: ["8971:8971", "8555:8555/udp"]
  environment: {FRIGATE_RTSP_PASSWORD: password}
  restart: unless-stopped
""",
    )
    score = made.score("frigate")
    assert (score["shm_size"], score["stop_grace_seconds"]) == ("512Mi", 30)
    assert score["mounts"][1] == {"type": "tmpfs", "target": "/tmp/cache", "size": 1_000_000_000}
    assert score["cap_add"] == ["CAP_PERFMON"]
    assert score["devices"] == [{"source": "/dev/bus/usb"}, {"source": "/dev/dri/renderD128"}]


def test_7_adsb_feeder(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
ultrafeeder:
  image: ghcr.io/sdr-enthusiasts/docker-adsb-ultrafeeder
  device_cgroup_rules: ["c 189:* rwm"]
  ports: ["8080:80"]
  tmpfs: ["/run:exec,size=256M", "/var/log:size=32M"]
  cap_add: [SYS_NICE]
  healthcheck: {disable: true}
  restart: unless-stopped
""",
    )
    score = made.score("ultrafeeder")
    assert score["no_healthcheck"] is True
    assert score["mounts"] == [
        {"type": "tmpfs", "target": "/run", "size": "256Mi"},
        {"type": "tmpfs", "target": "/var/log", "size": "32Mi"},
    ]
    assert "tmpfs /run, exec" in made.comments
    assert score["device_cgroup_rules"] == ["c 189:* rwm"]


def test_8_lorawan_gateway(tmp_path: Path) -> None:
    made = line(
        tmp_path,
        "docker run -d --name basicstation --restart=always --net host --device /dev/spidev0.0 "
        "--device=/dev/gpiochip4 --ulimit rtprio=99 -e TC_KEY=token xoseperez/basicstation:latest",
    )
    score = made.score("basicstation")
    assert (score["network"], score["env"]) == ("host", {"TC_KEY": "token"})
    assert score["ulimits"] == {"rtprio": {"soft": 99, "hard": 99}}
    assert score["devices"] == [{"source": "/dev/spidev0.0"}, {"source": "/dev/gpiochip4"}]


def test_9_kiosk_browser_as_a_unit(tmp_path: Path) -> None:
    text = """[Unit]
After=graphical.target
Conflicts=getty@tty1.service
[Service]
User=kiosk
Environment=DISPLAY=:0
ExecStart=/usr/bin/chromium --kiosk https://example.org
[Install]
WantedBy=graphical.target
"""
    made = read(tmp_path, {"kiosk.service": text})
    assert made.score("kiosk.service") == {"content": text, "enabled": True}
    assert "User=kiosk" in made.comments
    assert "WantedBy=graphical.target" in made.comments


def test_10_wireguard(tmp_path: Path) -> None:
    made = line(
        tmp_path,
        "podman run -d --name wg --cap-add NET_ADMIN --device /dev/net/tun "
        "--sysctl net.ipv4.conf.all.src_valid_mark=1 --secret wgkey -p 51820:51820/udp "
        "lscr.io/linuxserver/wireguard",
    )
    score = made.score("wg")
    assert score["sysctls"] == {"net.ipv4.conf.all.src_valid_mark": "1"}
    assert score["cap_add"] == ["NET_ADMIN"]
    assert score["devices"] == [{"source": "/dev/net/tun"}]
    assert "--secret wgkey" in made.comments


def test_11_traefik_before_others(tmp_path: Path) -> None:
    text = """
services:
  traefik:
    image: traefik:v3
    command: --providers.file.filename=/etc/traefik/dynamic.yml --entrypoints.web.address=:80
    ports: ["80:80", {target: 443, published: "443", protocol: tcp, mode: host}]
    read_only: true
    tmpfs: /tmp
    security_opt: ["no-new-privileges:true"]
    networks: [front, back]
    secrets: [cf_token]
    volumes: ["/var/run/docker.sock:/var/run/docker.sock:ro"]
  app:
    image: traefik/whoami
    labels: ["traefik.enable=true"]
    networks: [back]
networks: {front: , back: {internal: true}}
secrets: {cf_token: {file: ./cf}}
"""
    made = read(tmp_path, {"compose.yaml": text})
    score = made.score("traefik")
    assert score["args"][1] == "--entrypoints.web.address=:80"
    assert [one["host_port"] for one in score["ports"]] == [80, 443]
    assert (score["read_only"], score["no_new_privileges"]) == (True, True)
    assert score["mounts"] == [{"type": "tmpfs", "target": "/tmp"}]
    assert score["networks"] == [
        {"name": f"{tmp_path.name}_front"},
        {"name": f"{tmp_path.name}_back"},
    ]
    assert made.score("app")["labels"] == {"traefik.enable": "true"}
    assert made.score(f"{tmp_path.name}_back") == {"internal": True}
    assert made.score(f"{tmp_path.name}_front") == {}
    for words in (
        "secrets cf_token",
        "secrets: ",
        "docker.sock",
        "ports, mode",
    ):
        assert words in made.comments


def test_12_octoprint(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
octoprint:
  image: octoprint/octoprint
  restart: unless-stopped
  ports: [80:80]
  devices: [/dev/ttyUSB0:/dev/ttyACM0, /dev/video0:/dev/video0]
  volumes: [octoprint:/octoprint, /run/klipper:/run/klipper]
  environment: [ENABLE_MJPG_STREAMER=true]
""",
    )
    score = made.score("octoprint")
    assert score["ports"] == [{"host_port": 80, "container_port": 80}]
    assert score["env"] == {"ENABLE_MJPG_STREAMER": "true"}
    assert [one["type"] for one in score["mounts"]] == ["volume", "bind"]
    assert score["devices"] == [
        {"source": "/dev/ttyUSB0", "target": "/dev/ttyACM0"},
        {"source": "/dev/video0"},
    ]


def test_13_metrics_of_the_host(tmp_path: Path) -> None:
    made = compose(
        tmp_path,
        """
node_exporter:
  image: quay.io/prometheus/node-exporter:latest
  command: ["--path.rootfs=/host"]
  network_mode: host
  pid: host
  restart: unless-stopped
  volumes: ["/:/host:ro,rslave", "/proc:/host/proc:ro"]
""",
    )
    score = made.score("node_exporter")
    assert score["args"] == ["--path.rootfs=/host"]
    assert [one["source"] for one in score["mounts"]] == ["/proc"]
    assert "run what looks at the device as a unit" in made.comments
    assert score["host_pid"] is True
    assert "host_pid: only where the device allows it" in made.comments
