"""Runs in a device: what a bare loop on the manager's or podman's own events does. Standard library
and sdbus alone.

    python bare_events.py unit|container NAME…

Starts each NAME again as soon as an event says that it ended; prints ``ready`` once it hears
events.
"""

import asyncio
import http.client
import json
import os
import socket
import sys
import threading
from urllib.parse import quote


async def units(names):
    """Each unit of the user's manager by its PropertiesChanged."""
    import sdbus
    from sdbus import DbusInterfaceCommonAsync, dbus_method_async

    class Manager(DbusInterfaceCommonAsync, interface_name="org.freedesktop.systemd1.Manager"):
        @dbus_method_async("s", "o")
        async def load_unit(self, name: str) -> str:
            raise NotImplementedError

        @dbus_method_async("ss", "o")
        async def start_unit(self, name: str, mode: str) -> str:
            raise NotImplementedError

        @dbus_method_async("")
        async def subscribe(self) -> None:
            raise NotImplementedError

    bus = sdbus.sd_bus_open_user()
    manager = Manager.new_proxy("org.freedesktop.systemd1", "/org/freedesktop/systemd1", bus)
    await manager.subscribe()

    async def keep(name):
        unit = DbusInterfaceCommonAsync.new_proxy(
            "org.freedesktop.systemd1", await manager.load_unit(name), bus
        )
        async for _interface, changed, _invalid in unit.properties_changed:
            if changed.get("ActiveState", ("", ""))[1] in ("failed", "inactive"):
                await manager.start_unit(name, "replace")

    tasks = [asyncio.create_task(keep(name)) for name in names]
    await asyncio.sleep(1)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


class Podman(http.client.HTTPConnection):
    """Podman's API over its socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(f"/run/user/{os.getuid()}/podman/podman.sock")


def containers(names):
    """Each container by the event that it died."""
    events = Podman("d")
    events.request(
        "GET", "/v4.0.0/libpod/events?stream=true&filters=" + quote(json.dumps({"event": ["died"]}))
    )
    threading.Timer(1.0, lambda: print("ready", flush=True)).start()
    answer = events.getresponse()
    while line := answer.readline():
        name = json.loads(line).get("Actor", {}).get("Attributes", {}).get("name", "")
        if name in names:
            call = Podman("d")
            call.request("POST", f"/v4.0.0/libpod/containers/{name}/start")
            call.getresponse().read()
            call.close()


if __name__ == "__main__":
    if sys.argv[1] == "unit":
        asyncio.run(units(sys.argv[2:]))
    else:
        containers(sys.argv[2:])
