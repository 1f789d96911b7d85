"""Files that authors write: the good ones, each mistake with its place and code, and garbage."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.load import load
from harmony_fleet.roster import text
from scores import Manifest
from tests.unit.fleet import broken

GOOD = "deployment: web\nscores:\n- {kind: File, name: motd, path: /srv/motd, content: hi}\n"
SECRET = "s3cret-value"


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def refused(folder: Path, name: str, content: str | bytes) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        load(written(folder, name, content))
    error = caught.value
    assert error.hint, error
    assert SECRET not in f"{error.message} {error.hint} {error.details} {error.errors}"
    return error


def test_the_examples_are_the_same() -> None:
    examples = Path(__file__).parents[3] / "examples"
    (python,), (yaml,) = load(str(examples / "web.py")), load(str(examples / "web.yaml"))
    assert python.content() == yaml.content()
    assert [score.key for score in python.scores] == [
        "File/page",
        "SystemdUnit/web-preview.service",
        "Container/web",
    ]


def test_yaml_json_python_give_the_same(tmp_path: Path) -> None:
    (yaml,) = load(written(tmp_path, "m.yml", GOOD))
    json = '{"deployment":"web","scores":[{"kind":"File","name":"motd","path":"/srv/motd","content":"hi"}]}'
    (parsed,) = load(written(tmp_path, "m.json", json))
    source = 'from scores import File, Manifest\nmanifest = Manifest(deployment="web", scores=[%s])'
    (made,) = load(
        written(tmp_path, "m.py", source % 'File(name="motd", path="/srv/motd", content="hi")')
    )
    (dictionary,) = load(written(tmp_path, "d.py", f"manifest = {json}"))
    assert yaml.content() == parsed.content() == made.content() == dictionary.content()


def test_several_manifests(tmp_path: Path) -> None:
    assert [
        item.deployment
        for item in load(written(tmp_path, "m.yaml", f"---\n{GOOD}---\ndeployment: b\n---\n"))
    ] == [
        "web",
        "b",
    ]
    python = "from scores import Manifest\nmanifests = (Manifest(deployment=name) for name in ('a', 'b'))"
    assert [item.deployment for item in load(written(tmp_path, "m.py", python))] == ["a", "b"]


@pytest.mark.parametrize("content", [GOOD, '{"deployment":"web"}', "\ufeff" + GOOD])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode()), "utf-8"))
    assert load("-")[0].deployment == "web"


def test_times_stay_text(tmp_path: Path) -> None:
    score = "{kind: SystemUpgrade, name: u, attempt_id: a, run_uid: r, expires_at: 2026-11-29T18:00:00Z}"
    (manifest,) = load(written(tmp_path, "m.yaml", f"deployment: u\nscores:\n- {score}\n"))
    assert manifest.wire()["scores"][0]["expires_at"] == "2026-11-29T18:00:00Z"


def test_anchors_may_be_used(tmp_path: Path) -> None:
    first = "- &f {kind: File, name: a, path: /srv/a, content: x}"
    text = f"deployment: a\nscores:\n{first}\n- {{<<: *f, name: b, path: /srv/b}}\n"
    (manifest,) = load(written(tmp_path, "m.yaml", text))
    assert [score.name for score in manifest.scores] == ["a", "b"]


BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("m.yaml", "", "NoManifest"),
        ("m.yaml", "---\n---\n", "NoManifest"),
        ("m.yaml", "a: [1, 2", "NotYaml"),
        ("m.yaml", "\tx: 1", "NotYaml"),
        ("m.yaml", f"deployment: {SECRET}\ndeployment: {SECRET}2\n", "DuplicateKey"),
        ("m.yaml", "x: !!python/object/apply:os.system [id]", "NotYaml"),
        ("m.yaml", "x: !secret y", "NotYaml"),
        ("m.yaml", b"deployment: \xff", "NotUtf8"),
        ("m.yaml", "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + BOMB, "TooMany"),
        ("m.yaml", "a: &a [*a]", "TooDeep"),
        ("m.yaml", "[" * 40 + "]" * 40, "TooDeep"),
        ("m.yaml", "[" * 20_000, "TooDeep"),
        ("m.yaml", "just text", "WrongType"),
        ("m.yaml", "deployment: Web\n", "InvalidName"),
        ("m.yaml", f"{GOOD}unknown: {SECRET}\n", "UnknownField"),
        ("m.yaml", GOOD.replace("File", SECRET), "UnknownKind"),
        ("m.yaml", GOOD.replace("content: hi", "content: hi, mode: 0644"), "WrongType"),
        ("m.yaml", GOOD.replace("/srv/motd", f"{SECRET}/../x"), "PathNotNormal"),
        (
            "m.yaml",
            GOOD.replace("content: hi", f"content: {SECRET}, after: [File/no]"),
            "AfterUnknown",
        ),
        ("m.yaml", f"deployment: a\n---\n{GOOD}---\n{GOOD}", "DuplicateDeployment"),
        ("m.json", "", "NotJson"),
        ("m.json", '{"a":1,"a":2}', "DuplicateKey"),
        ("m.json", '{"a":NaN}', "NotFinite"),
        ("m.json", "[" * 100 + "]" * 100, "TooDeep"),
        ("m.json", '{"generation":' + "9" * 5000 + "}", "NumberTooLarge"),
        ("m.json", '{"deployment":"web","generation":1.5}', "WrongType"),
        ("m.json", '{"deployment":"\\ud800"}', "NotUnicode"),
        ("m.json", b"\xff", "NotUtf8"),
        ("m.py", "x = 1", "NoManifest"),
        ("m.py", "manifests = []", "NoManifest"),
        ("m.py", "manifest = 5", "WrongType"),
        ("m.py", "manifests = 'web'", "WrongType"),
        ("m.py", "manifests = {'deployment': 'web'}", "WrongType"),
        ("m.py", "manifest = {'deployment': 'Web'}", "InvalidName"),
        ("m.py", "def :", "NotPython"),
        ("m.py", "x = '\0'", "NotPython"),
        ("m.py", "raise SystemExit(0)", "PythonExited"),
        ("m.py", "1 / 0", "PythonFailed"),
        ("m.py", f"port = int('{SECRET}')", "PythonFailed"),
        ("m.py", f"{{}}['{SECRET}']", "PythonFailed"),
        ("m.py", "import no_such_module_anywhere", "PythonFailed"),
        ("m.txt", GOOD, "UnknownFormat"),
    ],
)
def test_a_mistake_has_a_code_and_a_hint(
    tmp_path: Path, name: str, content: str | bytes, code: str
) -> None:
    assert refused(tmp_path, name, content).code == code


def test_fields_are_named(tmp_path: Path) -> None:
    text = "deployment: web\nscores:\n- {kind: File, name: a, path: srv, content: x, foo: 1}\n- {kind: File, name: -b}\n"
    error = refused(tmp_path, "m.yaml", text)
    assert {(item.field, item.code) for item in error.errors} >= {
        ("scores[0].path", "PathNotNormal"),
        ("scores[0].foo", "UnknownField"),
        ("scores[1].name", "InvalidName"),
        ("scores[1].path", "Missing"),
    }
    assert len(error.details) == len(error.errors)


def test_the_place_in_yaml_and_json(tmp_path: Path) -> None:
    assert "line 3" in refused(tmp_path, "m.yaml", "a: 1\nb: 2\na: 3\n").message
    assert "line 2, column 3" in refused(tmp_path, "m.json", '{"a":1,\n  b}').message
    assert (
        "document 2" in refused(tmp_path, "m.yaml", "deployment: a\n---\ndeployment: B\n").message
    )


def test_only_the_author_s_line_of_a_python_file(tmp_path: Path) -> None:
    source = f"from scores import File\n\n\nFile(name='a', path='x', content={SECRET!r})\n"
    error = refused(tmp_path, "m.py", source)
    assert "line 4" in error.message
    assert [(item.field, item.code) for item in error.errors] == [("path", "PathNotNormal")]
    written(tmp_path, "helper_of_m.py", "def make():\n    return 1 / 0\n")
    error = refused(tmp_path, "n.py", "import helper_of_m\nhelper_of_m.make()\n")
    assert "n.py (helper_of_m.py, line 2)" in error.message
    sys.modules.pop("helper_of_m", None)


def test_a_python_file_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (list(sys.path), set(sys.modules))
    load(
        written(
            tmp_path,
            "m.py",
            "from scores import Manifest\nprint('hello')\nmanifest = Manifest(deployment='a')",
        )
    )
    assert (list(sys.path), set(sys.modules)) == before
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("name", "code"),
    [("nowhere.yaml", "FileMissing"), ("a\0b.yaml", "FileMissing"), (".", "FileMissing")],
)
def test_a_file_that_is_none(tmp_path: Path, name: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(name if name == "a\0b.yaml" else str(tmp_path / name))
    assert caught.value.code == code


def test_too_large_a_file(tmp_path: Path) -> None:
    assert refused(tmp_path, "m.yaml", b"#" * (16 * 1024 * 1024 + 1)).code == "TooLarge"


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_garbage_is_invalid_input_and_nothing_else(
    tmp_path: Path, suffix: str, data: bytes
) -> None:
    with contextlib.suppress(InvalidInput):
        assert all(
            isinstance(item, Manifest) for item in load(written(tmp_path, f"g{suffix}", data))
        )


PIECES = [
    *(
        "a",
        ":",
        "&",
        "*",
        "?",
        "-",
        "<<:",
        "{",
        "}",
        "[",
        "]",
        "'",
        '"',
        "|",
        ">",
        "---",
        "~",
        "=",
        "#",
        "@",
        "`",
    ),
    *("0x", "0o9", "1:2", "1e", ".inf", "&x", "*x", "%YAML 1.1", "\\U"),
    *("!!int", "!!float", "!!binary", "!!set", "!!omap", "!!timestamp"),
]
yaml_bits = st.lists(st.sampled_from([*PIECES, " ", "\n", "- ", ": ", "\n  "]), max_size=30)


def pinned(texts: Iterable[str]) -> Callable[[Any], Any]:
    """Each of `texts` as an example, which is tried in each run."""

    def pin(test: Any) -> Any:
        for one in texts:
            test = example(bits=[one])(test)
        return test

    return pin


@example(bits=["[", "]"])
@pinned(broken.YAML.values())
@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bits=yaml_bits)
def test_pieces_of_yaml_are_invalid_input_and_nothing_else(tmp_path: Path, bits: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(written(tmp_path, "g.yaml", "".join(bits).encode("utf-8", "surrogatepass")))
    placed(caught.value)


def placed(error: InvalidInput) -> None:
    """What can't be read says where; what was read and is no manifest says which field."""
    if error.code in ("NotYaml", "NotUtf8", "DuplicateKey") or "too deeply" in error.message:
        assert re.search(r" at line [1-9][0-9]*, column [1-9][0-9]*$", error.message), error.message


