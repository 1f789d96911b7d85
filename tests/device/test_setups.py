"""The thirteen set-ups of docs/setups, as they are written there: applied side by side, looked at from
within, after a reboot again, and removed without a trace. Small images stand in for the real ones.
"""

from __future__ import annotations

import pytest

from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.prepare import USER
from tests.device.setups import Home, Needs, home

SYSTEM = frozenset({5, 7, 8, 9, 11})
"""Set-ups that rootless podman or a user's manager can't do: ports below 1024, rules of devices,
real time, other users' units.
"""
SECRETS = {
    name: f"planted-{name}"
    for name in (
        *("influxdb_password", "grafana_password", "rtsp_password", "lorawan_token"),
        *("wireguard_key", "dns_token"),
    )
}
UNHEALTHY = frozenset({"localhost/readsb", "localhost/adsb-feeder"})
NODE = "c /dev/{} {} {} {} - 1:5\n"
"""It reads zeros."""
HARDWARE = "".join(
    [
        "d /run/udev\nd /dev/serial/by-id\nd /dev/dri\nd /dev/bus/usb/001\n",
        NODE.format("ttyUSB0", "0660", "root", "dialout"),
        *(
            NODE.format(name, "0660", USER, USER)
            for name in (
                "ttyUSB1",
                "ttyACM0",
                "video0",
                "video10",
                "video19",
                "apex_0",
                "dri/renderD128",
            )
        ),
        *(
            NODE.format(name, "0660", "root", "root")
            for name in ("spidev0.0", "gpiochip4", "i2c-1")
        ),
        "c /dev/bus/usb/001/004 0660 root root - 189:3\n",
        "L /dev/serial/by-id/usb-Itead_Sonoff_Zigbee-if00-port0 - - - - ../../ttyUSB0\n",
        "L /dev/serial/by-id/usb-Klipper_rp2040-if00 - - - - ../../ttyUSB1\n",
    ]
)
LIMITS = {"rtprio": 0, "nofile": 1024, "nproc": 1000}
INSIDE: list[tuple[int, str, str, str]] = [
    (1, "zigbee2mqtt", "head -c 4 /dev/ttyUSB0 | wc -c; date +%z | cut -c 1-2", "4 +0"),
    (1, "zigbee2mqtt", "touch /run/udev/x 2>&1 | cut -d : -f 3", "Read-only file system"),
    (
        2,
        "home-assistant",
        "head -c 4 /dev/ttyACM0 | wc -c; ls /run/dbus/s*",
        "4 /run/dbus/system_bus_socket",
    ),
    (3, "bridge", "nc mosquitto 1883 < /dev/null && echo reached", "reached"),
    (3, "bridge", "id -u; id -G; head -c 4 /dev/ttyACM0 | wc -c", "1000 1000 20 4"),
    (3, "mosquitto", "head -n 1 /mosquitto/config/mosquitto.conf; id -u", "listener 1883 1000"),
    (3, "mosquitto", "echo kept > /mosquitto/data/kept; cat /mosquitto/data/kept", "kept"),
    (4, "telegraf", "nc broker 1883 < /dev/null && echo reached", "reached"),
    (
        4,
        "telegraf",
        "nslookup influxdb > /dev/null && head -n 1 /etc/telegraf/telegraf.conf",
        "[[inputs.mqtt_consumer]]",
    ),
    (4, "influxdb", "echo $INFLUXDB_ADMIN_PASSWORD", SECRETS["influxdb_password"]),
    (4, "grafana", "id -u; touch /var/lib/grafana/x && echo written", "472 written"),
    (5, "pihole", "hostname; ip -4 -o addr show eth0 | awk '{print $4}'", "pihole 10.89.53.2/24"),
    (5, "pihole", "ip link set lo mtu 60000 && sort /etc/resolv.conf | grep -c nameserver", "2"),
    (6, "frigate", "df -m /dev/shm /tmp/cache | awk '{print $2}'", "1M-blocks 256 1024"),
    (
        6,
        "frigate",
        "for d in dri/renderD128 video10 video19 apex_0; do head -c 1 /dev/$d; done | wc -c",
        "4",
    ),
    (
        7,
        "readsb",
        ": < /dev/bus/usb/001/004 2>&1; true",
        "sh: can't open /dev/bus/usb/001/004: No such device or address",
    ),
    (
        7,
        "readsb",
        "df -m /run /var/log | awk '{print $2}'; grep CapEff /proc/self/status | cut -c 19",
        "1M-blocks 64 32 8",
    ),
    (7, "adsb-feeder", "nslookup readsb > /dev/null && echo named", "named"),
    (
        8,
        "basicstation",
        "for d in spidev0.0 gpiochip4 i2c-1; do head -c 1 /dev/$d; done | wc -c",
        "3",
    ),
    (8, "basicstation", "ulimit -r; echo $TC_KEY", f"0 {SECRETS['lorawan_token']}"),
    (10, "wireguard", "cat /proc/sys/net/ipv4/conf/all/src_valid_mark; : < /dev/net/tun", "1"),
    (10, "wireguard", "ip link set lo mtu 60000 && echo $WIREGUARD_KEY", SECRETS["wireguard_key"]),
    (11, "caddy", "nslookup app > /dev/null; grep -c home.example /etc/caddy/Caddyfile", "1"),
    (
        11,
        "caddy",
        "touch /x 2>&1 | cut -d : -f 3; ip -4 -o addr | wc -l; grep NoNew /proc/1/status",
        "Read-only file system 3 NoNewPrivs: 1",
    ),
    (
        12,
        "klipper",
        "head -c 4 /dev/ttyUSB0 | wc -c; : < /dev/video0; touch /opt/run/api.sock",
        "4",
    ),
    (12, "moonraker", "ls /opt/run; rm /opt/run/api.sock", "api.sock"),
    (12, "mainsail", "nslookup api > /dev/null && echo named", "named"),
    (13, "process-exporter", "cat /host/proc/1/comm; ls /host/sys/class > /dev/null", "systemd"),
]
"""What a process in each container finds of its set-up's options."""


NEEDS = Needs(SYSTEM, SECRETS, HARDWARE, UNHEALTHY, LIMITS)


def check(site: Home) -> None:
    """Every option does what it is for."""
    found = {place[:3]: site.inside(*place[:3]) for place in INSIDE}
    assert found == {place[:3]: place[3] for place in INSIDE}
    device = site.device
    assert device.systemctl("is-active", "kiosk.service").stdout == "active\n"
    shown = device.systemctl("show", "--property=User,Environment", "kiosk.service").stdout
    assert set(shown.splitlines()) == {"User=kiosk", "Environment=DISPLAY=:0 XCURSOR_SIZE=1"}
    assert device.systemctl("is-active", "node-exporter.service", user=True).stdout == "active\n"


@pytest.mark.parametrize("suite", SUITES)
def test_all_set_ups_converge_survive_a_reboot_and_go(lab: Lab, suite: str) -> None:
    with home(lab, suite, NEEDS) as site:
        assert sorted(site.setups) == list(range(1, 14))
        before = site.traces()
        site.put()
        check(site)
        first = site.runs()
        site.reboot()
        check(site)
        again = site.runs()
        assert {name: run.split()[0] for name, run in again.items()} == {
            name: run.split()[0] for name, run in first.items()
        }
        site.put(on_remove="delete-data")
        assert site.runs() == again, "how a volume is removed restarts nothing"
        site.remove()
        assert site.traces() == before
