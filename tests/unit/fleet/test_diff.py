"""What differs, in words that hold no value."""

from __future__ import annotations

import json

from harmony_fleet.manifests.diff import FieldChange, diff, diff_by_digest
from scores import File, SystemdUnit
from tests.unit.fleet.build import DIGEST, container, file, manifest

SECRET = "s3cret-value"


def told(*found: object) -> str:
    return json.dumps([change.as_json() for change in found])  # type: ignore[attr-defined]


def test_added_changed_removed_sorted() -> None:
    old, new = (
        manifest(file("b"), file("c"), file("d")),
        manifest(file("d", "y"), file("b"), file("a")),
    )
    assert [(item.key, item.how) for item in diff(old, new)] == [
        ("File/a", "added"),
        ("File/c", "removed"),
        ("File/d", "changed"),
    ]
    assert diff(None, manifest()) == ()
    assert diff(old, old) == ()


def test_content_by_size_and_digest_alone() -> None:
    (change,) = diff(manifest(file("a", f"{SECRET}1")), manifest(file("a", f"{SECRET}22")))
    (field,) = change.fields
    assert field.field == "content"
    assert (field.before or "").startswith("13 bytes, sha256:")
    assert (field.after or "").startswith("14 bytes, sha256:")
    assert SECRET not in told(change)


def test_from_text_to_base64_to_plain_fields() -> None:
    old = manifest(file("a"))
    new = manifest(File(name="a", path="/srv/a", content_base64="eA==", mode="0600", owner="root"))
    fields = {item.field: item for item in diff(old, new)[0].fields}
    assert fields["content"].after is None
    assert fields["content_base64"].after == fields["content"].before  # the same byte
    assert fields["mode"] == FieldChange("mode", None, "0600")
    assert fields["owner"] == FieldChange("owner", None, "root")


def test_variables_by_name_alone() -> None:
    old = manifest(
        container(env={"A": SECRET, "B": "1", "C": "1"}, image="localhost/x:1", args=[SECRET])
    )
    new = manifest(
        container(
            env={"A": f"{SECRET}2", "B": "1", "D": SECRET}, image="localhost/x:2", args=["other"]
        )
    )
    (change,) = diff(old, new)
    assert [(item.field, item.before, item.after) for item in change.fields] == [
        ("args", None, None),
        ("env.A", "set", "set"),
        ("env.C", "set", None),
        ("env.D", None, "set"),
        ("image", "localhost/x:1", "localhost/x:2"),
    ]
    assert SECRET not in told(change)


def test_units_and_drop_ins_by_digest() -> None:
    def unit(text: str, **dropins: str) -> SystemdUnit:
        return SystemdUnit(
            name="a.service",
            content=text,
            dropins={f"{key}.conf": value for key, value in dropins.items()},
        )

    (change,) = diff(manifest(unit(SECRET, a=SECRET)), manifest(unit("x", a="y", b="z")))
    assert [item.field for item in change.fields] == ["content", "dropins.a.conf", "dropins.b.conf"]
    assert SECRET not in told(change)


def test_what_an_author_now_writes_out_is_a_change() -> None:
    (change,) = diff(manifest(file()), manifest(file(drift="enforce")))
    assert [item.field for item in change.fields] == ["drift"]


def test_by_digest_where_only_the_device_knows() -> None:
    same = file("a")
    known = {"File/a": same.spec_digest(), "File/b": DIGEST, "File/gone": DIGEST}
    found = diff_by_digest(known, manifest(same, file("b"), file("new")))
    assert [(item.key, item.how) for item in found] == [
        ("File/b", "changed"),
        ("File/gone", "removed"),
        ("File/new", "added"),
    ]
