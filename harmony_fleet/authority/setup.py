"""`harmony server init`: make an authority, and the folders of the servers that know it. Connects
nowhere.

A lock of each folder keeps others out. A folder that can't be completed is removed again. The
authority's state is written last. Keys without a state, as after a kill, may belong to a state that
was lost, so they are never overwritten.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harmony_fleet.authority import nodes, tls
from harmony_fleet.authority.authority_store import FOLDER, Authority, State, busy, exists, has_keys
from harmony_fleet.authority.enroll import is_bucket
from harmony_fleet.authority.nodes import Bounds, Node
from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.storage import durable
from harmony_fleet.storage.lock import LOCK_SECONDS, alone
from scores.names import is_name

CONTEXT: Final = "context.toml"
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
"""A name or an IPv4 address: the servers listen on IPv4 alone, and an IPv6 address would stand in
every bundle.
"""
_SIZE: Final = re.compile(r"[1-9][0-9]{0,8}(KB|MB|GB|TB)?")
_ODD: Final = set("\"'\\ %$")
"""Characters that have a meaning in a unit file or in the server's configuration."""
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """Request of the operator.

    `at`: the later place of the folder on the server, if it isn't `folder`.
    """

    name: str
    folder: Path
    hosts: tuple[str, ...]
    at: str = ""
    port: int = 4222
    route_port: int = 6222
    objects: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)


def checked(wanted: ServerRequest) -> ServerRequest:
    """The same, where all of it can go into files as it is. Raises InvalidInput."""
    odd = [host for host in wanted.hosts if not _HOST.fullmatch(host)]
    odd += [wanted.name] if not is_name(wanted.name) else []
    odd += [
        size for size in (wanted.bounds.memory, wanted.bounds.disk) if not _SIZE.fullmatch(size)
    ]
    odd += [bucket for bucket in wanted.objects if not is_bucket(bucket)]
    places = (wanted.at or "/", str(wanted.folder))
    odd += [
        place
        for place in places
        if not place.startswith("/") or not place.isprintable() or _ODD & set(place)
    ]
    if odd:
        raise InvalidInput(
            "InvalidSetup", f"cannot use {odd[0]!r} here", "see harmony server init --help"
        )
    if len(set(wanted.hosts)) < len(wanted.hosts) or len(wanted.hosts) == 2:
        raise InvalidInput(
            "InvalidSetup",
            "cannot make a cluster of these hosts",
            "give --host once, or three times and more, each another",
        )
    return wanted


def init(home: Path, wanted: ServerRequest) -> list[Node]:
    """Make all of it, or nothing. Raises Refused where there is an authority or a context already:
    nothing is written over.
    """
    home = home.absolute()
    try:
        _must_be_new(home, wanted.folder)
        with _alone(home, wanted.folder) as locks, _whole(home, wanted.folder):
            return _make(home, wanted, locks)
    except OSError as error:
        raise InvalidInput(
            "NotWritable",
            f"cannot use {error.filename or wanted.folder}: {error.strerror}",
            "name a folder that can be written",
        ) from None


def _make(home: Path, wanted: ServerRequest, locks: Sequence[int]) -> list[Node]:
    servers = tuple(f"tls://{host}:{wanted.port}" for host in wanted.hosts)
    replicas = 3 if len(wanted.hosts) >= 3 else 1
    state = State(name=wanted.name, servers=servers, replicas=replicas, objects=wanted.objects)
    authority = Authority.make(home, state, locks)
    authority.state = authority.state.model_copy(update={"stamp": authority.next_stamp()})
    made = _nodes(wanted)
    _write_servers(authority, wanted, made)
    authority.put("operator.creds", authority.user("fleet", "operator").encode())
    authority.put("system.creds", authority.user("system", "system").encode())
    _write_context(home, state, locks)
    authority.save()
    return made


@contextlib.contextmanager
def _alone(home: Path, folder: Path) -> Iterator[list[int]]:
    """Hold both folders, by these descriptors. Who waited may find what the other has made, and is
    refused then.
    """
    locks = []
    with contextlib.ExitStack() as held:
        for place in dict.fromkeys((home / FOLDER, folder)):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            locks.append(held.enter_context(alone(place, LOCK_SECONDS, busy())))
            _must_be_new(home, folder)
        yield locks


@contextlib.contextmanager
def _whole(home: Path, folder: Path) -> Iterator[None]:
    """Remove what was written if it isn't complete. What was there before belongs to somebody, and
    stays.
    """
    before = set((home / FOLDER).iterdir())
    try:
        yield
    except BaseException:  # an interrupt, too
        (home / CONTEXT).unlink(missing_ok=True)
        for path in {*(home / FOLDER).iterdir(), *_foreign(home, folder)} - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _foreign(home: Path, folder: Path) -> list[Path]:
    """List unknown files in the servers' folder. Leaves out the authority, if it is below."""
    own = home / FOLDER
    return [path for path in folder.iterdir() if path not in (own, *own.parents)]


def _must_be_new(home: Path, folder: Path) -> None:
    if exists(home):
        raise Refused(
            "AuthorityExists",
            f"cannot make a second authority: {home / FOLDER} holds one, and every device trusts it",
            "use it; for another fleet set HARMONY_HOME to another folder",
        )
    if has_keys(home):
        raise Refused(
            "AuthorityIncomplete",
            f"cannot make an authority: {home / FOLDER} has keys already, and not what was decided with them",
            "restore it from a backup; where there never was an authority, an init was killed: remove that folder",
        )
    if (home / CONTEXT).exists():
        raise Refused(
            "ContextExists",
            f"cannot write {home / CONTEXT}: it is there, and says which NATS is used now",
            "move it away, or set HARMONY_HOME to another folder",
        )
    if folder.exists() and _foreign(home, folder):
        raise Refused(
            "FolderNotEmpty", f"cannot write into {folder}: it isn't empty", "name a new folder"
        )


def _nodes(wanted: ServerRequest) -> list[Node]:
    at = wanted.at or str(wanted.folder)
    ports = wanted.port, wanted.route_port
    if len(wanted.hosts) == 1:
        return [Node(wanted.name, wanted.hosts[0], at, *ports)]
    return [
        Node(
            f"{wanted.name}-{number}",
            host,
            at if wanted.at else f"{at}/{wanted.name}-{number}",
            *ports,
        )
        for number, host in enumerate(wanted.hosts, start=1)
    ]


def _write_servers(authority: Authority, wanted: ServerRequest, made: Sequence[Node]) -> None:
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
        _write(
            folder / nodes.CONFIG,
            nodes.config(node, made, wanted.name, tokens, wanted.bounds).encode(),
        )
        _write(folder / nodes.UNIT, nodes.unit(node).encode())


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _write_context(home: Path, state: State, locks: Sequence[int]) -> None:
    values = {
        "server": list(state.servers),
        "creds": f"{FOLDER}/operator.creds",
        "tls_ca": f"{FOLDER}/ca.pem",
        "replicas": state.replicas,
    }
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    durable.replace(str(home / CONTEXT), text.encode(), keep=locks)
