"""Mistakes as their author sees them: file, line, column, the resource's name, what was probably
meant, the place underlined, and a hint that fits the field. No secret is shown.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harmony_fleet.cli import main
from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.load import drafts, load
from scores.base import KINDS

HEAD = "deployment: web\nscores:\n"
FILE = "- kind: File\n  name: motd\n  path: /srv/motd\n  content: hi\n"
POD = "- kind: Container\n  name: web\n  image: busybox\n"
SECRET = "hunter2"


def refused(folder: Path, text: str, name: str = "m.yaml") -> InvalidInput:
    path = folder / name
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load(str(path))
    return caught.value


def drawn(error: InvalidInput) -> list[str]:
    return [text for line in error.lines if line is not None for text in line.drawn()]


TYPOS = {
    "a field": (
        HEAD + FILE.replace("content", "contnet"),
        "line 6, column 3: scores[0].contnet (File/motd): there is no such field; "
        "did you mean content?",
        ["6 |   contnet: …", "  |   ^^^^^^^"],
    ),
    "a kind": (
        HEAD + POD.replace("Container", "Contaner"),
        "did you mean Container?",
        ["3 | - kind: Contaner", "  |         ^^^^^^^^"],
    ),
    "a kind in lower case": (HEAD + POD.replace("Container", "container"), "mean Container?", []),
    "no kind": (
        HEAD + POD.replace("kind: Container\n  ", ""),
        f"(web): has no kind: one of {', '.join(KINDS)}; did you mean kind: Container?",
        ["3 | - name: web", "  |         ^^^"],
    ),
    "a value of several": (
        HEAD + POD + "  restart: allways\n",
        "scores[0].restart (Container/web): ",
        ["6 |   restart: allways", "  |            ^^^^^^^"],
    ),
    "a field of a probe": (
        HEAD + POD + "  readiness:\n    http: {prt: 80, port: 80}\n",
        "did you mean port?",
        ["7 | … prt: …", "  |   ^^^"],
    ),
    "a field of the manifest": ("deploymnt: web\n", "did you mean deployment?", []),
    "what is missing": (
        HEAD + FILE.replace("  path: /srv/motd\n", ""),
        "scores[0].path (File/motd): is required, and isn't there",
        ["4 |   name: motd", "  |         ^^^^"],
    ),
    "a name": (HEAD + POD.replace("web", "-web"), "line 4, column 9: ", []),
    "a key that isn't there": (
        HEAD + FILE + "  after: [File/no]\n",
        "scores[0].after[0] (File/motd): names no resource of this manifest",
        ["7 | … File/no", "  |   ^^^^^^^"],
    ),
}


@pytest.mark.parametrize("name", TYPOS)
def test_a_typo(tmp_path: Path, name: str) -> None:
    text, words, lines = TYPOS[name]
    error = refused(tmp_path, text)
    assert words in " ".join(error.details)
    assert drawn(error)[: len(lines)] == lines


def test_the_same_in_json(tmp_path: Path) -> None:
    text = '{"deployment": "web",\n "scores": [{"kind": "File", "name": "a", "pth": "/x"}]}'
    error = refused(tmp_path, text, "m.json")
    assert any("mean path?" in detail and "line 2" in detail for detail in error.details)
    assert '2 | … "pth": …' in drawn(error)


WHOLE = "- deployment: a\n  scores: []\n- deployment: web\n  scores:\n"
WRONG = "  " + FILE.replace("\n  ", "\n    ").replace("content", "contnet")


def test_the_same_in_a_list_of_manifests(tmp_path: Path) -> None:
    """Each has the lines of its own place, also behind another document."""
    line = 1 + WHOLE.count("\n") + 3
    error = refused(tmp_path, WHOLE + WRONG)
    assert f"line {line}, column 5: scores[0].contnet (File/motd)" in " ".join(error.details)
    assert drawn(error) == [f"{line} |     contnet: …", "  |     ^^^^^^^"]
    error = refused(tmp_path, "deployment: b\nscores: []\n---\n" + WHOLE + WRONG)
    assert f"line {line + 3}, column 5: " in " ".join(error.details)


PYTHON = """
from scores import Container, Manifest

