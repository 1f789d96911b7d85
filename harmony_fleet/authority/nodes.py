"""The files of the NATS servers: configuration, certificate, unit. Text alone; nothing is written
here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONFIG: Final = "server.conf"
UNIT: Final = "harmony-nats.service"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one server, in nats-server's units."""

    memory: str = "64MB"
    disk: str = "4GB"
    connections: int = 4096


@dataclass(frozen=True, slots=True)
class Node:
    """One server: its name, the host that clients and the other servers reach it by, where its
    folder will be.
    """

    name: str
    host: str
    at: str
    port: int
    route_port: int


def config(
    node: Node, nodes: Sequence[Node], fleet: str, tokens: Mapping[str, str], bounds: Bounds
) -> str:
    """The server's configuration. `tokens` are JWTs: "operator", and each account's by its public
    key.

    The system account's is the first of the accounts.
    """
    operator = tokens["operator"]
    accounts = {key: token for key, token in tokens.items() if key != "operator"}
    at = node.at
    lines = [
        f"server_name: {_text(node.name)}",
        f'listen: "0.0.0.0:{node.port}"',
        f"max_connections: {bounds.connections}",
        'ping_interval: "20s"',
        'write_deadline: "10s"',
        "max_payload: 1MB",
        *_tls("tls", at),
        "jetstream {",
        f"  store_dir: {_text(f'{at}/jetstream')}",
        f"  max_memory_store: {bounds.memory}",
        f"  max_file_store: {bounds.disk}",
        "  # What was acknowledged is on the disk.",
        "  sync_interval: always",
        "}",
        f"operator: {_text(operator)}",
        f"system_account: {next(iter(accounts))}",
        "# Accounts are kept here, and changed over the wire: a revocation takes effect at once, without a restart.",
        "resolver {",
        "  type: full",
        f"  dir: {_text(f'{at}/accounts')}",
        "  allow_delete: false",
        '  interval: "2m"',
        "}",
        "resolver_preload {",
        *(f"  {key}: {_text(token)}" for key, token in accounts.items()),
        "}",
        *(_cluster(node, nodes, fleet) if len(nodes) > 1 else ()),
    ]
    return "\n".join(
        [f"# NATS for the fleet {fleet}. Run it with: nats-server -c {at}/{CONFIG}", *lines, ""]
    )


def _cluster(node: Node, nodes: Sequence[Node], fleet: str) -> list[str]:
    others = [
        f"    {_text(f'tls://{other.host}:{other.route_port}')}"
        for other in nodes
        if other is not node
    ]
    return [
        "cluster {",
        f"  name: {_text(fleet)}",
        f'  listen: "0.0.0.0:{node.route_port}"',
        "  routes: [",
        *others,
        "  ]",
        *(f"  {line}" for line in _tls("tls", node.at, verify=True)),
        "}",
    ]


def _tls(name: str, at: str, *, verify: bool = False) -> list[str]:
    return [
        f"{name} {{",
        *(
            []
            if verify
            else ['  handshake_first: "auto"  # at once; a client that waits gets it after INFO']
        ),
        f"  cert_file: {_text(f'{at}/server.pem')}",
        f"  key_file: {_text(f'{at}/server-key.pem')}",
        f"  ca_file: {_text(f'{at}/ca.pem')}",
        *(["  verify: true"] if verify else []),
        '  min_version: "1.2"',
        "  timeout: 5",
        "}",
    ]


def _text(value: str) -> str:
    return json.dumps(value)


def unit(node: Node) -> str:
    """A systemd unit for the server, which runs as a user of its own."""
    return f"""\
[Unit]
Description=NATS for Harmony ({node.name})
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/bin/env nats-server -c {node.at}/{CONFIG}
ExecReload=/bin/kill -HUP $MAINPID
User=harmony-nats
Group=harmony-nats
Restart=always
RestartSec=2
LimitNOFILE=65536
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={node.at}
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
CapabilityBoundingSet=
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""
