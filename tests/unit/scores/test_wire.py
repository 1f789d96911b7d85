"""Bytes and digests: the same content is the same bytes, whoever writes it, also after the models
have grown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from scores import (
    Container,
    File,
    Manifest,
    Network,
    Package,
    Probe,
    Session,
    SystemdUnit,
    SystemUpgrade,
    TcpProbe,
    Volume,
    WireManifest,
)
from scores.base import Score
from scores.canonical import canonical, digest, read
from scores.manifest import SCORE_TYPES, cycle, decode
from tests import strategies
from tests.unit.scores.values import (
    EACH,
    FILE,
    FULL,
    NETWORK,
    PACKAGE,
    SESSION,
    UNIT,
    UPGRADE,
    VOLUME,
    manifest,
)

LINEAGE = strategies.LINEAGE


@settings(max_examples=100, deadline=None)
@given(strategies.manifests())
def test_decoding_canonical_bytes_gives_them_back(value: dict[str, Any]) -> None:
    data = canonical(value)
    assert decode(data, device=value["device"], deployment=value["deployment"]).canonical() == data


@settings(max_examples=50, deadline=None)
@given(strategies.manifests(), st.randoms())
def test_order_of_keys_and_white_space_are_no_content(value: dict[str, Any], random: Any) -> None:
    def shuffled(inner: Any) -> Any:
        if isinstance(inner, dict):
            items = [(key, shuffled(item)) for key, item in inner.items()]
            random.shuffle(items)
            return dict(items)
        return [shuffled(item) for item in inner] if isinstance(inner, list) else inner

    other = json.dumps(
        shuffled(value), indent=random.choice([None, 2]), ensure_ascii=random.choice([True, False])
    )
    decoded = decode(other.encode(), device=value["device"], deployment=value["deployment"])
    assert decoded.canonical() == canonical(value)
    assert digest(decoded.canonical()) == digest(canonical(value))


@settings(max_examples=200, deadline=None)
@given(strategies.json_values())
def test_canonical_bytes_of_any_value_are_read_back(value: Any) -> None:
    try:
        data = canonical(value)
    except UnicodeEncodeError:
        assert "\\ud" in json.dumps(value)  # the one thing that has no bytes
        return
    assert canonical(read(data, len(data))) == data
    assert b"\n" not in data


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        ({"é": "\u2028\U0001f600"}, '{"é":"\u2028\U0001f600"}'.encode()),
        ({"a": '"\\/\n\x01'}, b'{"a":"\\"\\\\/\\n\\u0001"}'),
        (1.5, b"1.5"),
    ],
)
def test_canonical_form(value: Any, data: bytes) -> None:
    assert canonical(value) == data


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        canonical([value])


GOLDEN = {
    "File": "56211550d83d31ff7b5996f34a4d4f61cd61d58d66864002642bea99daa3549d",
    "FileObject": "7e14b88e2be517bc0e700eef98de473c5e36254e718032c612dfea26985d9bb3",
    "FileLink": "8eb3337ff2c7757215c42fd38ba83bf746f755ceee7c8da25552ac9a23fb856f",
    "SystemdUnit": "91d090635253d8c62e8346a2f4b16fbac0bf316e91d50d19f167cbd01427513a",
    "Container": "f45fa9dda448764c66f5b06644a0bbbbcca9cd13862e2068d8d25363ae5f5fe2",
    "SystemUpgrade": "a95fd94a5014018cd13c625973adfe9f74d2c36838c9ee3d053e2041cc4bf1f1",
    "Session": "15e145e317035b73e4563691c9a9ec689592fa3bc5f0e4da46046c5a8b07bf60",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_digests(name: str) -> None:
    """Digests that devices have in their ledgers: another one would redo everything in the
    field.
    """
    value = FULL[name]
    score = SCORE_TYPES[value["kind"]].model_validate(value)
    assert score.spec_digest() == f"sha256:{GOLDEN[name]}"


def test_golden_manifest() -> None:
    # A kind that came later is in no manifest of before.
    later = ("Session", "Volume", "Network", "Package")
    data = canonical(manifest(*(value for name, value in FULL.items() if name not in later)))
    found = digest(decode(data, device="pi-01", deployment="web").canonical())
    assert found == "sha256:046ee926d915f010ddd2667746a5457461880346cd67a25ff8c1e512c0e7956e"


class NewerFile(File):
    """A File of an agent that was upgraded: one field and one nested default are new."""

    encrypted: bool = False
    probe: Probe | None = None


class NewerContainer(Container):
    """The same of a Container."""

    oom_score: int = 0
    annotations: Mapping[str, str] = Field(default_factory=dict)


class NewerUnit(SystemdUnit):
    """The same of a unit."""

    preset: str = "none"


class NewerUpgrade(SystemUpgrade):
    """The same of an upgrade."""

    reboot: bool = True


class NewerSession(Session):
    """The same of a session."""

    title: str = ""


class NewerVolume(Volume):
    """The same of a volume."""

    quota: str = ""


class NewerNetwork(Network):
    """The same of a network."""

    mtu: int = 0


class NewerPackage(Package):
    """The same of a package."""

    held: bool = False


NEWER: dict[type[Score], dict[str, Any]] = {
    NewerFile: FILE,
    NewerContainer: FULL["Container"],
    NewerUnit: UNIT,
    NewerUpgrade: UPGRADE,
    NewerSession: SESSION,
    NewerVolume: VOLUME,
    NewerNetwork: NETWORK,
    NewerPackage: PACKAGE,
}


@pytest.mark.parametrize(
    ("newer", "value"), NEWER.items(), ids=lambda part: getattr(part, "__name__", "")
)
def test_a_new_field_with_a_default_changes_no_digest(
    newer: type[Score], value: dict[str, Any]
) -> None:
    old = SCORE_TYPES[value["kind"]].model_validate(value)
    new = newer.model_validate(value)
    assert new.spec_digest() == old.spec_digest()
    assert new.canonical() == old.canonical() == canonical(value)


def test_what_the_author_set_is_in_the_digest_though_it_is_the_default() -> None:
    plain = File(name="a", path="/a", content="x")
    assert (
        plain.spec_digest() != File(name="a", path="/a", content="x", parents=False).spec_digest()
    )


def test_a_number_is_the_same_however_it_is_spelt() -> None:
    probes = [Probe(tcp=TcpProbe(port=1), period_seconds=seconds) for seconds in (5, 5.0)]
    assert (
        probes[0].canonical() == probes[1].canonical() == b'{"period_seconds":5,"tcp":{"port":1}}'
    )
    assert (
        Probe(tcp=TcpProbe(port=1), period_seconds=0.5).canonical()
        == b'{"period_seconds":0.5,"tcp":{"port":1}}'
    )
    assert b'"cpus":2,' in Container(name="c", image="i", cpus=2.0).canonical()


@pytest.mark.parametrize("value", EACH.values(), ids=EACH)
def test_python_and_json_give_the_same_digest(value: dict[str, Any]) -> None:
    kind = SCORE_TYPES[value["kind"]]
    author: Any = kind(**{key: item for key, item in value.items() if key != "kind"})
    assert (
        author.spec_digest() == kind.model_validate(value).spec_digest() == digest(canonical(value))
    )
    again = decode(
        Manifest(deployment="web", scores=[author]).bind("pi-01", LINEAGE, 3).canonical(),
        device="pi-01",
        deployment="web",
    )
    assert again.scores[0].spec_digest() == author.spec_digest()


def test_binding_a_manifest_to_a_device() -> None:
    author = Manifest(
        deployment="web", scores=[File(name="a", path="/a", content="")], allow_prune=2
    )
    bound = author.bind("pi-01", LINEAGE, 7)
    assert isinstance(bound, WireManifest)
    assert (bound.device, bound.lineage, bound.generation, bound.allow_prune) == (
        "pi-01",
        LINEAGE,
        7,
        2,
    )
    assert b"supersedes" not in bound.canonical()
    assert b"removed" not in bound.canonical()
    other = "00000000-0000-4000-8000-000000000000"
    assert author.bind("pi-01", LINEAGE, 7, supersedes=other).supersedes == other
    gone = Manifest(deployment="web", removed=True, supersedes=other).bind("pi-01", LINEAGE, 8)
    assert (gone.removed, gone.scores, gone.supersedes) == (True, (), other)


def test_content_is_what_the_author_decides() -> None:
    author = Manifest(deployment="web", scores=[File(name="a", path="/a", content="")])
    one, two = author.bind("pi-01", LINEAGE, 1), author.bind("pi-02", LINEAGE, 9)
    assert one.content() == two.content() == author.content()
    assert (
        Manifest(deployment="web", removed=True).content() != Manifest(deployment="web").content()
    )
    assert (
        Manifest(deployment="web", removed=False).content() == Manifest(deployment="web").content()
    )


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefxyz"), max_size=4))
)
def test_circles(edges: dict[str, list[str]]) -> None:
    def reaches(start: str, end: str, seen: frozenset[str] = frozenset()) -> bool:
        return any(
            need == end
            or (need not in seen and need in edges and reaches(need, end, seen | {need}))
            for need in edges[start]
        )

    stuck = cycle(edges)
    circular = {key for key in edges if reaches(key, key)}
    assert circular <= stuck
    assert bool(circular) == bool(stuck)
    assert all(any(need in stuck for need in edges[key]) for key in stuck)


@pytest.mark.parametrize("model", [Manifest, WireManifest, *SCORE_TYPES.values()])
def test_json_schema(model: Any) -> None:
    """Editors and `harmony schema` live from it."""
    schema = model.model_json_schema()
    assert schema["additionalProperties"] is False
    assert schema["type"] == "object"
    assert set(schema["properties"]) == set(model.model_fields)
    json.dumps(schema, allow_nan=False)


def test_json_schema_names_every_kind() -> None:
    schema = WireManifest.model_json_schema()
    assert set(schema["properties"]["scores"]["items"]["discriminator"]["mapping"]) == set(
        SCORE_TYPES
    )
    assert set(schema["required"]) == {
        "api",
        "device",
        "deployment",
        "lineage",
        "generation",
        "scores",
    }
