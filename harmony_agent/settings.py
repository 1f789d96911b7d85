"""The agent's configuration: TOML, and ``HARMONY_AGENT__SECTION__KEY`` over it. What nothing
honours is an error.

Reads a file and the environment that it is handed; does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from scores.base import KINDS
from scores.container_values import Quantity
from scores.file import Path as NormalPath
from scores.names import DeviceName
from scores.signatures import read_key
from scores.toml import NotToml, read_toml

DEFAULT_PATH: Final = "/etc/harmony/agent.toml"
ENV_PATH: Final = "HARMONY_AGENT_CONFIG"
ENV_PREFIX: Final = "HARMONY_AGENT__"
_OURS: Final = "Value error, "
"""Prefix of pydantic before our own sentences."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Kind = Literal[
    "File", "SystemdUnit", "Container", "SystemUpgrade", "Session", "Volume", "Network", "Package"
]


class InvalidSettings(ValueError):
    """The configuration can't be used; the message names file, key and what is wrong."""


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


class AgentSection(_Section):
    """Identity of the device, its state directory, its kinds."""

    device_id: DeviceName
    state_dir: NormalPath = "/var/lib/harmony-agent"
    kinds: Sequence[Kind] = tuple(kind for kind in KINDS if kind != "Session")
    """Sessions need tmux, which the package doesn't bring along: who wants them names the kind."""


class NatsSection(_Section):
    """The place of the control plane; `insecure` lets credentials go there without TLS."""

    servers: Annotated[Sequence[str], Field(min_length=1)] = ("nats://127.0.0.1:4222",)
    credentials: str = ""
    tls_ca: str = ""
    insecure: bool = False


class FilesSection(_Section):
    """Below which directories Files may be, and at which single paths besides; `setuid` allows setuid
    and setgid bits.
    """

    roots: Sequence[NormalPath] = ("/srv",)
    paths: Annotated[Sequence[NormalPath], Field(max_length=64)] = ()
    setuid: bool = False


class SystemdSection(_Section):
    """Scope of the manager, and the allowed units."""

    scope: Literal["user", "system"] = "user"
    units: Sequence[str] = ("*",)


class PodmanSection(_Section):
    """podman's API socket; empty: found by the scope of systemd. `allow` names the rights beyond a
    container's own that a Score may ask for.
    """

    socket: str = ""
    allow: Sequence[Literal["privileged", "host-pid", "host-ipc"]] = ()


class ImagesSection(_Section):
    """Images that the agent pulled: `keep_seconds` after which one goes that nothing wants any more;
    `min_free` is what stays free where podman keeps images: below it nothing is pulled, and what
    nothing wants goes at once.
    """

    keep_seconds: Annotated[float, Field(ge=0, le=366 * 86_400)] = 86_400
    min_free: Quantity | Literal[0] = "128Mi"


AccountName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]*\$?$", max_length=32)]


class AccountsSection(_Section):
    """Accounts that this device's Scores lean on: users and groups that are to exist, and groups that
    the agent's user is to be in. `harmony-agent check` looks; the agent makes none.
    """

    users: Annotated[Sequence[AccountName], Field(max_length=64)] = ()
    groups: Annotated[Sequence[AccountName], Field(max_length=64)] = ()
    member_of: Annotated[Sequence[AccountName], Field(max_length=64)] = ()


class SessionsSection(_Section):
    """tmux's socket; empty: in the runtime directory of the agent's user."""

    socket: str = ""


class UpdaterSection(_Section):
    """The root updater's socket."""

    socket: str = "/run/harmony-updater/updater.sock"


class SecretsSection(_Section):
    """The file of the device's own key, which secrets are sealed for; empty: in the state
    directory. The agent makes it where it is missing and may.
    """

    key: str = ""


class IntervalsSection(_Section):
    """Seconds."""

    heartbeat: Seconds = 10
    relist: Seconds = 10
    poll: Seconds = 5


