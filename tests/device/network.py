"""A network of its own for devices: a namespace with a bridge, and a namespace for each device with
a veth into it.

Traffic never leaves the namespaces that are made here. Must not know what runs on either end.
"""

from typing import Literal

from tests.device.claims import Claim, Run
from tests.device.tools import HarnessError, call

SUBNET, GATEWAY, PREFIX_LENGTH = "10.91.0", "10.91.0.1", 24
NATS_HOST = "nats"
Cut = Literal["half-open", "down", "drop"]


class Lan:
    """The network. Its own address, GATEWAY, is where servers listen; devices know it by the name
    `nats`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.netns = run.unique("lan")
        self._claim = run.claim("netns", self.netns)
        self._links: list[Link] = []
        call("ip", "netns", "add", self.netns)
        self.ip("link", "set", "lo", "up")
        self.ip("link", "add", "br0", "type", "bridge", "forward_delay", "0")
        self.ip("address", "add", f"{GATEWAY}/{PREFIX_LENGTH}", "dev", "br0")
        self.ip("link", "set", "br0", "up")

    def ip(self, *argv: str) -> str:
        """Run ip(8) in the network."""
        return call("ip", "-netns", self.netns, *argv)

    def enter(self, *argv: str) -> list[str]:
        """The command that runs `argv` of the host in this network."""
        return ["nsenter", f"--net=/run/netns/{self.netns}", "--", *argv]

    def attach(self, name: str) -> "Link":
        """A namespace for the device `name`, linked to this network."""
        number = len(self._links) + 1
        if number > 240:
            raise HarnessError(
                "cannot attach one more device: this lan's addresses are used up; make another lan"
            )
        link = Link(self._run, self, name, number)
        self._links.append(link)
        return link

    def close(self) -> None:
        """Remove the network and the links to it. Does nothing the second time."""
        for link in self._links:
            link.close()
        self._run.free(self._claim)


class Link:
    """A device's cable into the lan. Its namespace, and so its address, outlives a reboot of the
    device.
    """

    def __init__(self, run: Run, lan: Lan, name: str, number: int) -> None:
        self._run, self._lan, self.netns = run, lan, name
        self.address = f"{SUBNET}.{10 + number}"
        self._port = f"port{number}"
        self._cut: Cut | None = None
        self._claim: Claim = run.claim("netns", name)
        call("ip", "netns", "add", name)
        lan.ip("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", name)
        lan.ip("link", "set", self._port, "master", "br0", "up")
        for argv in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{self.address}/{PREFIX_LENGTH}", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", GATEWAY),
        ):
            call("ip", "-netns", name, *argv)

    def cut(self, how: Cut = "half-open") -> None:
        """Cut the link until heal(): the carrier stays (`half-open`), goes (`down`), or a filter
        drops (`drop`).
        """
        if self._cut is not None:
            raise HarnessError(
                f"cannot cut the link of {self.netns}: it is cut already; heal it first"
            )
        if how == "half-open":
            self._lan.ip("link", "set", self._port, "nomaster")
        elif how == "down":
            self._lan.ip("link", "set", self._port, "down")
        else:
            self._filter("-A")
        self._cut = how

    def heal(self) -> None:
        """Undo the cut; does nothing when there is none."""
        if self._cut == "half-open":
            self._lan.ip("link", "set", self._port, "master", "br0")
        elif self._cut == "down":
            self._lan.ip("link", "set", self._port, "up")
        elif self._cut == "drop":
            self._filter("-D")
        self._cut = None

    def slow(self, rate: str) -> None:
        """Let so much through to the device and no more, as ``200mbit``."""
        shape = ("rate", rate, "burst", "256k", "latency", "50ms")
        port = ("dev", self._port, "root", "tbf", *shape)
        call("tc", "-netns", self._lan.netns, "qdisc", "replace", *port)

    def reset(self) -> None:
        """Break the device's open connections with one RST each; new ones work at once."""
        call(*self._lan.enter("ss", "--kill", "--no-header", "dst", self.address))

    def _filter(self, change: str) -> None:
        for chain, side in (("INPUT", "--source"), ("OUTPUT", "--destination")):
            call(
                *self._lan.enter(
                    "iptables", "--wait", change, chain, side, self.address, "-j", "DROP"
                )
            )

    def close(self) -> None:
        """Remove the link. Does nothing the second time."""
        self._run.free(self._claim)
