"""`harmony server init`: an authority, and the folders of the servers that know it. Connects nowhere.

The authority's state is written last: what was written before it means nothing without it, and is written over.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harmony_fleet.authority import nodes, tls
from harmony_fleet.authority.enroll import is_bucket
from harmony_fleet.authority.keep import FOLDER, Authority, State, exists
from harmony_fleet.authority.nodes import Bounds, Node
from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.roster import durable
from scores.names import is_name

CONTEXT: Final = "context.toml"
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
"""A name or an IPv4 address: the servers listen on IPv4 alone, and an IPv6 address would stand in every bundle."""
_SIZE: Final = re.compile(r"[1-9][0-9]{0,8}(KB|MB|GB|TB)?")
_ODD: Final = set("\"'\\ %$")
"""What a unit file or the server's configuration would read otherwise."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator asked for. `at`: where the folder will be on the server, if elsewhere than `folder`."""

    name: str
    folder: Path
    hosts: tuple[str, ...]
    at: str = ""
    port: int = 4222
    route_port: int = 6222
    objects: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)


def checked(wanted: Wanted) -> Wanted:
    """The same, where all of it can go into files as it is. Raises InvalidInput."""
    odd = [host for host in wanted.hosts if not _HOST.fullmatch(host)]
    odd += [wanted.name] if not is_name(wanted.name) else []
    odd += [size for size in (wanted.bounds.memory, wanted.bounds.disk) if not _SIZE.fullmatch(size)]
    odd += [bucket for bucket in wanted.objects if not is_bucket(bucket)]
    places = (wanted.at or "/", str(wanted.folder))
    odd += [place for place in places if not place.startswith("/") or not place.isprintable() or _ODD & set(place)]
    if odd:
        raise InvalidInput("InvalidSetup", f"cannot use {odd[0]!r} here", "see harmony server init --help")
    if len(set(wanted.hosts)) < len(wanted.hosts) or len(wanted.hosts) == 2:
        raise InvalidInput(
            "InvalidSetup", "cannot make a cluster of these hosts: it takes one, or three or more that differ", ""
        )
    return wanted


def init(home: Path, wanted: Wanted) -> list[Node]:
    """Make all of it. Raises Refused where there is an authority or a context already: nothing is written over."""
    _must_be_new(home, wanted.folder)
    servers = tuple(f"tls://{host}:{wanted.port}" for host in wanted.hosts)
    replicas = 3 if len(wanted.hosts) >= 3 else 1
    try:
        state = State(name=wanted.name, servers=servers, replicas=replicas, objects=wanted.objects)
        authority = Authority.make(home, state)
        authority.state = authority.state.model_copy(update={"stamp": authority.next_stamp()})
        made = _nodes(wanted)
        _write_servers(authority, wanted, made)
        authority.put("operator.creds", authority.user("fleet", "operator").encode())
        authority.put("system.creds", authority.user("system", "system").encode())
        _write_context(home, state)
        authority.save()
    except OSError as error:
        raise InvalidInput(
            "NotWritable", f"cannot write {error.filename or wanted.folder}: {error.strerror}", "make it writable"
        ) from None
    return made


def _must_be_new(home: Path, folder: Path) -> None:
    if exists(home):
        raise Refused(
            "AuthorityExists",
            f"cannot make a second authority: {home / FOLDER} holds one, and every device trusts it",
            "use it; for another fleet set HARMONY_HOME to another folder",
        )
    if (home / CONTEXT).exists():
        raise Refused(
            "ContextExists",
            f"cannot write {home / CONTEXT}: it is there, and says which NATS is used now",
            "move it away, or set HARMONY_HOME to another folder",
        )
    if folder.exists() and any(folder.iterdir()):
        raise Refused("FolderNotEmpty", f"cannot write into {folder}: it isn't empty", "name a new folder")


def _nodes(wanted: Wanted) -> list[Node]:
    at = wanted.at or str(wanted.folder)
    ports = wanted.port, wanted.route_port
    if len(wanted.hosts) == 1:
        return [Node(wanted.name, wanted.hosts[0], at, *ports)]
    return [
        Node(f"{wanted.name}-{number}", host, at if wanted.at else f"{at}/{wanted.name}-{number}", *ports)
        for number, host in enumerate(wanted.hosts, start=1)
    ]


def _write_servers(authority: Authority, wanted: Wanted, made: Sequence[Node]) -> None:
    now = datetime.now(UTC)
    ca = tls.make_ca(wanted.name, now)
    authority.put("ca.pem", ca.certificate)
    authority.put("ca-key.pem", ca.key)
    tokens = {"operator": authority.operator_token(), **authority.accounts()}
    for node in made:
        folder = wanted.folder if len(made) == 1 else wanted.folder / node.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        pair = tls.make_server(ca, [node.host, *_LOCAL], now)
        _write(folder / "ca.pem", ca.certificate)
        _write(folder / "server.pem", pair.certificate)
        _write(folder / "server-key.pem", pair.key)
        _write(folder / nodes.CONFIG, nodes.config(node, made, wanted.name, tokens, wanted.bounds).encode())
        _write(folder / nodes.UNIT, nodes.unit(node).encode())


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _write_context(home: Path, state: State) -> None:
    values = {
        "server": list(state.servers),
        "creds": f"{FOLDER}/operator.creds",
        "tls_ca": f"{FOLDER}/ca.pem",
        "replicas": state.replicas,
    }
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    durable.replace(str(home / CONTEXT), text.encode())
