"""The dashboard's data, metrics and HTTP: what is told, what is refused, and that nothing told
becomes markup.
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from harmony_fleet.dashboard import metrics, page
from harmony_fleet.dashboard.http import Answer, address, answer
from harmony_fleet.dashboard.page import dashboard
from harmony_fleet.errors import InvalidInput
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.observe.view import FleetView
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO
from scores.status import PauseInfo
from tests.unit.fleet.build import NOW, SINCE, file, status, wire

HOSTILE = '</script><img src=x onerror=alert(1)>"\n\\'


def seen() -> FleetView:
    view = FleetView()
    manifest = wire(file("a", "s3cret"))
    view.feed(Entry(DESIRED, "pi-01.web", manifest.canonical(), 1, NOW))
    held = PauseInfo(scope="device", until=SINCE)
    bad = status("Failed", reason=HOSTILE, message="s3cret", paused=held)
    view.feed(Entry(ACTUAL, "pi-01.web", bad.canonical(), 2, NOW - timedelta(seconds=5)))
    view.feed(Entry(HEARTBEAT, "heartbeat.pi-01", b"{}", 3, NOW - timedelta(seconds=2)))
    view.feed(Entry(HEARTBEAT, "heartbeat.pi-02", b"{}", 4, NOW - timedelta(hours=2)))
    view.feed(Entry(INFO, f"info.{HOSTILE}", b"{}", 5, NOW))
    return view


def test_what_the_dashboard_tells() -> None:
    told = dashboard(seen(), NOW, connected=True)
    assert told["devices"] == {"all": 3, "stale": 2}
    assert told["totals"] == {"succeeded": 0, "failed": 1, "pending": 0, "held": 0}
    assert told["deployments"] == [
        {"name": "web", "succeeded": 0, "failed": 1, "pending": 0, "held": 0}
    ]
    assert told["errors"] == [
        {
            "device": "pi-01",
            "deployment": "web",
            "phase": "Failed",
            "reason": HOSTILE,
            "age": 5.0,
            "paused": SINCE,
        }
    ]
    assert [(item["device"], item["age"], item["stale"]) for item in told["heard"]] == [
        (HOSTILE, None, True),
        ("pi-02", 7200.0, True),
        ("pi-01", 2.0, False),
    ]
    assert "s3cret" not in json.dumps(told)


def test_metrics_are_read_by_their_own_parser() -> None:
    text = metrics.exposition(seen(), NOW, connected=False).decode()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("harmony_fleet_connected",): 0,
        ("harmony_fleet_devices",): 3,
        ("harmony_fleet_devices_stale",): 2,
        ("harmony_fleet_heartbeat_age_seconds", "pi-01"): 2,
        ("harmony_fleet_heartbeat_age_seconds", "pi-02"): 7200,
        ("harmony_fleet_deployment_devices", "web", "succeeded"): 0,
        ("harmony_fleet_deployment_devices", "web", "failed"): 1,
        ("harmony_fleet_deployment_devices", "web", "pending"): 0,
        ("harmony_fleet_deployment_devices", "web", "held"): 0,
        ("harmony_fleet_view_events_total",): 5,
    }


def asked(head: str, path: str = "/") -> Answer:
    async def one() -> Answer:
        return Answer(b"the page")

    return asyncio.run(answer(head.encode(), {path: one}))


@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", 200),
        ("GET /?x=1 HTTP/1.1\r\nhost: localhost\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: [::1]:9000\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", 200),
        ("GET /data HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 404),
        ("GET /../etc HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 404),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:8080\r\n\r\n", 403),
        ("GET / HTTP/1.1\r\nHost: 192.168.1.2\r\n\r\n", 403),
        ("GET / HTTP/1.1\r\nHost: \r\n\r\n", 403),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
        ("GET / SPDY/9\r\nHost: localhost\r\n\r\n", 400),
        ("GET\r\n\r\n", 400),
        ("GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        *(
            (f"{verb} / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405)
            for verb in ("POST", "PUT", "DELETE", "OPTIONS")
        ),
    ],
)
def test_only_get_of_what_is_there_and_for_loopback(head: str, code: int) -> None:
    got = asked(head)
    assert got.code == code
    assert (b"the page" in got.as_bytes()) == (code == 200)
    assert got.as_bytes().startswith(f"HTTP/1.1 {code} ".encode())


@settings(deadline=None)
@given(st.text(), st.text())
def test_no_request_does_more_than_be_answered(first: str, second: str) -> None:
    assert asked(f"{first}\r\nHost: {second}\r\n\r\n", "/nowhere").code in (400, 403, 404, 405)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:1", ("localhost", 1)),
        ("127.8.9.1:65535", ("127.8.9.1", 65535)),
        *(
            (text, None)
            for text in (
                "0.0.0.0:80",
                "8080",
                "192.168.1.1:80",
                "[::]:80",
                "127.0.0.1:65536",
                ":80",
                "a:b",
            )
        ),
    ],
)
def test_it_listens_on_loopback_alone(text: str, found: tuple[str, int] | None) -> None:
    if found is not None:
        assert address(text) == found
        return
    with pytest.raises(InvalidInput) as caught:
        address(text)
    assert caught.value.code == "ListenInvalid"


def test_the_page_runs_nothing_but_itself() -> None:
    shown = page.page()
    text = shown.content.decode()
    assert "default-src 'none'" in shown.policy
    assert shown.policy.count("'sha256-") == 2
    assert not re.search(r"https?://|innerHTML|insertAdjacent|document\.write|\son\w+=", text)
    assert page.answered({"x": HOSTILE}).kind == "application/json"
