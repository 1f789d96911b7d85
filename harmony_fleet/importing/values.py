"""Forms of values that compose, podman and systemd share: sizes, times, ports, mounts."""

from __future__ import annotations

import posixpath
import re
import shlex
from typing import Any, Final

from harmony_fleet.importing.resource import NotTakenError, Place

_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_TIME: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]*)\s*")
_UNITS: Final = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("us", "µs", "usec"), 1e-6),
    "ns": 1e-9,
}
_PORTS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_MOST_PORTS: Final = 128
SHELL_SIGNS: Final = re.compile(r"[|&;<>()$`*?\[\]~\n]")
"""Signs that only a shell understands."""


def size(text: str) -> int | str:
    """``64m`` as 64Mi; what is no whole number of Ki as bytes."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise NotTakenError("it is no size, as 64m")
    count = int(float(found[1]) * 1024 ** _POWERS[found[2].lower()])
    for unit, power in (("Gi", 3), ("Mi", 2), ("Ki", 1)):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return count


def seconds(text: str) -> float:
    """``1m30s`` or ``90``."""
    total, at = 0.0, 0
    for found in _TIME.finditer(text):
        if found.start() != at or found[2] not in _UNITS:
            break
        total, at = total + float(found[1]) * _UNITS[found[2]], found.end()
    if not text or at != len(text):
        raise NotTakenError("it is no time, as 1m30s")
    return int(total) if total == int(total) else round(total, 3)


def whole(text: str) -> int:
    """A whole number."""
    if not re.fullmatch(r"[0-9]{1,15}", text.strip()):
        raise NotTakenError("it is no whole number")
    return int(text)


def truth(text: str) -> bool:
    """``true``, ``yes``, ``on``, ``1``, or nothing, as a flag has it; or their opposites."""
    word = text.strip().lower()
    if word in ("", "true", "yes", "on", "1"):
        return True
    if word in ("false", "no", "off", "0"):
        return False
    raise NotTakenError("it is neither true nor false")


def words(text: str) -> list[str]:
    """A command line as words, where no shell is needed to tell them."""
    try:
        return shlex.split(text)
    except ValueError:
        raise NotTakenError("a quote in it isn't closed: write it as a list") from None


def pair(text: str) -> tuple[str, str]:
    """``NAME=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise NotTakenError("it has no value: write it as NAME=value")
    return name, value


def ports(text: str) -> list[dict[str, Any]]:
    """``127.0.0.1:8080:80/udp``, ``3000-3002:3000-3002``."""
    mapping, _, protocol = text.partition("/")
    rest, _, inside = mapping.rpartition(":")
    host_ip, _, outside = rest.rpartition(":")
    if not outside:
        raise NotTakenError(
            "it leaves the device's port to chance: write it as host port:container port"
        )
    here, there = _range(outside), _range(inside)
    if len(here) != len(there):
        raise NotTakenError("its two ranges have different lengths")
    if len(here) > _MOST_PORTS:
        raise NotTakenError(f"it is more than {_MOST_PORTS} ports")
    more: dict[str, Any] = {}
    more |= {"protocol": protocol} if protocol not in ("", "tcp") else {}
    more |= {"host_ip": host_ip.strip("[]")} if host_ip not in ("", "0.0.0.0") else {}  # noqa: S104 - all addresses are the default
    return [
        {"host_port": one, "container_port": other, **more}
        for one, other in zip(here, there, strict=True)
    ]


def _range(text: str) -> list[int]:
    found = _PORTS.fullmatch(text)
    if not found:
        raise NotTakenError("it is no port")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 0 < first <= last <= 65535:
        raise NotTakenError("it is no port")
    return list(range(first, last + 1))


def path_there(place: Place, path: str) -> str:
    """An absolute path of the device; a relative one begins at `Place.there`."""
    if "$" in path or re.search("%[a-zA-Z]", path):
        raise NotTakenError("a shell or systemd fills a part of it in: write the path")
    if path.startswith("~"):
        raise NotTakenError("a path of a home directory is another one on the device")
    joined = posixpath.normpath(posixpath.join(place.there, path))
    return re.sub("^/+", "/", joined)
