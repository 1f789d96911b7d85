"""A page, a unit of our own with a drop-in, and a container that serves the page on port 8080.

    harmony apply examples/web.py --device pi-01
    curl http://pi-01:8080/

The image localhost/busybox is one that the device has; any image with an HTTP server does.
"""

from scores import Container, File, Manifest, Mount, PortMapping, SystemdUnit

PAGE = """\
<!doctype html>
<title>Harmony</title>
<p>This page is kept as its manifest says.
"""

PREVIEW = """\
[Unit]
Description=Serves the same page to this device alone, for a look without the container

[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /srv/web 8081

[Install]
WantedBy=default.target
"""

LIMITS = """\
[Service]
Nice=5
MemoryMax=64M
"""

page = File(name="page", path="/srv/web/index.html", content=PAGE, mode="0644", parents=True)

preview = SystemdUnit(
    name="web-preview.service",
    content=PREVIEW,
    dropins={"10-limits.conf": LIMITS},
    enabled=True,
    after=[page.key],
)

web = Container(
    name="web",
    image="localhost/busybox",
    command=["busybox", "httpd", "-f", "-p", "8080", "-h", "/www"],
    ports=[PortMapping(host_port=8080, container_port=8080)],
    mounts=[Mount(type="bind", source="/srv/web", target="/www", read_only=True)],
    pull="never",
    read_only=True,
    cap_drop=["ALL"],
    no_new_privileges=True,
    after=[page.key],
)

manifest = Manifest(deployment="web", scores=[page, preview, web])
