"""Harmony's typed desired and actual state: what authors, the control plane and agents share.

Needs pydantic alone; does no I/O. An author needs ``Manifest`` and the Scores::

    from scores import Container, File, Manifest, SystemdUnit

    manifest = Manifest(deployment="web", scores=[File(name="motd", path="/srv/motd",
    content="hi\\n")])
"""

from scores.container import Container, InitContainer
from scores.container_devices import DeviceMapping, SecurityOptions
from scores.container_parts import (
    Healthcheck,
    Mount,
    NetworkAttachment,
    PortMapping,
    SecretMount,
)
from scores.file import File, ObjectRef
from scores.manifest import FieldError, InvalidManifest, Manifest, WireManifest
from scores.network import Network
from scores.package import Package
from scores.probes import HttpProbe, Probe, TcpProbe
from scores.secrets import Secret
from scores.session import Session
from scores.status import (
    ContainerDetail,
    DeploymentStatus,
    Detail,
    DeviceInfo,
    FileDetail,
    Heartbeat,
    NetworkDetail,
    PackageDetail,
    ResourceStatus,
    SessionDetail,
    UnitDetail,
    UpgradeDetail,
    VolumeDetail,
)
from scores.system_upgrade import SystemUpgrade
from scores.systemd_unit import SystemdUnit
from scores.volume import Volume

__all__ = [
    "Container",
    "ContainerDetail",
    "DeploymentStatus",
    "Detail",
    "DeviceInfo",
    "DeviceMapping",
    "FieldError",
    "File",
    "FileDetail",
    "Healthcheck",
    "Heartbeat",
    "HttpProbe",
    "InitContainer",
    "InvalidManifest",
    "Manifest",
    "Mount",
    "Network",
    "NetworkAttachment",
    "NetworkDetail",
    "ObjectRef",
    "Package",
    "PackageDetail",
    "PortMapping",
    "Probe",
    "ResourceStatus",
    "Secret",
    "SecretMount",
    "SecurityOptions",
    "Session",
    "SessionDetail",
    "SystemUpgrade",
    "SystemdUnit",
    "TcpProbe",
    "UnitDetail",
    "UpgradeDetail",
    "Volume",
    "VolumeDetail",
    "WireManifest",
]
