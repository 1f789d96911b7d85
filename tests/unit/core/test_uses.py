"""What a Score uses without naming it in `after`: waited for where it stands in the same manifest."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.manifests import desired_of
from harmony_agent.core.resources import Key
from scores import Container, InvalidManifest, Manifest, Network, Volume, WireManifest
from scores.manifest import AnyScore, validate

WEB = Key("Container", "web")
FIELDS: dict[str, Any] = {
    "mounts": [
        {"type": "volume", "source": "data", "target": "/data"},
        {"type": "bind", "source": "/srv/web", "target": "/srv"},
        {"type": "tmpfs", "target": "/tmp"},
    ],
    "networks": [{"name": "home"}, {"name": "back"}],
    "init_containers": [
        {"name": "i", "mounts": [{"type": "volume", "source": "seed", "target": "/seed"}]}
    ],
}


def web(**fields: Any) -> Container:
    return Container(name="web", image="localhost/web", **{**FIELDS, **fields})


def bound(*scores: AnyScore) -> WireManifest:
    manifest = Manifest(deployment="web", scores=scores)
    return manifest.bind("pi-01", "7b0e0000-0000-4000-8000-000000000001", 1)


def test_a_container_uses_its_volumes_and_networks() -> None:
    assert web().uses() == ("Volume/data", "Volume/seed", "Network/home", "Network/back")
    assert Container(name="web", image="i", network="home").uses() == ("Network/home",)
    assert Container(name="web", image="i").uses() == ()


def test_only_what_stands_in_its_manifest_is_waited_for() -> None:
    found = desired_of(
        bound(web(after=["Volume/data"]), Volume(name="data"), Network(name="back")), {}
    )
    assert found[WEB].uses == ("Volume/data", "Network/back")
    assert found[WEB].needs == ("Volume/data", "Network/back")
    assert desired_of(bound(web()), {})[WEB].needs == ()


def test_a_volume_that_comes_later_is_waited_for_from_then_on() -> None:
    spec = web()
    before = desired_of(bound(spec), {})
    same = desired_of(bound(spec), {}, before=before)
    assert same[WEB] is before[WEB]
    after = desired_of(bound(spec, Volume(name="data")), {}, before=before)
    assert after[WEB].needs == ("Volume/data",)
    assert after[WEB].version == before[WEB].version


def test_a_circle_through_what_is_used_is_refused() -> None:
    wire = Manifest(deployment="web", scores=[web(), Volume(name="data")]).wire()
    validate(Manifest, wire)
    wire["scores"][1]["after"] = ["Container/web"]
    with pytest.raises(InvalidManifest) as caught:
        validate(Manifest, wire)
    assert [error.code for error in caught.value.errors] == ["AfterCycle"]
