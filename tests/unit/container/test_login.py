"""A registry's login: its password goes to that registry, and nowhere else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from harmony_agent.adapters.podman.images import _header
from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from harmony_agent.topology.images import Login, PullRequest
from scores.container import Container
from scores.container_values import registry_of
from scores.manifest import InvalidManifest, validate
from tests.fakes.containers import _image
from tests.unit.container.bench import Bench

PASSWORD = "hunter2-correct-horse"
FIELDS: dict[str, Any] = {
    "kind": "Container",
    "name": "web",
    "image": "registry.test/web:1",
    "login": {"user": "pi", "password": {"secret": "registry"}},
}


class Closed(Bench):
    """A device whose registry wants a login."""

    def __init__(self, *, given: bool = True) -> None:
        super().__init__()
        if given:
            self.secrets.give("registry", PASSWORD.encode())


async def test_it_goes_to_the_registry_of_the_image_alone() -> None:
    bench = Closed()
    inits = [
        {"name": "same", "image": "registry.test/init:1", "command": ["/bin/true"]},
        {"name": "other", "image": "other.test/init:1", "command": ["/bin/true"]},
    ]
    spec = validate(Container, {**FIELDS, "init_containers": inits})
    for name in (spec.image, "registry.test/init:1", "other.test/init:1"):
        bench.containers.registry[name] = _image(name)
    bench.want(spec)
    await bench.once()
    asked = {one.ref: one.login for one in bench.images.requests}
    login = Login("pi", PASSWORD)
    assert asked == {spec.image: login, "registry.test/init:1": login, "other.test/init:1": None}


@pytest.mark.parametrize("said", ["{}", "bad password {}", "Basic of {}"])
async def test_a_wrong_login_is_said_without_the_password(said: str) -> None:
    bench = Closed()
    bench.containers.refuse("pull", said.format(PASSWORD), status=401)
    bench.want(validate(Container, FIELDS))
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert caught.value.reason == "PullFailed"
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None
    assert PASSWORD not in json.dumps(bench.facts())


async def test_podman_s_own_words_are_kept() -> None:
    bench = Closed()
    bench.containers.refuse("pull", "unauthorized: authentication required", status=401)
    bench.want(validate(Container, FIELDS))
    with pytest.raises(Transient, match="unauthorized: authentication required"):
        await bench.once()


async def test_without_the_secret_nothing_is_pulled_and_what_is_here_runs() -> None:
    bench = Closed(given=False)
    spec = validate(Container, FIELDS)
    bench.want(spec)
    with pytest.raises(Transient) as caught:
        await bench.once()
    assert (caught.value.reason, caught.value.phase) == ("SecretMissing", "Blocked")
    assert bench.images.requests == []
    bench.containers.images[spec.image] = _image(spec.image)
    assert await bench.settle() == Converged()


def test_no_representation_has_it() -> None:
    request = PullRequest("x", 1.0, login=Login("pi", PASSWORD))
    assert PASSWORD not in repr(request)
    sent = _header(request.login)["X-Registry-Auth"]
    assert json.loads(base64.urlsafe_b64decode(sent)) == {"username": "pi", "password": PASSWORD}
    assert _header(None) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"pull": "never"},
        {"image": "web"},
        {"login": {"user": "a:b", "password": {"secret": "x"}}},
        {"login": {"user": "a", "password": PASSWORD}},
    ],
)
def test_what_can_be_no_login_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidManifest) as caught:
        validate(Container, {**FIELDS, **fields})
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("registry.test/web", "registry.test"),
        ("nats:5000/web:1", "nats:5000"),
        ("localhost/web", "localhost"),
        ("library/web", ""),
        ("web:1.2", ""),
    ],
)
def test_the_registry_of_a_name(image: str, registry: str) -> None:
    assert registry_of(image) == registry
