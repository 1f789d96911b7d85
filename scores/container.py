"""Container: one container, its resources and its health, as podman runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from scores.base import WHOLE, Model, Score, check_distinct, fault, is_new
from scores.container_devices import DeviceRules, Devices, LogDriver, SecurityOptions
from scores.container_parts import (
    Healthcheck,
    Mount,
    NetworkAttachment,
    PortMapping,
    RegistryLogin,
    SecretMount,
)
from scores.container_surroundings import (
    Annotations,
    Dns,
    Domains,
    Groups,
    Hosts,
    Sysctls,
    Timezone,
    Ulimits,
    Userns,
    auto_size,
)
from scores.container_values import (
    LEAST_MEMORY,
    Args,
    Capability,
    DayWindow,
    Image,
    Quantity,
    SecretEnv,
    Signal,
    WorkingDir,
    check_engine_name,
    check_least,
    own_labels,
    registry_of,
)
from scores.file import Path
from scores.names import Text
from scores.probes import Liveness, Period, Readiness
from scores.schedule import Cron
from scores.secrets import names_in


class InitContainer(Model):
    """Runs to its end, with exit code 0, before the container starts; has its mounts unless it sets
    some.
    """

    name: Annotated[Text, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=63)] = Field(
        description="Unique among the init containers of its container.", examples=["migrate"]
    )
    image: Image | None = Field(
        default=None,
        description="The image's name; None: the container's own.",
        examples=["localhost/busybox:1.36"],
    )
    command: Args | None = Field(
        default=None,
        description="Replaces the image's entrypoint: an argument list, no shell. "
        "None: the image's.",
        examples=[["migrate", "--all"]],
    )
    args: Args | None = Field(
        default=None,
        description="Replaces the image's command: arguments to the entrypoint. None: the image's.",
        examples=[["--all"]],
    )
    env: SecretEnv = Field(
        default_factory=dict,
        repr=False,
        description="Environment variables: value by name, or {secret: NAME}. It has none of the "
        "container's.",
        examples=[{"TZ": "UTC"}],
    )
    mounts: Annotated[Sequence[Mount], Field(max_length=64)] | None = Field(
        default=None, description="What it sees of the device; None: the container's mounts."
    )
    user: Annotated[Text, Field(max_length=64)] | None = Field(
        default=None,
        description="User, or user:group, in the container; None: the image's.",
        examples=["1000:1000"],
    )
    timeout_seconds: Period = Field(
        default=300, description="Seconds after which it is ended and has failed.", examples=[60]
    )


class Container(Score):
    """A container that podman runs under this name.

    Example: ``Container(name="web", image="localhost/busybox", command=["httpd", "-f"])``
    """

    restarts = True

    kind: Literal["Container"] = Field(
        default="Container", description="Container, as the class says."
    )
    image: Image = Field(
        description="The image's name, with a registry, a tag or a digest.",
        examples=["localhost/nginx:1.27"],
    )
    command: Args | None = Field(
        default=None,
        description="Replaces the image's entrypoint: an argument list, no shell. "
        "None: the image's.",
        examples=[["httpd", "-f"]],
    )
    args: Args | None = Field(
        default=None,
        description="Replaces the image's command: arguments to the entrypoint. None: the image's.",
        examples=[["-p", "8080"]],
    )
    env: SecretEnv = Field(
        default_factory=dict,
        repr=False,
        description="Environment variables: value by name, or {secret: NAME}. No status or log shows "
        "a value; podman inspect does, and its disk has it: secrets is for what isn't to lie there.",
        examples=[{"TZ": "UTC"}],
    )
    env_files: Annotated[Sequence[Path], Field(max_length=16)] = Field(
        default=(),
        description="Files of NAME=value lines on the device, read when the container is made; "
        "env wins.",
        examples=[["/srv/web/web.env"]],
    )
    secrets: Annotated[Sequence[SecretMount], Field(max_length=64)] = Field(
        default=(),
        description="Secrets as files in memory. Given anew, they make the container anew.",
        examples=[[{"secret": "mqtt-password"}]],
    )
    ports: Annotated[Sequence[PortMapping], Field(max_length=128)] = Field(
        default=(), description="Ports of the device that lead into the container."
    )
    mounts: Annotated[Sequence[Mount], Field(max_length=64)] = Field(
        default=(), description="Paths, volumes and memory that the container sees."
    )
    network: (
        Annotated[Text, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=63)] | None
    ) = Field(
        default=None,
        description="host, none, or a network's name; None is podman's default. A Network of this "
        "manifest is waited for.",
        examples=["host"],
    )
    networks: Annotated[Sequence[NetworkAttachment], Field(max_length=16)] = Field(
        default=(),
        description="Several networks, or one with aliases or a fixed address, in place of "
        "network. A Network of this manifest is waited for.",
    )
    user: Annotated[Text, Field(max_length=64)] | None = Field(
        default=None,
        description="User, or user:group, in the container; None: the image's.",
        examples=["1000:1000"],
    )
    working_dir: WorkingDir | None = Field(
        default=None,
        description="The directory in the container where it starts; None: the image's.",
        examples=["/app"],
    )
    hostname: (
        Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=63)] | None
    ) = Field(
        default=None,
        description="The host's name in the container; None: podman makes one.",
        examples=["web"],
    )
    labels: Annotated[Mapping[Text, Text], AfterValidator(own_labels)] = Field(
        default_factory=dict,
        description="Podman's labels: value by name; io.harmony. is the agent's own prefix.",
        examples=[{"team": "web"}],
    )
    restart: Literal["always", "on-failure", "never"] = Field(
        default="always",
        description="What happens when it ends; on-failure: only after another exit code than 0. "
        "An end that is final is remembered: nothing runs it again but a change of its spec.",
    )
    schedule: Cron | None = Field(
        default=None,
        description="Runs it at these times, and not otherwise: minute, hour, day of the month, month, day "
        "of the week, as cron writes them, in its timezone, else in UTC. A time that comes while a "
        "run is under way is missed. None: it runs all the time.",
        examples=["0 3 * * *"],
    )
    run_missed: bool = Field(
        default=False,
        description="With schedule: what was missed while the agent or the device was off is made "
        "up for by one run.",
    )
    restart_tries: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="How often in a row it is run again after it ended by itself; ten minutes of "
        "running begin a new row. None: without end.",
        examples=[5],
    )
    state: Literal["running", "stopped"] = Field(
        default="running", description="Whether it is to run."
    )
    pull: Literal["missing", "always", "never"] = Field(
        default="missing",
        description="When the image is fetched; always: once for each new spec, even if the device has it.",
    )
    pull_at: DayWindow | None = Field(
        default=None,
        description="The part of the day in which an image is fetched, by the device's clock and "
        "time zone. A fetch that isn't done by its end goes on in the next one. None: at any time.",
        examples=["02:00-05:00", "22:30-06:00"],
    )
    login: RegistryLogin | None = Field(
        default=None,
        description="Who fetches its images at the registry that image names. No other registry is "
        "told it, and no file of the device keeps it. None: they are fetched without a login.",
    )
    stop_signal: Signal | None = Field(
        default=None,
        description="The signal that asks it to end; None: the image's, else SIGTERM.",
        examples=["SIGINT"],
    )
    stop_grace_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        default=10, description="Seconds from that signal until it is killed.", examples=[30]
    )
    memory: Quantity | None = Field(
        default=None,
        description="The most memory that it may use: bytes, or a number with Ki, Mi or Gi. "
        "None: no bound.",
        examples=["64Mi"],
    )
    cpus: Annotated[float, Field(gt=0, le=1024), WHOLE] | None = Field(
        default=None,
        description="Processors that it may use, also a part of one. None: no bound.",
        examples=[0.5],
    )
    pids: Annotated[int, Field(ge=1, le=4_194_304)] | None = Field(
        default=None,
        description="Processes and threads that it may have. None: podman's default.",
        examples=[100],
    )
    cap_add: Annotated[Sequence[Capability], Field(max_length=64)] = Field(
        default=(),
        description="Capabilities of the kernel beyond podman's own set.",
        examples=[["NET_ADMIN"]],
    )
    cap_drop: Annotated[Sequence[Capability], Field(max_length=64)] = Field(
        default=(),
        description="Capabilities of podman's own set that it doesn't get.",
        examples=[["ALL"]],
    )
    read_only: bool = Field(
        default=False, description="It can write nowhere but in its mounts and in memory."
    )
    no_new_privileges: bool = Field(
        default=False, description="Nothing in it can gain rights, as by a setuid program."
    )
    security_opt: SecurityOptions | None = Field(
        default=None, description="Guards of the kernel around it. None: podman's own."
    )
    devices: Devices = Field(
        default=(),
        description="Nodes below /dev that it may use. It waits for one that is not plugged in.",
    )
    device_cgroup_rules: DeviceRules = Field(
        default=(),
        description="Nodes that it may use by their numbers, also those that come later: type, "
        "major:minor and access. Rootful podman alone can do it.",
        examples=[["c 189:* rwm"]],
    )
    privileged: bool = Field(
        default=False,
        description="No guard is around it, and it sees every node of /dev. "
        "Only where the device's own configuration allows it.",
    )
    host_pid: bool = Field(
        default=False,
        description="It sees the device's processes. "
        "Only where the device's own configuration allows it.",
    )
    host_ipc: bool = Field(
        default=False,
        description="It shares the device's memory segments and semaphores. "
        "Only where the device's own configuration allows it.",
    )
    init: bool = Field(
        default=False,
        description="A small init is its first process: it passes signals on and reaps what ended. "
        "The device needs the package catatonit.",
    )
    tty: bool = Field(default=False, description="It has a terminal.")
    log_driver: LogDriver | None = Field(
        default=None,
        description="Where its output goes: the journal, a file of podman, or nowhere. "
        "None: podman's default, the journal.",
        examples=["k8s-file"],
    )
    log_size: Quantity | None = Field(
        default=None,
        description="How large the file of k8s-file may become: bytes, or a number with Ki, Mi or "
        "Gi. What is older goes. None: no bound.",
        examples=["10Mi"],
    )
    init_containers: Annotated[Sequence[InitContainer], Field(max_length=16)] = Field(
        default=(), description="Run one after the other to their end before it starts."
    )
    userns: Userns | None = Field(
        default=None,
        description="keep-id: the agent's user is the container's user of this uid and gid, "
        "and so can write what is bound; the same numbers, unless some are named. auto: ids that no "
        "other container has, as many as the image needs, or size=5000 of them. "
        "None: podman's default, where the agent's user is root in the container.",
        examples=["keep-id:uid=1883,gid=1883", "auto", "auto:size=5000"],
    )
    groups: Groups = Field(
        default=(),
        description="More groups of its user: names of the image's, or numbers. keep-groups alone: "
        "those of the agent's user, which the runtime crun can.",
        examples=[["20", "video"], ["keep-groups"]],
    )
    shm_size: Quantity | None = Field(
        default=None,
        description="How large /dev/shm may become: bytes, or a number with Ki, Mi or Gi. "
        "None: podman's default, 64000Ki.",
        examples=["256Mi"],
    )
    ulimits: Ulimits = Field(
        default_factory=dict,
        description="Limits of each process in it, by name. Rootless, none above the agent's own.",
        examples=[{"nofile": {"soft": 1024, "hard": 4096}}],
    )
    sysctls: Sysctls = Field(
        default_factory=dict,
        description="Settings of the kernel that are the container's own: value by name.",
        examples=[{"net.ipv4.ip_forward": "1"}],
    )
    dns: Dns = Field(
        default=(),
        description="Addresses of the name servers that it asks. Empty: the device's.",
        examples=[["192.0.2.53"]],
    )
    dns_search: Domains = Field(
        default=(),
        description="Domains in which a short name is looked up. Empty: the device's.",
        examples=[["lan"]],
    )
    extra_hosts: Hosts = Field(
        default_factory=dict,
        description="Lines of its /etc/hosts: address by name; host-gateway is the device.",
        examples=[{"broker": "192.0.2.10"}],
    )
    annotations: Annotations = Field(
        default_factory=dict,
        description="Annotations for podman's runtime: value by name.",
        examples=[{"run.oci.keep_original_groups": "1"}],
    )
    timezone: Timezone | None = Field(
        default=None,
        description="Its time zone, of the device's list; local: the device's own. "
        "None: the image's.",
        examples=["Europe/Berlin"],
    )
    healthcheck: Healthcheck | None = Field(
        default=None, description="Podman's own health check, for what reads podman's word."
    )
    no_healthcheck: bool = Field(
        default=False, description="The health check that the image brings is not run."
    )
    readiness: Readiness = None
    liveness: Liveness = None

    def uses(self) -> tuple[str, ...]:
        """The volumes and networks of its manifest that it waits for by itself."""
        mounts = [
            *self.mounts,
            *(one for init in self.init_containers for one in init.mounts or ()),
        ]
        volumes = [f"Volume/{mount.source}" for mount in mounts if mount.type == "volume"]
        names = [*([self.network] if self.network else []), *(one.name for one in self.networks)]
        return tuple(dict.fromkeys([*volumes, *(f"Network/{name}" for name in names)]))

    def secret_names(self) -> tuple[str, ...]:
        """The secrets that it is made of, and that of its login."""
        login = () if self.login is None else (self.login.password.secret,)
        return tuple(dict.fromkeys([*self.secrets_inside(), *login]))

    def secrets_inside(self) -> tuple[str, ...]:
        """The secrets in its variables and mounts, and in those of its init containers."""
        inits = [value for init in self.init_containers for value in init.env.values()]
        mounted = [one.secret for one in self.secrets]
        return tuple(dict.fromkeys([*names_in([*self.env.values(), *inits]), *mounted]))

    def stopped(self) -> Self:
        """The same, not to run."""
        return self if self.state == "stopped" else self.model_copy(update={"state": "stopped"})

    @model_validator(mode="after")
    def _holds_together(self, info: ValidationInfo) -> Container:
        if is_new(info):
            check_least(self.memory, "memory", LEAST_MEMORY)
        if self.no_healthcheck and self.healthcheck is not None:
            raise fault(("no_healthcheck",), "FieldConflict", "healthcheck sets one")
        self._fit_together()
        check_engine_name(self.name)
        targets = [mount.target for mount in self.mounts] + [one.place for one in self.secrets]
        check_distinct(
            targets, "mounts", "target", "DuplicateMount", "another mount has this target"
        )
        ports = [(port.host_ip, port.host_port, port.protocol) for port in self.ports]
        another = "another port has this port of the device"
        check_distinct(ports, "ports", "host_port", "DuplicatePort", another)
        names = [init.name for init in self.init_containers]
        another = "another one has this name"
        check_distinct(names, "init_containers", "name", "DuplicateResource", another)
        return self

    def _fit_the_pull(self) -> None:
        """Refuse what a pull has no use for."""
        for field in ("pull_at", "login"):
            if getattr(self, field) is not None and self.pull == "never":
                raise fault((field,), "FieldConflict", "pull is never")
        if self.login is not None and not registry_of(self.image):
            raise fault(("login",), "FieldConflict", "image names no registry")

    def _fit_together(self) -> None:
        """Refuse a field that another one rules out."""
        if self.restart_tries is not None and self.restart == "never":
            raise fault(("restart_tries",), "FieldConflict", "restart is never")
        if auto_size(self.userns) and self.init_containers:
            text = "with auto they would have other ids than the container"
            raise fault(("init_containers",), "FieldConflict", text)
        self._fit_the_schedule()
        self._fit_the_pull()
        if self.networks and self.network is not None:
            raise fault(("networks",), "FieldConflict", "network is set: put it into networks")
        names = [one.name for one in self.networks]
        another = "another one is of this network"
        check_distinct(names, "networks", "name", "DuplicateNetwork", another)
        if self.log_size is not None and self.log_driver != "k8s-file":
            raise fault(("log_size",), "FieldConflict", "only log_driver: k8s-file has a size")
        targets = [device.target or device.source for device in self.devices]
        another = "another device has this path in the container"
        check_distinct(targets, "devices", "target", "DuplicateDevice", another)

    def _fit_the_schedule(self) -> None:
        """Refuse what is for a service, where it runs at times."""
        if self.schedule is None:
            if self.run_missed:
                raise fault(("run_missed",), "FieldConflict", "only a schedule has times to miss")
            return
        others = ("restart_tries", "restart_on", "init_containers", "readiness", "liveness")
        if field := next((name for name in others if getattr(self, name)), None):
            raise fault((field,), "FieldConflict", "with a schedule each run is by itself")
        if self.restart != "never" and "restart" in self.model_fields_set:
            raise fault(("restart",), "FieldConflict", "with a schedule only its times run it")
