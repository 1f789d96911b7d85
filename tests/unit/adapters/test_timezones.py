"""The system's time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from harmony_agent.adapters.timezones import SystemTimezones


def offset(zones: SystemTimezones, name: str) -> timedelta | None:
    zone = zones.zone(name)
    assert zone is not None
    return datetime(2026, 7, 1, tzinfo=zone).utcoffset()


def test_by_name() -> None:
    zones = SystemTimezones()
    assert zones.zone("UTC") is UTC
    assert offset(zones, "Europe/Berlin") == timedelta(hours=2)
    assert zones.zone("Europe/Berlin") is zones.zone("Europe/Berlin")
    for unknown in ("Mars/Olympus", "../passwd", "Europe"):
        assert zones.zone(unknown) is None


def test_the_devices_own_is_followed(tmp_path: Path) -> None:
    local, data = tmp_path / "localtime", Path("/usr/share/zoneinfo")
    zones = SystemTimezones(local)
    assert zones.zone("local") is UTC
    local.symlink_to(data / "Asia/Tokyo")
    assert offset(zones, "local") == timedelta(hours=9)
    assert zones.zone("local") is zones.zone("local")
    local.unlink()
    local.symlink_to(data / "Europe/Berlin")
    assert offset(zones, "local") == timedelta(hours=2)
    local.unlink()
    local.write_text("no zone")
    assert zones.zone("local") is None
