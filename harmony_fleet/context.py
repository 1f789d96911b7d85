"""Server, credentials and lineage of a command: from flags, environment, context file, in that
order.

Reads files and the environment; connects nowhere. The lineage is an operator's authority to write
deployments. It is made once and kept in ``$HARMONY_HOME/lineage``. A file that can't be read is
never replaced by a new one.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from harmony_fleet.storage import durable, secret
from harmony_fleet.storage.regular import read_regular
from scores.channel import needs_tls
from scores.toml import NotToml, read_toml

AUTHORITY: Final = "authority"
"""The folder of the home where the authority's keys and credentials are."""
ANEW: Final = "make another authority, and join each device to it: see docs/operate.md"
"""Next step if others may have read one of them."""
DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"
_KEYS: Final = {"server": (str, list), "creds": (str,), "tls_ca": (str,), "replicas": (int,)}
_SERVER: Final = re.compile(r"((nats|tls)://)?[^\s/]+(:[0-9]+)?/?")
_LINEAGE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Context:
    """The place and the identity with which a command works. `replicas` is for buckets that it has to make.

    `insecure`: credentials may go there without TLS.
    """

    servers: tuple[str, ...]
    creds: Path | None
    tls_ca: Path | None
    home: Path
    replicas: int = 1
    insecure: bool = False

    def needs_tls(self, server: str) -> bool:
        """Tell if nothing but TLS may be spoken to `server`, one of ours or one that they named."""
        credentials = self.creds is not None or any("@" in one for one in self.servers)
        ca = self.tls_ca is not None
        return needs_tls(server, tls_ca=ca, credentials=credentials, insecure=self.insecure)

    def place(self) -> str:
        """The servers for a message, without a user or password that their URL may hold."""
        return ", ".join(server.rpartition("@")[2] for server in self.servers)


def load_context(
    *,
    server: str | None = None,
    creds: str | None = None,
    tls_ca: str | None = None,
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Context:
    """Flags before ``$HARMONY_SERVER``, ``$HARMONY_CREDS``, ``$HARMONY_TLS_CA`` before
    ``context.toml``.
    """
    env = os.environ if environ is None else environ
    home = home_of(env)
    saved = _read_file(home / "context.toml")
    creds_path = _existing(
        "credentials", creds or env.get("HARMONY_CREDS"), saved.get("creds"), home
    )
    if (
        creds_path is not None and creds_path.parent == home / AUTHORITY
    ):  # others' files are others' to guard
        secret.check(creds_path, ANEW)
    servers = _servers(server or env.get("HARMONY_SERVER") or saved.get("server", DEFAULT_SERVER))
    return Context(
        servers=servers,
        creds=creds_path,
        tls_ca=_existing(
            "TLS authority", tls_ca or env.get("HARMONY_TLS_CA"), saved.get("tls_ca"), home
        ),
        home=home,
        replicas=saved.get("replicas", 1),
        insecure=insecure,
    )


def home_of(env: Mapping[str, str]) -> Path:
    """``$HARMONY_HOME``, else the user's own configuration."""
    given = env.get("HARMONY_HOME")
    return Path(given).expanduser() if given else Path("~/.config/harmony").expanduser()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = read_toml(read_regular(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(
            "ContextUnreadable", f"cannot read {path}: {error.strerror}", "mend or remove it"
        ) from None
    except NotToml as error:
        raise InvalidInput(
            "ContextInvalid", f"cannot read {path}: {error}", "mend or remove it"
        ) from None
    for key, value in values.items():
        if key not in _KEYS:
            raise InvalidInput(
                "ContextInvalid",
                f"cannot use {path}: nothing honours the key {key!r}",
                f"keys are {', '.join(_KEYS)}",
            )
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise InvalidInput(
                "ContextInvalid",
                f"cannot use {path}: {key} has the wrong type",
                "see harmony --help",
            )
    if not 1 <= values.get("replicas", 1) <= 5:
        raise InvalidInput(
            "ContextInvalid",
            f"cannot use {path}: replicas is from 1 to 5",
            "3 is right for a cluster",
        )
    return values


def _servers(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value).split(",")
    servers = tuple(str(part).strip() for part in parts)
    if not servers or not all(_SERVER.fullmatch(server) for server in servers):
        raise InvalidInput(
            "ServerInvalid",
            "cannot read the NATS server's address",
            f"write it as {DEFAULT_SERVER}, several with commas",
        )
    return servers


def _existing(what: str, given: str | None, saved: str | None, home: Path) -> Path | None:
    """A file that must be there; a relative one in the context file is relative to that file."""
    if not given and not saved:
        return None
    path = Path(given).expanduser() if given else home / Path(saved or "").expanduser()
    if not path.is_file() or not os.access(path, os.R_OK):
        raise InvalidInput(
            "FileMissing",
            f"cannot read the {what} file {path}",
            "check its name and its permissions",
        )
    return path


def load_lineage(
    home: Path,
    given: str | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    made: str | None = None,
) -> str:
    """This operator's lineage: the flag, ``$HARMONY_LINEAGE``, else the file in the home, made on
    first use: with `made`, or a new one.
    """
    env = os.environ if environ is None else environ
    named = given or env.get("HARMONY_LINEAGE")
    if named:
        return _check(named.strip(), "the lineage given by --lineage or $HARMONY_LINEAGE")
    path = home / "lineage"
    try:
        return _check(read_regular(path).decode("ascii").strip(), str(path))
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            "LineageUnreadable", f"cannot read {path}: {error}", "restore it from a backup"
        ) from None
    try:
        _create_once(path, f"{made or uuid.uuid4()}\n".encode())
        return _check(read_regular(path).decode("ascii").strip(), str(path))
    except OSError as error:
        raise InvalidInput(
            "LineageUnwritable",
            f"cannot keep this operator's lineage in {path}: {error.strerror}",
            "make the folder writable, or set HARMONY_HOME or HARMONY_LINEAGE",
        ) from None


def _check(lineage: str, where: str) -> str:
    if not _LINEAGE.fullmatch(lineage):
        raise InvalidInput(
            "LineageInvalid",
            f"cannot use {where}: it is no lower-case UUID",
            "restore the one that wrote your deployments; a new one needs --take-over at each of them",
        )
    return lineage


def _create_once(path: Path, data: bytes) -> None:
    """Create the whole file or nothing. If another process was first, its file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=".lineage-")  # O_EXCL, mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        os.unlink(beside)
    durable.sync_folder(str(path.parent))


def check_creds(path: Path) -> None:
    """Check a .creds file. The client would fail late, and with the library's words."""
    import nkeys  # noqa: PLC0415 - only where there are credentials

    try:
        data = read_regular(path)
    except OSError as error:
        raise InvalidInput(
            "FileMissing",
            f"cannot read the credentials file {path}: {error.strerror}",
            "restore it from a backup",
        ) from None
    lacks = f"cannot use the credentials file {path}: it holds no user's"
    seed = data.partition(b"-----BEGIN USER NKEY SEED-----")[2].strip().partition(b"\n")[0].strip()
    try:
        nkeys.from_seed(bytearray(seed)).wipe()  # type: ignore[no-untyped-call]
    except Exception:  # the library raises assertions, values' and its own errors
        raise InvalidInput("CredsInvalid", f"{lacks} seed", "give a NATS .creds file") from None
    if b"-----BEGIN NATS USER JWT-----" not in data:
        raise InvalidInput("CredsInvalid", f"{lacks} JWT", "give a NATS .creds file")
