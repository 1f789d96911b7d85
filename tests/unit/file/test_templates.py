"""Templates with secrets: what is written, with which mode, and that no digest gives a value away."""

from __future__ import annotations

import hashlib
from typing import Any

from harmony_agent.core.actions import Converged
from harmony_agent.kinds.file import FileReconciler
from scores.file import File
from scores.secrets import Secret
from tests.fakes.secrets import FakeSecrets
from tests.unit.file.world import World

VALUE, LATER = b"hunter2", b"correct horse"
PLAIN = [hashlib.sha256(value).hexdigest() for value in (VALUE, LATER)]


class SecretWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.secrets = FakeSecrets()
        self.secrets.give("pw", VALUE)
        self.files.keyed = self.secrets.digest
        self.restart()

    def restart(self) -> None:
        self.kind = FileReconciler(
            self.files, self.store, self.objects, roots=("/srv",), secrets=self.secrets
        )

    def want(self, name: str = "a", **fields: Any) -> File:
        spec = super().want(name, **fields)
        held = tuple(map(self.secrets.state, spec.secret_names()))
        self.store.set_desired(spec, secrets=held)
        return spec

    def told(self) -> str:
        record = self.store.record("a")
        return f"{record} {self.store.noted} {self.kind.detail(record, self.kind.cached('a'))}"


async def test_it_is_written_for_its_owner_alone_and_told_by_no_digest() -> None:
    world = SecretWorld()
    await world.converge(template=[Secret("pw")])
    assert world.content("/srv/a") == VALUE
    assert world.files.things["/srv/a"].mode == 0o600
    told = world.told()
    assert not any(digest in told for digest in PLAIN)
    assert "hunter2" not in told


async def test_a_mode_that_is_named_is_its_authors_word() -> None:
    world = SecretWorld()
    await world.converge(template=["a=", Secret("pw")], mode="0640")
    assert world.content("/srv/a") == b"a=" + VALUE
    assert world.files.things["/srv/a"].mode == 0o640


async def test_given_anew_it_is_written_anew_once_also_after_a_restart() -> None:
    world = SecretWorld()
    await world.converge(template=[Secret("pw")])
    world.secrets.give("pw", LATER)
    world.restart()
    await world.converge(template=[Secret("pw")])
    assert world.content("/srv/a") == LATER
    assert not any(digest in world.told() for digest in PLAIN)


async def test_taken_back_what_was_written_stays() -> None:
    world = SecretWorld()
    await world.converge(template=[Secret("pw")])
    world.secrets.take("pw")
    world.want(template=[Secret("pw")])
    assert await world.blocked() == "SecretMissing"
    assert world.content("/srv/a") == VALUE


async def test_an_edit_is_undone() -> None:
    world = SecretWorld()
    await world.converge(template=[Secret("pw")])
    world.files.set("/srv/a", b"edited", mode=0o600)
    await world.settle()
    assert world.content("/srv/a") == VALUE


async def test_what_stands_there_and_is_not_ours_is_left_alone_and_never_copied() -> None:
    world = SecretWorld()
    world.files.set("/srv/a", b"theirs")
    world.want(template=[Secret("pw")])
    result = await world.settle()
    assert not isinstance(result.plan, Converged)
    assert world.content("/srv/a") == b"theirs"
    assert world.files.formers == {}


async def test_it_becomes_plain_content_and_no_status_shows_what_it_was() -> None:
    world = SecretWorld()
    await world.converge(template=[Secret("pw")])
    await world.converge(content="public")
    assert world.content("/srv/a") == b"public"
    assert not any(digest in world.told() for digest in PLAIN)
    await world.remove()
    assert "/srv/a" not in world.files.things
