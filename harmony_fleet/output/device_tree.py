"""A device's tree for people. Writes to the console it is given; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from harmony_fleet.observe.state import Device
from harmony_fleet.observe.status import age, heartbeat_state
from harmony_fleet.observe.tree import Branch, Node
from harmony_fleet.output.render import plain
from harmony_fleet.output.tables import local


def device_tree(device: Device, branches: Sequence[Branch], now: datetime, to: Console) -> None:
    """The device, below it each deployment, below that what comes after what."""
    info = device.info
    heard = f"heard {age(now - device.heard)} ago" if device.heard else ""
    system = f"{info.os.id} {info.os.version_id} {info.os.arch}" if info else device.problem
    agent = f"agent {info.agent_version}" if info else ""
    parts = [plain(device.name, "bold"), plain(heartbeat_state(device, now))]
    root = Tree(_joined(parts, heard, system, agent), guide_style="dim")
    for item in branches:
        places = {"": root.add(_deployment(item))}
        for node in item.nodes:
            places[node.key] = places[node.below].add(_resource(node))
    to.print(root)


def _joined(parts: Sequence[Text], *words: str) -> Text:
    """Parts and words with two spaces between; nothing for an empty one."""
    more = [plain(word, "") for word in words if word]
    return Text("  ").join([*parts, *more])


def _deployment(item: Branch) -> Text:
    row = item.row
    parts = [
        plain(row.deployment, "bold"),
        plain(row.phase, "dim" if row.silent else None),
        Text(f"generation {row.generation or '-'}/{row.wanted or '-'}"),
        Text(f"{row.ready}/{row.total} ready"),
    ]
    why = ": ".join(word for word in (row.reason, row.message) if word)
    return _joined(parts, f"paused until {local(row.paused)}" if row.paused else "", why)


def _resource(node: Node) -> Text:
    parts = [plain(node.key, ""), plain(node.phase)]
    waits = f"waits for {', '.join(node.waits_for)}" if node.waits_for else ""
    others = [name for name in node.after if name != node.below and name not in node.waits_for]
    also = f"after {', '.join(others)}" if others else ""
    why = ": ".join(word for word in (node.reason, node.message) if word)
    return _joined(
        parts, why, node.health, f"drift {node.drift}" if node.drift else "", waits, also
    )
