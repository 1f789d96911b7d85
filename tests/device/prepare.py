"""What is done to a freshly unpacked Debian so that it boots in half a second as a disposable
device.

A change here changes the key of the cached images. Must not boot anything.
"""

import os
import shutil
import tarfile
from io import BytesIO
from pathlib import Path

from tests.device.tools import HarnessError, call

USER, UID = "fleet-agent", 1000
HOME = f"/home/{USER}"
BUSYBOX = "localhost/busybox:latest"
BUSYBOX_TAR = "/usr/share/harmony-device/busybox.tar"

PACKAGES = [
    *("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "udev", "polkitd"),
    *(
        "podman",
        "tmux",
        "runc",
        "crun",
        "catatonit",
        "netavark",
        "aardvark-dns",
        "iptables",
        "uidmap",
        "slirp4netns",
        "fuse-overlayfs",
    ),
    *(
        "python3",
        "python3-venv",
        "ca-certificates",
        "iproute2",
        "procps",
        "strace",
        "faketime",
        "gpgv",
    ),
    *("openssh-server", "sudo", "make"),
]
PACKAGES_ON = {"bookworm": [], "trixie": ["passt", "nftables"]}  # podman 5.4's defaults

_FILES = {
    "/etc/containers/containers.conf": (
        "[containers]\n"
        # Without CAP_SYS_RESOURCE no limit can be raised, so ask for what every process has anyway.
        'default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
        "pids_limit = 0\n"
        "[engine]\n"
        'runtime = "runc"\n'
    ),
    # Rootless podman 4.3 takes vfs unless told.
    "/etc/containers/storage.conf": (
        '[storage]\ndriver = "overlay"\nrunroot = "/run/containers/storage"\n'
        'graphroot = "/var/lib/containers/storage"\n'
    ),
    "/etc/subuid": f"{USER}:100000:65536\n",
    "/etc/subgid": f"{USER}:100000:65536\n",
    f"/var/lib/systemd/linger/{USER}": "",
    # A container that ignores SIGTERM would stretch a stop to 90 s.
    "/etc/systemd/system.conf.d/harmony-device.conf": "[Manager]\nDefaultTimeoutStopSec=5s\n",
    "/etc/systemd/user.conf.d/harmony-device.conf": "[Manager]\nDefaultTimeoutStopSec=5s\n",
    # What is enabled by itself at the first boot; a test that wants it starts it.
    "/etc/systemd/system-preset/00-harmony-device.preset": "disable ssh.service\ndisable ssh.socket\n",
    "/etc/machine-id": "",
    # No mirror is reachable from a device; a test of apt writes the sources it wants.
    "/etc/apt/sources.list": "",
}
# Copied from the host by mmdebstrap.
_REMOVED = ("/etc/hostname", "/etc/resolv.conf")
# Timers that would work behind a test's back.
_UNWANTED = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer",
             "e2scrub_reap.service", "podman-auto-update.timer", "podman-auto-update.service",
             "ssh.service", "ssh.socket")  # fmt: skip
# tmpfiles would make subvolumes of the first two; the last keeps the journal over a reboot.
_FOLDERS = ("/var/lib/machines", "/var/lib/portables", "/var/log/journal")


def prepare(root: Path) -> None:
    """Turn the unpacked Debian in `root` into a device's root."""
    call(
        "chroot",
        str(root),
        "useradd",
        "--create-home",
        "--uid",
        str(UID),
        "--shell",
        "/bin/bash",
        USER,
    )
    for folder in _FOLDERS:
        (root / folder[1:]).mkdir(parents=True, exist_ok=True)
    for path, content in _FILES.items():
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
    for path in _REMOVED:
        (root / path[1:]).unlink(missing_ok=True)
    shutil.rmtree(root / "etc/apt/sources.list.d")
    (root / "etc/apt/sources.list.d").mkdir()
    for link in root.glob(
        "etc/systemd/*/*.wants/*"
    ):  # where a link leads isn't looked at: not into this tree
        if link.name in _UNWANTED:
            link.unlink()
    target = root / BUSYBOX_TAR[1:]
    target.parent.mkdir(parents=True)
    target.write_bytes(busybox_layer())


def forget_first_boot(root: Path) -> None:
    """Remove what a boot for preparation left behind, so that every device is new when it first
    boots.
    """
    (root / "etc/machine-id").write_text("", encoding="ascii")
    (root / "var/lib/dbus/machine-id").unlink(missing_ok=True)
    for folder in (root / "var/log/journal", root / "tmp", root / "var/tmp"):
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def busybox_layer() -> bytes:
    """A tar archive: the host's static busybox, a link for each applet, and the folders that a
    container needs.
    """
    busybox = shutil.which("busybox")
    if busybox is None:
        raise HarnessError(
            "cannot make an image for containers: install busybox-static on this host"
        )
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder, mode in (
            ("bin", 0o755),
            ("etc", 0o755),
            ("tmp", 0o1777),
            ("srv", 0o755),
            ("var", 0o755),
        ):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        content = Path(busybox).read_bytes()
        entry = tarfile.TarInfo("bin/busybox")
        entry.size, entry.mode = len(content), 0o755
        tar.addfile(entry, BytesIO(content))
        for applet in call(busybox, "--list").split():
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(entry)
        for name, text in (("passwd", "root:x:0:0:root:/:/bin/sh\n"), ("group", "root:x:0:\n")):
            entry = tarfile.TarInfo(f"etc/{name}")
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, BytesIO(text.encode()))
    return out.getvalue()


def users(root: Path) -> dict[str, tuple[int, int, str]]:
    """The users of the device in `root`: name to uid, gid and home folder."""
    found = {}
    for line in (root / "etc/passwd").read_text(encoding="utf-8").splitlines():
        name, _, uid, gid, _, home, _ = line.split(":")
        found[name] = (int(uid), int(gid), home)
    return found


def own(root: Path, path: str) -> None:
    """Give a path of the device to fleet-agent."""
    os.chown(root / path.lstrip("/"), UID, UID)