def _spelt(text: str) -> str:
    read_key(text)
    return text


class TrustSection(_Section):
    """Trusted keys, as ``ed25519:<base64>``.

    With `require`, only manifests that one of them signed are accepted.
    """

    require: bool = False
    keys: Annotated[Sequence[Annotated[str, AfterValidator(_spelt)]], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _holds_together(self) -> TrustSection:
        if self.require and not self.keys:
            raise ValueError(
                "require = true needs keys: see harmony fleet key list; without any nothing is believed"
            )
        if len(set(self.keys)) != len(self.keys):
            raise ValueError("keys has the same key twice: take one out")
        return self


class Settings(_Section):
    """The whole configuration."""

    agent: AgentSection
    nats: NatsSection = NatsSection()
    trust: TrustSection = TrustSection()
    files: FilesSection = FilesSection()
    accounts: AccountsSection = AccountsSection()
    systemd: SystemdSection = SystemdSection()
    podman: PodmanSection = PodmanSection()
    images: ImagesSection = ImagesSection()
    sessions: SessionsSection = SessionsSection()
    updater: UpdaterSection = UpdaterSection()
    secrets: SecretsSection = SecretsSection()
    intervals: IntervalsSection = IntervalsSection()
    labels: Annotated[Mapping[str, str], Field(max_length=64)] = {}


def load(path: str | None, environ: Mapping[str, str]) -> Settings:
    """Read `path`, else ``$HARMONY_AGENT_CONFIG``, else the default. Raises InvalidSettings."""
    place = Path(path or environ.get(ENV_PATH) or DEFAULT_PATH)
    try:
        value = read_toml(place.read_bytes())
    except OSError as error:
        raise InvalidSettings(f"cannot read the configuration {place}: {error.strerror}") from error
    except NotToml as error:
        raise InvalidSettings(f"cannot read the configuration {place}: {error}") from error
    except ValueError:
        raise InvalidSettings("cannot read the configuration: no file can have that name") from None
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX):
            _override(value, name, environ[name])
    try:
        return Settings.model_validate(value)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, detail['loc']))}: {_sentence(detail['type'], detail['msg'])}"
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise InvalidSettings(
            f"cannot use the configuration {place}:\n" + "\n".join(lines)
        ) from None


def _sentence(kind: str, message: str) -> str:
    return (
        "nothing honours this key: take it out"
        if kind == "extra_forbidden"
        else message.removeprefix(_OURS)
    )


def _override(value: dict[str, Any], name: str, text: str) -> None:
    """``HARMONY_AGENT__NATS__SERVERS=a,b``: a TOML value, or plain text, or a list with commas."""
    section, separator, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
    field = Settings.model_fields.get(section)
    if not separator or field is None:
        raise InvalidSettings(
            f"cannot use ${name}: nothing honours it (it names no section and key)"
        )
    table = value.setdefault(section, {})
    if isinstance(table, dict):  # what it is else, the model says
        table[key] = _parsed(text, _form(section, key))


def _parsed(text: str, form: str) -> Any:
    """`text` as TOML where that gives what the key takes; a device may be called 12, and a list be
    a,b.
    """
    try:
        parsed = read_toml(f"v = {text}".encode("utf-8", "surrogateescape"))["v"]
    except NotToml:
        parsed = (
            [part.strip() for part in text.split(",") if part.strip()] if form == "list" else text
        )
    if form == "text" and not isinstance(parsed, str):
        return text
    return [parsed] if form == "list" and not isinstance(parsed, list) else parsed


def _form(section: str, key: str) -> str:
    """Form of a key's value: list, text or another scalar."""
    annotation = Settings.model_fields[section].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "text"  # labels
    field = annotation.model_fields.get(key)
    if field is not None and "Sequence" in str(field.annotation):
        return "list"
    return "text" if field is not None and field.annotation is str else "scalar"
