"""Facts that an agent of before wrote into its ledger are read, and written again, byte for byte.

`tests/recorded/facts.jsonl` holds them as they were written, a line for each form that occurred:
the kind, then its facts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harmony_agent.core.resources import Facts, OwnershipRecord
from harmony_agent.kinds.container import facts as container
from harmony_agent.kinds.file import facts as file
from harmony_agent.kinds.network import facts as network
from harmony_agent.kinds.package import facts as package
from harmony_agent.kinds.session import facts as session
from harmony_agent.kinds.system_upgrade import facts as system_upgrade
from harmony_agent.kinds.systemd_unit import facts as systemd_unit
from harmony_agent.kinds.volume import facts as volume
from tests.arch.tree import ROOT

LINES = (ROOT / "tests" / "recorded" / "facts.jsonl").read_text().splitlines()
AGAIN: dict[str, Callable[[OwnershipRecord], Facts]] = {
    "Container": lambda record: container.write(container.read(record)),
    "File": lambda record: file.write(file.read(record)),
    "Session": lambda record: session.write(session.read(record)),
    "Network": lambda record: network.write(network.read(record)),
    "Package": lambda record: package.write(package.read(record)),
    "SystemUpgrade": lambda record: system_upgrade.write(system_upgrade.read(record)),
    "SystemdUnit": lambda record: systemd_unit.write(systemd_unit.read(record)),
    "Volume": lambda record: volume.write(volume.read(record)),
}


def record(kind: str, facts: dict[str, Any]) -> OwnershipRecord:
    return OwnershipRecord(
        kind=kind,
        name="a",
        deployment="web",
        spec_digest="sha256:" + "0" * 64,
        generation=1,
        on_remove="delete",
        claims=frozenset(),
        facts=facts,
    )


@pytest.mark.parametrize("line", [line for line in LINES if json.loads(line)[0] in AGAIN])
def test_what_was_recorded_is_written_again_as_it_was(line: str) -> None:
    kind, facts = json.loads(line)
    again = [kind, AGAIN[kind](record(kind, facts))]
    assert json.dumps(again, separators=(",", ":"), sort_keys=True) == line


@pytest.mark.parametrize("kind", sorted(AGAIN))
def test_every_kind_has_recorded_facts(kind: str) -> None:
    assert any(json.loads(line)[0] == kind for line in LINES)


def test_facts_of_a_later_agent_are_left_out() -> None:
    read = container.read(record("Container", {"id": "x", "later": 1}))
    assert (read.id, read.token, "later" in container.write(read)) == ("x", "", False)
