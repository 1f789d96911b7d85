"""`harmony object` against a real server, another client of object stores, and a real agent."""

from __future__ import annotations

import asyncio
import hashlib
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nats.js.object_store import ObjectStore

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from scores.file import MAX_OBJECT
from scores.keys import DESIRED
from tests.integration.agent import Plane, live, manifest
from tests.integration.operator import Operator
from tests.natsserver import NatsServer

CONTENT = os.urandom(300_000)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def operator(nats_server: NatsServer, tmp_path: Path) -> Operator:
    return Operator(nats_server, tmp_path / "home")


def made(operator: Operator, name: str = "site.tar", data: bytes = CONTENT) -> str:
    path = operator.folder / name
    path.write_bytes(data)
    return str(path)


def wanting(*names: str, digest: str = DIGEST) -> dict[str, Any]:
    """A manifest with a File for each object."""
    scores = [
        {
            "kind": "File",
            "name": f"f{at}",
            "path": f"/srv/web/f{at}",
            "object": {"bucket": "files", "name": name, "digest": digest},
        }
        for at, name in enumerate(names)
    ]
    return {**manifest(1), "scores": scores}


async def stream_messages(plane: Plane) -> int:
    return int((await plane.js.stream_info("OBJ_files")).state.messages)


async def test_what_is_put_is_what_a_device_and_others_read(
    operator: Operator, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with live(nats_server, tmp_path / "state") as (agent, plane):
        ran = await operator("object", "put", made(operator))
        assert ran.code == 0
        assert f"object:\n  bucket: files\n  name: site.tar\n  digest: {DIGEST}\n" in ran.out
        parts: list[bytes] = []

        async def write(part: bytes) -> None:
            parts.append(part)

        await agent.control.fetch("files", "site.tar", MAX_OBJECT, write)
        assert b"".join(parts) == CONTENT
        store: ObjectStore = await plane.js.object_store("files")
        assert (await store.get("site.tar")).data == CONTENT
        await store.put("theirs", b"hello")
        listed = (await operator("object", "list", "--verify", "-o", "json")).json
        assert [(one["name"], one["size"], one["damaged"]) for one in listed] == [
            ("site.tar", 300_000, False),
            ("theirs", 5, False),
        ]
        before = await stream_messages(plane)
        again = (await operator("object", "put", made(operator), "-o", "json")).json
        assert (again["changed"], again["object"]["digest"]) == (False, DIGEST)
        assert await stream_messages(plane) == before
        empty = (await operator("object", "put", made(operator, "empty", b""), "-o", "json")).json
        assert empty["object"]["digest"] == f"sha256:{hashlib.sha256(b'').hexdigest()}"


async def test_what_a_desired_deployment_names_stays(
    operator: Operator, nats_server: NatsServer
) -> None:
    async with nats_server.client() as client:
        plane = Plane(client)
        await plane.make_buckets()
        for name in ("site.tar", "old.tar"):
            assert (await operator("object", "put", made(operator, name))).code == 0
        await plane.put(wanting("site.tar"))
        (old, site) = (await operator("object", "list", "-o", "json")).json
        assert (old["used_by"], site["used_by"]) == ([], ["pi-01/web"])
        assert "pi-01/web" in (await operator("object", "list")).out
        refused = await operator("object", "rm", "site.tar", "old.tar", "-o", "json")
        assert (refused.code, refused.error["code"]) == (5, "ObjectInUse")
        other = made(operator, "site.tar", b"other")
        refused = await operator("object", "put", other, "-o", "json")
        assert (refused.code, refused.error["code"]) == (5, "ObjectInUse")
        assert (await operator("object", "put", other, "--force")).code == 0
        shown = await operator("object", "list")
        assert "pi-01/web wants another digest" in shown.out
        tried = (await operator("object", "rm", "--prune", "--dry-run", "-o", "json")).json
        assert tried == {"dry_run": True, "removed": [{"name": "old.tar", "size": 300_000}]}
        assert (await operator("object", "rm", "--prune")).code == 0
        assert [one["name"] for one in (await operator("object", "list", "-o", "json")).json] == [
            "site.tar"
        ]
        await plane.put(b"{", deployment="odd")
        refused = await operator("object", "rm", "--prune", "-o", "json")
        assert (refused.code, refused.error["code"]) == (5, "DesiredUnreadable")
        assert (await operator("object", "rm", "site.tar", "--force")).code == 0
        assert (await operator("object", "list", "-o", "json")).json == []
        assert await stream_messages(plane) == 2  # what says that they are gone
        missing = await operator("object", "rm", "site.tar", "-o", "json")
        assert (missing.code, missing.error["code"]) == (2, "NotFound")


async def test_damage_is_found_and_mended_by_another_put(
    operator: Operator, nats_server: NatsServer
) -> None:
    async with nats_server.client() as client:
        plane = Plane(client)
        await plane.make_buckets(DESIRED)
        await operator("object", "put", made(operator))
        store = await plane.js.object_store("files")
        nuid = (await store.get_info("site.tar")).nuid
        last = await plane.js.get_last_msg("OBJ_files", f"$O.files.C.{nuid}")
        await plane.js.delete_msg("OBJ_files", last.seq or 0)
        found = await operator("object", "list", "--verify", "-o", "json")
        assert (found.code, [one["damaged"] for one in found.json]) == (1, [True])
        assert (await operator("object", "put", made(operator), "-o", "json")).json["changed"]
        assert (await operator("object", "list", "--verify")).code == 0
        assert (await store.get("site.tar")).data == CONTENT


async def test_a_put_that_is_cut_leaves_the_old_object(
    operator: Operator, nats_server: NatsServer
) -> None:
    async with nats_server.client() as client:
        plane = Plane(client)
        await plane.make_buckets(DESIRED)
        await operator("object", "put", made(operator))
        large = made(operator, "site.tar", os.urandom(MAX_OBJECT))
        before = await stream_messages(plane)
        process = await operator.process("object", "put", large)
        while await stream_messages(plane) <= before + 2:
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
        store = await plane.js.object_store("files")
        assert (await store.get("site.tar")).data == CONTENT
        await plane.put(wanting("site.tar"))
        assert (await operator("object", "rm", "--prune")).code == 0
        assert await stream_messages(plane) > before  # somebody may write it just now
        async with Store(Context((nats_server.url,), None, None, operator.home)) as own:
            objects = own.objects("files")
            halves = await objects.abandoned(await own.now() + timedelta(hours=2))
            assert len(halves) == 1
            await objects.purge(halves)
        assert await stream_messages(plane) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["put", "missing"], "FileUnreadable"),
        (["put", "folder"], "FileUnreadable"),
        (["put", "large"], "ObjectTooLarge"),
        (["put", "small", "--bucket", "a b"], "InvalidFormat"),
        (["put", "small", "--name", ""], "TooShort"),
    ],
)
async def test_what_cannot_be_put(
    operator: Operator, words: list[str], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(operator.folder)
    made(operator, "small", b"x")
    (operator.folder / "folder").mkdir()
    with open(made(operator, "large", b""), "r+b") as file:
        file.truncate(MAX_OBJECT + 1)
    ran = await operator("object", *words, "-o", "json")
    assert (ran.code, ran.error["code"]) == (2, code)


@pytest.mark.parametrize("words", [["rm"], ["rm", "a", "--prune"], ["rm", "a", "--dry-run"]])
async def test_rm_needs_names_or_prune(operator: Operator, words: list[str]) -> None:
    assert (await operator("object", *words)).code == 2
