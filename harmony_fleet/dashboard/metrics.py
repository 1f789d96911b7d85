"""The view as Prometheus reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from harmony_fleet.observe.view import GROUPS, FleetView

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class _Metrics(Collector):
    def __init__(self, view: FleetView, now: datetime, connected: bool) -> None:
        self._view, self._now, self._connected = view, now, connected

    def collect(self) -> Iterator[Metric]:
        """All families, in order."""
        view = self._view
        yield GaugeMetricFamily(
            "harmony_fleet_connected", "Whether NATS is reached.", int(self._connected)
        )
        devices = view.devices()
        yield GaugeMetricFamily(
            "harmony_fleet_devices", "Devices that ever told of themselves.", len(devices)
        )
        yield GaugeMetricFamily(
            "harmony_fleet_devices_stale",
            "Devices without a heartbeat lately.",
            len(view.stale(self._now)),
        )
        ages = GaugeMetricFamily(
            "harmony_fleet_heartbeat_age_seconds",
            "Since the last heartbeat, by the server's clock.",
            labels=["device"],
        )
        for name in devices:
            heard = view.heard(name)
            if heard is not None:
                ages.add_metric([name], max(0.0, (self._now - heard).total_seconds()))
        yield ages
        counts = GaugeMetricFamily(
            "harmony_fleet_deployment_devices",
            "Devices of a deployment by state.",
            labels=["deployment", "state"],
        )
        for tally in view.deployments():
            for group in GROUPS:
                counts.add_metric([tally.deployment, group], tally.counts[group])
        yield counts
        yield CounterMetricFamily(
            "harmony_fleet_view_events", "Entries that the view was fed.", view.events
        )


def exposition(view: FleetView, now: datetime, *, connected: bool) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(view, now, connected))
    return bytes(generate_latest(registry))
