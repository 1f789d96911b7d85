"""Decode the answers of podman's API (4.3 to 5.4) into `topology.containers`. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from harmony_agent.core.reconciler import LogLine
from harmony_agent.topology.containers import (
    ContainerEvent,
    ContainerState,
    Health,
    Image,
    Listed,
    State,
)

_STATES: Final[Mapping[str, State]] = {
    "created": "created",
    "configured": "created",
    "initialized": "created",
    "running": "running",
    "paused": "paused",
    "stopping": "stopping",
    "stopped": "exited",
    "exited": "exited",
    "removing": "removing",
}
_HEALTH: Final[Mapping[str, Health]] = {
    "starting": "starting",
    "healthy": "healthy",
    "unhealthy": "unhealthy",
}
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NEVER: Final = datetime(2, 1, 1, tzinfo=UTC)
_FRAME: Final = 8
KILL_SECONDS: Final = 10.0
"""A run that ends so soon after `podman kill` was ended by that."""
_STAMP: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,20}(Z|[+-][0-9]{2}:[0-9]{2})")


def listed(entry: Mapping[str, Any]) -> Listed:
    """An entry of the container list."""
    names = entry.get("Names") or [""]
    return Listed(
        id=entry["Id"],
        name=names[0],
        state=_STATES.get(entry.get("State") or "", "unknown"),
        labels=entry.get("Labels") or {},
        exit_code=entry.get("ExitCode") or 0,
        started=entry.get("StartedAt") or 0,
        ended=entry.get("ExitedAt") or 0,
        pid=entry.get("Pid") or 0,
        networks=tuple(sorted(entry.get("Networks") or [])),
    )


def container(body: Mapping[str, Any]) -> ContainerState:
    """An inspected container."""
    state, config = body.get("State") or {}, body.get("Config") or {}
    shown = _STATES.get(state.get("Status") or "", "unknown")
    health = state.get("Health") or state.get("Healthcheck") or {}
    return ContainerState(
        id=body["Id"],
        name=body["Name"],
        state=shown,
        labels=config.get("Labels") or {},
        image_id=body.get("Image") or "",
        image_digest=_digest(body.get("ImageDigest")),
        exit_code=state.get("ExitCode") if shown == "exited" else None,
        started=moment(state.get("StartedAt")),
        finished=moment(state.get("FinishedAt")),
        health=_HEALTH.get(health.get("Status") or "", ""),
        stop_timeout=int(config.get("StopTimeout") or 0),
        stopped=bool(state.get("StoppedByUser")) or None,  # shown by podman 5, and only if true
        ports=frozenset(_ports((body.get("HostConfig") or {}).get("PortBindings") or {})),
        config=_config(body),
    )


def _ports(bindings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Ports of the device, from ``{"8080/tcp": [{"HostPort": "18080"}]}``."""
    for inside, places in bindings.items():
        protocol = inside.partition("/")[2]
        for place in places or []:
            if (port := str(place.get("HostPort"))).isdecimal():
                yield protocol, int(port)


def _config(body: Mapping[str, Any]) -> dict[str, str]:
    """Collect the settings that podman can change without a new id.

    The health check is shown by a digest.
    """
    host, networks = (
        body.get("HostConfig") or {},
        (body.get("NetworkSettings") or {}).get("Networks") or {},
    )
    mode = str(host.get("NetworkMode"))
    check = json.dumps((body.get("Config") or {}).get("Healthcheck"), sort_keys=True)
    # Before the first start podman 5 lists some modes, as pasta, among the networks.
    shown = ",".join([mode, *sorted(set(networks) - {mode})])
    return {
        "memory": str(host.get("Memory")),
        "cpus": f"{host.get('CpuQuota')}/{host.get('CpuPeriod')}",
        "pids": str(host.get("PidsLimit")),
        "healthcheck": hashlib.sha256(check.encode()).hexdigest(),
        "network": shown,
        "networks": shown,
    }


def image(body: Mapping[str, Any]) -> Image:
    """An inspected image."""
    entrypoint = (body.get("Config") or {}).get("Entrypoint") or []
    return Image(id=body["Id"], digest=_digest(body.get("Digest")), entrypoint=tuple(entrypoint))


def event(line: bytes) -> ContainerEvent | None:
    """Read a line of the event stream. None if it is about something else."""
    try:
        body = json.loads(line)
        attributes = body["Actor"]["Attributes"] or {}
        return ContainerEvent(
            id=body["Actor"]["ID"], name=attributes.get("name", ""), labels=attributes
        )
    except (ValueError, KeyError, TypeError):
        return None


def was_stopped(lines: Iterable[bytes], started: datetime) -> bool | None:
    """Tell from the events of a container if somebody asked for the end of the run that began at
    `started`; None where they don't show that it ended.

    Podman has no event for a stop of what ends in time. But each end is cleaned up once, and a stop
    cleans up once more.
    """
    times: dict[str, list[float]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            body = json.loads(line)
            at = body["timeNano"] / 1e9
            if at >= started.timestamp():
                times.setdefault(body["Action"], []).append(at)
    ended = times.get("died", times.get("exited"))
    if not ended:
        return None
    kills = [at for at in times.get("kill", ()) if abs(ended[-1] - at) <= KILL_SECONDS]
    return bool(kills) or "stop" in times or len(times.get("cleanup", ())) > 1


def moment(text: str | None) -> datetime | None:
    """Read a time of podman, in the zone of its service. None for its "never"."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return None if found.replace(tzinfo=UTC) < _NEVER else found.astimezone(UTC)


class LogLines:
    """The last `most` lines of a multiplexed log stream, `limit` bytes at most.

    A frame has one byte of stream number, three empty bytes, four of length, then its payload.
    """

    def __init__(self, most: int, limit: int) -> None:
        self._most, self._limit = most, limit
        self._held = b""
        self._kept: deque[bytes] = deque()
        self._room = limit

    def add(self, chunk: bytes) -> None:
        """Take in more of the stream."""
        self._held += chunk
        while len(self._held) >= _FRAME:
            end = _FRAME + int.from_bytes(self._held[4:_FRAME], "big")
            if len(self._held) < end:
                return
            self._keep(self._held[_FRAME:end])
            self._held = self._held[end:]

    def _keep(self, payload: bytes) -> None:
        self._kept.append(payload)
        self._room -= len(payload)
        while self._room < 0 and len(self._kept) > 1:
            self._room += len(self._kept.popleft())

    def lines(self) -> list[LogLine]:
        """The lines until now, oldest first. Each begins with its time."""
        text = b"".join(self._kept)[-self._limit :].decode("utf-8", "replace")
        return [_line(line) for line in text.splitlines()[-self._most :]] if self._most > 0 else []


def _line(line: str) -> LogLine:
    stamp, _, text = line.partition(" ")
    when = _STAMP.fullmatch(stamp) and moment(stamp)
    if not when:
        return LogLine("", line)  # the first, where it was cut
    return LogLine(when.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z", text)


def _digest(text: object) -> str | None:
    return text if isinstance(text, str) and _DIGEST.fullmatch(text) else None