manifest = Manifest(deployment="web", scores=[
    Container(name="web", image="x", env={"A": "hunter2"},
        restrt="always"),
])
"""


def test_the_same_in_python(tmp_path: Path) -> None:
    error = refused(tmp_path, PYTHON, "m.py")
    assert "m.py, line 5: Container" in error.message
    assert list(error.details) == [
        "line 6, column 9: restrt (Container/web): there is no such field; did you mean restart?"
    ]
    assert drawn(error) == ["6 |         restrt=…", "  |         ^^^^^^"]


@pytest.mark.parametrize(
    ("text", "words", "not_words"),
    [
        (HEAD + POD.replace("busybox", '"nginx latest"'), "image: The image's name", "octal"),
        (HEAD + FILE + "  mode: 644\n", "mode: Four octal digits, in quotes.", "image"),
        (HEAD + POD + "  memory: 64\n", "memory: The most memory", "octal"),
        (HEAD + POD + "  stop_grace_seconds: long\n", "Seconds from that signal", "octal"),
        (HEAD + FILE.replace("content", "contnet"), "harmony schema --kind File", "octal"),
        (HEAD + FILE.replace("  path: /srv/motd\n", ""), "path: Absolute and normal", "octal"),
    ],
)
def test_the_hint_fits_the_field(tmp_path: Path, text: str, words: str, not_words: str) -> None:
    error = refused(tmp_path, text)
    assert words in error.hint
    assert not_words not in error.hint


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        (HEAD + "\t- kind: File\n", 3, "→- kind: …"),
        (HEAD + "- kind: File\n  name: a\n\tcontent: hunter2\n", 5, "→content: …"),
    ],
)
def test_a_tab(tmp_path: Path, text: str, line: int, shown: str) -> None:
    error = refused(tmp_path, text)
    assert f"a tab, where YAML takes spaces alone, at line {line}, column 1" in error.message
    assert drawn(error)[0] == f"{line} | {shown}"
    assert error.hint == "indent with spaces"


SECRETS = [
    FILE.replace("content: hi", f"content: [{SECRET}]"),
    FILE.replace("content: hi", f"contnet: {SECRET}"),
    FILE.replace("content: hi", f"content: {SECRET}\n  content_base64: {SECRET}"),
    POD + f"  env: {{PASSWORD: [{SECRET}], image: 5}}\n",
    POD + f"  env: {{name: 12, PASSWORD: {SECRET}}}\n",
    POD + f"  env: [{SECRET}]\n",
    POD + f"  env: {{'A={SECRET}': x}}\n",
    POD + f"  command: {SECRET}\n",
    POD + f"  args: [a, {{b: {SECRET}}}]\n",
    POD + f"  labels: {{io.harmony.x: {SECRET}}}\n",
    POD + f"  init_containers: [{{name: i, env: {{A: [{SECRET}]}}}}]\n",
    POD + f"  healthcheck: {{command: {SECRET}}}\n",
    POD + f"  readiness: {{exec: {SECRET}}}\n",
    f"- {{kind: Container, env: {{A: {SECRET}}}, name: web, image: 'a b'}}\n",
    f"- kind: SystemdUnit\n  name: a.service\n  dropins: {{x: {SECRET}}}\n",
    f"- kind: SystemdUnit\n  name: a.service\n  dropins: {{a.conf: [{SECRET}]}}\n",
    f"- kind: SystemdUnit\n  name: a.scope\n  content: {SECRET}\n",
    f"- kind: File\n  content: {SECRET}\n  content: b\n",
    f"- kind: File\n  content: '{SECRET}\n",
]


@pytest.mark.parametrize("scores", SECRETS)
def test_nothing_that_may_be_a_secret_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scores: str
) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + scores)
    for form in ([], ["-o", "json"]):
        assert main(["validate", str(path), *form]) == 2
        told = capsys.readouterr()
        assert SECRET not in told.out + told.err
        assert "error" in told.out + told.err


def test_what_is_shown_fits_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(HEAD + POD + f"  user: '\x1b[31m{'x' * 300}'\n".replace("\x1b", "\\x1b"))
    assert main(["validate", str(path)]) == 2
    assert all(len(line) < 140 for line in capsys.readouterr().err.splitlines() if "|" in line)


# validate


def test_validate_reads_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, made = (tmp_path / name for name in ("good.yaml", "bad.yaml", "made.py"))
    good.write_text(HEAD + FILE)
    bad.write_text(HEAD + FILE.replace("content", "contnet"))
    made.write_text('from scores import File\nscores = [File(name="a", path="/a", content="")]\n')
    assert main(["validate", str(bad), str(good), str(made)]) == 2
    told = capsys.readouterr()
    assert f"{good}: web: 1 resource, valid" in told.out
    assert f"{made}: made: 1 resource, valid" in told.out
    assert f"error: cannot use {bad}: line 6, column 3" in told.err
    assert main(["validate", str(good), str(made)]) == 0


FORMS = {
    "a manifest.yaml": ("a.yaml", HEAD + FILE, "web"),
    "a list.yaml": ("page.yaml", FILE, "page"),
    "a list.json": (
        "page.json",
        '[{"kind":"File","name":"motd","path":"/srv/motd","content":""}]',
        "page",
    ),
    "scores.py": (
        "page.py",
        'from scores import File\nscores = [File(name="a", path="/a", content="")]',
        "page",
    ),
    "manifest.py": (
        "a.py",
        'from scores import Manifest\nmanifest = Manifest(deployment="web")',
        "web",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_file(tmp_path: Path, form: str) -> None:
    name, text, deployment = FORMS[form]
    (tmp_path / name).write_text(text)
    (draft,) = drafts(str(tmp_path / name))
    assert draft.deployment == deployment
    assert draft.manifest({}).deployment == deployment


def test_a_list_in_a_file_whose_name_is_no_deployment_s(tmp_path: Path) -> None:
    error = refused(tmp_path, FILE, "My_Page.yaml")
    assert error.code == "DeploymentMissing"
    assert "deployment: NAME" in error.hint


VARYING = """
- kind: Container
  name: web
  image: {$text: "busybox:${tag}"}
  ports: [{host_port: {$var: port}, container_port: 80}]
  env: {SITE: {$var: labels.site}}
