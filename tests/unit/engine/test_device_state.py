"""Disk and memory say the same, whoever writes at the same time; what is let go of is said so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core.errors import Transient
from harmony_agent.core.manifests import desired_of, last_change
from harmony_agent.core.resources import Key, SecretState
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.group_commit import GroupCommit
from harmony_agent.topology.control_plane import StoredManifest
from tests.fakes.ledger import FakeLedger
from tests.unit.core.make import DIGEST, NOW, manifest, record, resource

KEY = Key("File", "a")


def book(ledger: FakeLedger) -> DeviceState:
    return DeviceState(ledger, lambda: NOW)


async def _in_turn(*works: Coroutine[Any, Any, None]) -> None:
    """Begin each while those before it wait for the disk."""
    tasks = []
    for work in works:
        tasks.append(asyncio.create_task(work))
        for _ in range(10):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("flush_first", [False, True])
async def test_a_flush_never_brings_back_what_a_write_replaced(flush_first: bool) -> None:
    ledger = FakeLedger()
    kept = book(ledger)
    kept.records.write_later(record("a", "path:/srv/a"))
    newer = record("a", "path:/srv/a", facts={"id": "2"})
    works = [kept.records.flush(), kept.records.write(newer)]
    await _in_turn(*(works if flush_first else works[::-1]))
    assert ledger.owned == {KEY: newer} == kept.records
    before = ledger.writes
    await kept.records.flush()
    assert ledger.writes == before


@pytest.mark.parametrize("flush_first", [False, True])
async def test_a_flush_never_brings_back_what_was_forgotten(flush_first: bool) -> None:
    ledger = FakeLedger()
    kept = book(ledger)
    await kept.records.write(record("a", "path:/srv/a"))
    kept.records.write_later(record("a", "path:/srv/a", applied=DIGEST))
    works = [kept.records.flush(), kept.forget(KEY)]
    await _in_turn(*(works if flush_first else works[::-1]))
    assert ledger.owned == {} == kept.records


async def test_a_rebuild_has_what_was_being_written() -> None:
    """Its files are taken away while a write to them is under way: that write went to nobody."""
    ledger = FakeLedger()
    kept = book(ledger)
    await _in_turn(kept.records.write(record("a", "path:/srv/a")), kept.rebuild())
    assert set(ledger.owned) == {KEY} == set(kept.records)


async def test_a_write_that_failed_leaves_memory_as_it_was() -> None:
    ledger = FakeLedger()
    kept = book(ledger)
    old = record("a", "path:/srv/a")
    await kept.records.write(old)
    kept.records.write_later(replace(old, applied=DIGEST))
    ledger.full = True
    for work in (
        kept.records.write(replace(old, facts={"id": "2"})),
        kept.forget(KEY),
        kept.records.flush(),
    ):
        with pytest.raises(Transient):
            await work
    assert kept.records == {KEY: replace(old, applied=DIGEST)}
    ledger.full = False
    await kept.records.flush()
    assert ledger.owned == kept.records


def enforced(kept: DeviceState, *names: str, **fields: Any) -> set[Key]:
    wire = manifest(*names, **fields)
    stored = StoredManifest("web", wire.lineage, wire.generation, DIGEST, b"", {})
    return kept.enforce(stored, wire)


async def test_what_becomes_of_it_is_the_last_word_though_no_pass_came_to_it() -> None:
    ledger = FakeLedger()
    kept = book(ledger)
    await kept.records.write(record("a", "path:/srv/a"))
    score = {"kind": "File", "name": "a", "path": "/srv/a", "content": "", "on_remove": "orphan"}
    enforced(kept, scores=[score])
    wire = manifest(generation=4)
    await kept.accept(StoredManifest("web", wire.lineage, 4, DIGEST, b"", {}))
    assert ledger.owned[KEY].on_remove == "orphan"


async def test_the_phases_of_a_deployment_are_those_of_its_resources_after_each_change() -> None:
    kept = book(FakeLedger())

    def phases() -> set[str]:
        assert kept.phases("web") == {status.phase for status in kept.resources("web").values()}
        return set(kept.phases("web"))

    enforced(kept, "a", "b")
    assert phases() == {"Progressing"}
    await kept.records.write(record("a", "path:/srv/a"))
    kept.set_status(KEY, "web", resource("Ready"))
    assert phases() == {"Progressing", "Ready"}
    kept.set_status(Key("File", "b"), "web", resource("Degraded"))
    assert phases() == {"Degraded", "Ready"}
    enforced(kept, "b", generation=4)
    assert phases() == {"Removing", "Degraded"}
    kept.set_status(KEY, "web", resource("Degraded"))
    kept.set_status(Key("File", "b"), "web", resource("Ready"))
    assert phases() == {"Degraded", "Ready"}
    await kept.forget(KEY)
    assert phases() == {"Ready"}


async def test_others_hear_of_what_is_wanted_no_more_though_it_was_never_owned() -> None:
    kept, rung = book(FakeLedger()), []
    kept.released.notify = lambda: rung.append(1)  # type: ignore[method-assign]
    enforced(kept, "a", "b")
    assert rung == []
    enforced(kept, "a", generation=4)
    assert rung == [1]


async def test_others_hear_of_a_path_that_is_let_go_of() -> None:
    kept, rung = book(FakeLedger()), []
    kept.released.notify = lambda: rung.append(1)  # type: ignore[method-assign]
    kept.records.write_later(record("a", "path:/srv/a", "path:/srv/old"))
    kept.records.write_later(record("a", "path:/srv/a", "path:/srv/old", applied=DIGEST))
    assert rung == []
    kept.records.write_later(record("a", "path:/srv/a", applied=DIGEST))
    assert rung == [1]


async def test_who_is_cut_off_while_it_waits_to_commit_takes_nobody_along_later() -> None:
    committed: list[int] = []
    gate = asyncio.Event()

    async def commit(items: list[int]) -> None:
        await gate.wait()
        committed.extend(items)

    together: GroupCommit[int] = GroupCommit(commit)
    first = asyncio.create_task(together.add(1))
    await asyncio.sleep(0)
    second = asyncio.create_task(together.add(2))
    for _ in range(5):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    third = asyncio.create_task(together.add(3))
    gate.set()
    await asyncio.gather(first, third)
    assert committed == [1, 3]


def test_a_token_is_the_last_change_of_what_is_named() -> None:
    wire = manifest("a", "b")
    found = desired_of(wire, {"File/a": 2})
    assert (found[KEY].generation, found[Key("File", "b")].generation) == (2, 3)
    assert found[KEY].restart_token == ""
    records = {Key("File", name): record(name, changed=f"b:1:{name}") for name in "12"}
    assert last_change(["File/1", "File/2", "File/3"], records) == "b:1:2"


async def test_a_record_that_was_seen_for_a_moment_leaves_no_claim_and_gives_back_the_old_one() -> (
    None
):
    kept = book(FakeLedger())
    with kept.records.taken_back(record("a", "path:/srv/a")):
        assert kept.records.holders.of("path:/srv/a") == {KEY}
    assert kept.records == {}
    assert kept.records.holders.of("path:/srv/a") == ()
    old = record("a", "path:/srv/old")
    await kept.records.write(old)
    with kept.records.taken_back(record("a", "path:/srv/new")):
        assert kept.records.holders.of("path:/srv/old") == ()
    assert kept.records == {KEY: old}
    assert kept.records.holders.of("path:/srv/old") == {KEY}
    assert kept.records.holders.of("path:/srv/new") == ()


def test_a_secret_that_was_given_anew_changes_what_names_it_and_nothing_else() -> None:
    kept = book(FakeLedger())
    scores = [
        {"kind": "File", "name": "a", "path": "/srv/a", "template": [{"secret": "pw"}]},
        {"kind": "File", "name": "b", "path": "/srv/b", "content": "b"},
    ]
    stored = StoredManifest("web", manifest().lineage, 1, DIGEST, b"", {})
    kept.enforce(stored, manifest(scores=scores))
    before, other = kept.desired[KEY], Key("File", "b")
    assert kept.wanted_secrets() == {"pw"}
    assert kept.note_secret(SecretState("pw", 5, asked=True)) == [KEY]
    after = kept.desired[KEY]
    assert (after.digest, after.generation) == (before.digest, before.generation)
    assert after.version != before.version
    assert kept.note_secret(SecretState("pw", 5, asked=True)) == ()
    assert kept.note_secret(SecretState("another", 1)) == []
    unchanged = kept.desired[other]
    kept.enforce(stored, manifest(scores=scores))
    assert kept.desired[KEY].version == after.version
    assert kept.desired[other].version == unchanged.version
