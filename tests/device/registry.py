"""A real registry in a lan: Debian's docker-registry, with TLS by a CA of its own and a login.

Images are written into its storage as files, while it runs. What it serves stands in its log.
"""

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.device.claims import Run, kill_cgroup
from tests.device.machine import Device
from tests.device.network import GATEWAY, NATS_HOST, Lan
from tests.device.nspawn import start_in_cgroup
from tests.device.prepare import BUSYBOX_TAR
from tests.device.tools import HarnessError, call

PORT = 5000
HOST = f"{NATS_HOST}:{PORT}"
USER_NAME, PASSWORD = "pi", "hunter2-correct-horse"
_BCRYPT = "$2y$05$abcdefghijklmnopqrstuu10ZSQ4EXb.r1hAyX8r5jQGQAJb5LLdy"
"""Of the password: nothing on a Debian without Apache makes one."""
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


class Registry:
    """The lan's registry. Its images outlive stop and start; close() removes them."""

    def __init__(self, run: Run, lan: Lan) -> None:
        self._run, self._lan = run, lan
        self._server: subprocess.Popen[bytes] | None = None
        self._group = run.unique("registry")
        self.folder = run.folder / self._group
        self._claims = [
            run.claim("tree", str(self.folder)),
            run.claim("cgroup", self._group),
        ]
        self._log = self.folder / "log"
        self.folder.mkdir()
        self._certify()
        (self.folder / "htpasswd").write_text(f"{USER_NAME}:{_BCRYPT}\n", encoding="ascii")
        (self.folder / "config.json").write_text(json.dumps(self._config()), encoding="utf-8")

    def _certify(self) -> None:
        """Make a CA, and by it the server's certificate."""
        made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
        names = ("-addext", f"subjectAltName=DNS:{NATS_HOST},IP:{GATEWAY}", "-days", "2", "-nodes")
        ca, key = str(self.folder / "ca.crt"), str(self.folder / "ca.key")
        call(*made, "-nodes", "-days", "2", "-subj", "/CN=lan CA", "-keyout", key, "-out", ca)
        ours = ("-keyout", str(self.folder / "tls.key"), "-out", str(self.folder / "tls.crt"))
        leaf = ("-addext", "basicConstraints=critical,CA:FALSE")
        call(*made, *names, *leaf, "-subj", f"/CN={NATS_HOST}", "-CA", ca, "-CAkey", key, *ours)

    def _config(self) -> dict[str, object]:
        passwords = {"realm": "lan", "path": str(self.folder / "htpasswd")}
        tls = {"certificate": str(self.folder / "tls.crt"), "key": str(self.folder / "tls.key")}
        return {
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "images")}},
            "http": {"addr": f"0.0.0.0:{PORT}", "secret": "x", "tls": tls},
            "auth": {"htpasswd": passwords},
        }

    def start(self, timeout: float = 20) -> "Registry":
        """Start it, and return when it listens."""
        argv = self._lan.enter("docker-registry", "serve", str(self.folder / "config.json"))
        self._server = start_in_cgroup(self._group, argv, env=None, output=self._log)
        deadline = time.monotonic() + timeout
        while not call(*self._lan.enter("ss", "-Hltn", f"sport = :{PORT}")).strip():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise HarnessError(f"cannot start docker-registry: {self.log()[-1000:]}")
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """End it with SIGKILL: whoever pulls from it is cut off."""
        if self._server is None or self._server.poll() is not None:
            raise HarnessError("cannot kill docker-registry: it isn't running")
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.wait(20)

    def log(self) -> str:
        """What it wrote: a line for each request."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def served(self, digest: str) -> int:
        """How often this blob was asked for with GET and given whole."""
        asked = '"GET /v2/'
        return sum(
            asked in line and f"/blobs/{digest} " in line and '" 200 ' in line
            for line in self.log().splitlines()
        )

    def trusted_by(self, device: Device) -> None:
        """The device's podman knows the CA, by the folder that its documentation names."""
        device.make_folder(f"/etc/containers/certs.d/{HOST}")
        device.write(
            f"/etc/containers/certs.d/{HOST}/ca.crt", (self.folder / "ca.crt").read_bytes()
        )

    def push(self, name: str, tag: str, layers: Sequence[bytes]) -> "Pushed":
        """Have an image of these layers, each a tar, under a name and a tag."""
        blobs = [self._blob(name, layer) for layer in layers]
        config = self._blob(
            name,
            _json(
                {
                    "architecture": "amd64",
                    "os": "linux",
                    "config": {"Labels": {"tag": tag}},
                    "rootfs": {"type": "layers", "diff_ids": blobs},
                }
            ),
        )
        sizes = [
            {"mediaType": _LAYER, "digest": digest, "size": len(layer)}
            for digest, layer in zip(blobs, layers, strict=True)
        ]
        size = self._path(config).stat().st_size
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, "digest": config, "size": size},
                "layers": sizes,
            }
        )
        digest = self._blob(name, manifest)
        place = self._repository(name) / "_manifests"
        _link(place / "revisions/sha256" / digest.removeprefix("sha256:"), digest)
        _link(place / "tags" / tag / "index/sha256" / digest.removeprefix("sha256:"), digest)
        _link(place / "tags" / tag / "current", digest)
        return Pushed(f"{HOST}/{name}:{tag}", f"{HOST}/{name}@{digest}", config, tuple(blobs))

    def _repository(self, name: str) -> Path:
        return self.folder / "images/docker/registry/v2/repositories" / name

    def _path(self, digest: str) -> Path:
        word = digest.removeprefix("sha256:")
        return self.folder / "images/docker/registry/v2/blobs/sha256" / word[:2] / word / "data"

    def _blob(self, name: str, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        path = self._path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        _link(self._repository(name) / "_layers/sha256" / digest.removeprefix("sha256:"), digest)
        return digest

    def close(self) -> None:
        """End it and remove its images. Does nothing the second time."""
        kill_cgroup(self._group)
        if self._server is not None:
            self._server.wait(10)
        for claim in reversed(self._claims):
            self._run.free(claim)


class Pushed:
    """An image in the registry: its name by tag and by digest, its id, its layers."""

    def __init__(self, tagged: str, pinned: str, ident: str, layers: Sequence[str]) -> None:
        self.tagged, self.pinned, self.layers = tagged, pinned, tuple(layers)
        self.id = ident.removeprefix("sha256:")


def layer(name: str, size: int) -> bytes:
    """A tar of one file of `size` random bytes, which nothing compresses."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = size
        tar.addfile(entry, io.BytesIO(os.urandom(size)))
    return out.getvalue()


def busybox(device: Device) -> bytes:
    """The layer that a device's own image for containers has."""
    return (device.root / BUSYBOX_TAR[1:]).read_bytes()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _link(folder: Path, digest: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link").write_text(digest, encoding="ascii")
