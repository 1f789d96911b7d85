"""Network: a network of podman, on which containers find one another by name."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import Score, fault
from scores.container_surroundings import check_address
from scores.container_values import check_engine_name, own_labels
from scores.names import Text


def _subnet(value: str) -> str:
    try:
        ip_network(value if "/" in value else "")
    except ValueError:
        raise PydanticCustomError("InvalidSubnet", "must be a network, as 10.89.5.0/24") from None
    return value


class Network(Score):
    """A network. Containers of its manifest that are in it wait for it by themselves.

    Example: ``Network(name="home")``
    """

    kind: Literal["Network"] = Field(default="Network", description="Network, as the class says.")
    driver: Literal["bridge", "macvlan", "ipvlan"] = Field(
        default="bridge",
        description="bridge: of the device alone; macvlan, ipvlan: of its own network, which "
        "rootful podman alone can do.",
    )
    subnet: Annotated[Text, Field(max_length=64), AfterValidator(_subnet)] | None = Field(
        default=None,
        description="Its addresses. None: podman takes a free range.",
        examples=["10.89.5.0/24"],
    )
    gateway: Annotated[Text, Field(max_length=45), AfterValidator(check_address)] | None = Field(
        default=None,
        description="The device's address in it. None: the first of subnet.",
        examples=["10.89.5.1"],
    )
    internal: bool = Field(
        default=False, description="Nothing in it reaches the outside, nor is reached from there."
    )
    dns: bool = Field(
        default=True,
        description="Podman's own name server answers in it, by the names of its containers. Rootful, "
        "it takes port 53 of the device's address there; false leaves that port to a container.",
    )
    labels: Annotated[Mapping[Text, Text], AfterValidator(own_labels)] = Field(
        default_factory=dict,
        description="Podman's labels: value by name.",
        examples=[{"team": "web"}],
    )

    @model_validator(mode="after")
    def _fits(self) -> Network:
        check_engine_name(self.name)
        if self.adopt:
            text = "a network can't be put back: one that is as wanted is taken as it is"
            raise fault(("adopt",), "AdoptNotForNetwork", text)
        if self.name in RESERVED:
            raise fault(("name",), "InvalidContainerName", "is a word of podman's own")
        if self.driver != "bridge" and self.subnet is None:
            text = "needs subnet: podman 4.3 gets no addresses by DHCP"
            raise fault(("driver",), "FieldConflict", text)
        if self.driver != "bridge" and not self.dns:
            raise fault(("dns",), "FieldConflict", "only a bridge has a name server")
        if self.gateway is not None:
            if self.subnet is None:
                raise fault(("gateway",), "FieldConflict", "needs subnet")
            if ip_address(self.gateway) not in ip_network(self.subnet):
                raise fault(("gateway",), "OutOfRange", "lies outside subnet")
        return self


RESERVED = (
    "host",
    "none",
    "bridge",
    "private",
    "podman",
    "pasta",
    "slirp4netns",
    "container",
    "ns",
)
"""What a Container's `network` would take for something else, and podman's own network."""