"""


def test_variables_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(VARYING)
    (draft,) = drafts(str(tmp_path / "web.yaml"))
    known = {"tag": "1", "port": 8080, "labels.site": "home"}
    (score,) = draft.manifest(known).wire()["scores"]
    assert score["image"] == "busybox:1"
    assert score["ports"] == [{"host_port": 8080, "container_port": 80}]
    with pytest.raises(InvalidInput) as caught:
        draft.manifest({**known, "port": 0}, "pi-01")
    assert "scores[0].ports[0].host_port (Container/web)" in caught.value.details[0]
    del known["labels.site"]
    with pytest.raises(InvalidInput) as caught:
        draft.manifest(known, "pi-01")
    assert caught.value.code == "VariableMissing"
    assert caught.value.hint == "give it with: --variable labels.site=VALUE"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("", ""), 0),
        (("name: web", "name: -"), 2),
        (("container_port: 80", "container_port: 0"), 2),
        (("host_port: {$var: port}", "host_prt: {$var: port}"), 2),
        (("image: {$text", "imag: {$text"), 2),
    ],
)
def test_validate_without_the_variables(tmp_path: Path, change: tuple[str, str], code: int) -> None:
    (tmp_path / "web.yaml").write_text(VARYING.replace(*change))
    assert main(["validate", str(tmp_path / "web.yaml")]) == code


def test_validate_with_a_variable_that_doesn_t_fit(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(VARYING)
    assert main(["validate", str(tmp_path / "web.yaml"), "--variable", "port=8080"]) == 0
    assert main(["validate", str(tmp_path / "web.yaml"), "--variable", "port=many"]) == 2


def test_a_list_of_scores_is_no_dictionary_or_instance(tmp_path: Path) -> None:
    error = refused(tmp_path, "just text\n")
    assert not re.search("dictionary|instance", " ".join(error.details))