@pytest.mark.parametrize("name", broken.BYTES)
def test_bytes_that_are_no_text_say_where(tmp_path: Path, name: str) -> None:
    error = refused(tmp_path, "m.yaml", broken.BYTES[name])
    assert error.code == "NotUtf8"
    placed(error)


@pytest.mark.parametrize("name", broken.JSON)
@pytest.mark.parametrize("file", ["m.json", "m.yaml"])
def test_json_that_is_none(tmp_path: Path, name: str, file: str) -> None:
    error = refused(tmp_path, file, broken.JSON[name].encode())
    if error.code == "NotJson":
        placed(error)


@pytest.mark.parametrize("name", broken.YAML)
def test_a_roster_of_it_is_refused_before_and_in_an_edit(name: str) -> None:
    data = broken.YAML[name].encode("utf-8", "surrogatepass")
    with pytest.raises(InvalidInput):
        text.parse(data, "roster.yaml")
    with contextlib.suppress(InvalidInput):
        text.tree(data.decode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ("&x{&x", "line 1, column"),
        ("a: 1\nb: &x 1\nc: &x 2\n", "line 3, column 4"),
        ("a: 1\n b: !!int x\n", "line 2, column"),
        ("a: 1\nb: !!int x\n", "line 2, column 4"),
        ("a: 1\nb: \x01\n", "line 2, column 4"),
        ('a: 1\nb: "\\Ux"\n', "line 2, column"),
        ('a: 1\nb: "\\UFFFFFFFF"\n', "line 2, column 4"),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1"),
    ],
)
def test_where_it_is(tmp_path: Path, document: str, place: str) -> None:
    message = refused(tmp_path, "m.yaml", document).message
    assert f" at {place}" in message
