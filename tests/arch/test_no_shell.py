"""There is no shell in the tree: not by a flag, not by a name, not through os."""

from __future__ import annotations

import ast

import pytest

from tests.arch.tree import PACKAGES, name_of, parsed, place, sources

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"})
FORBIDDEN = frozenset(
    {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
)
SHELL_CALLS = frozenset({"create_subprocess_shell", "getoutput", "getstatusoutput"})


def _shell_words(words: list[object]) -> bool:
    """Whether an argument list starts a shell to run a text."""
    texts = [word.rpartition("/")[2] if isinstance(word, str) else "" for word in words]
    return any(
        text in SHELLS and isinstance(after, str) and after.startswith("-") and "c" in after
        for text, after in zip(texts, words[1:], strict=False)
    )


def faults(tree: ast.Module) -> list[ast.AST]:
    """Where a tree runs a shell."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = name_of(node)
            shell = [word for word in node.keywords if word.arg == "shell"]
            if name in FORBIDDEN or name.rpartition(".")[2] in SHELL_CALLS:
                found.append(node)
            if any(
                not (isinstance(word.value, ast.Constant) and word.value.value is False)
                for word in shell
            ):
                found.append(node)
        words: list[ast.expr] = []
        if isinstance(node, (ast.List, ast.Tuple)):
            words = node.elts
        elif isinstance(node, ast.Call):
            words = node.args
        if _shell_words([word.value if isinstance(word, ast.Constant) else None for word in words]):
            found.append(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "sh -c" in node.value:
            found.append(node)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(x, shell=True)",
        "subprocess.run(x, shell=flag)",
        "run(['sh', '-c', x])",
        "run(('/bin/sh', '-ec', x))",
        "run('bash', '-lc', x)",
        "os.system(x)",
        "os.popen(x)",
        "await asyncio.create_subprocess_shell(x)",
        "subprocess.getoutput(x)",
        "run('sh -c ' + x)",
        "run(['env', 'busybox', '-c'])",
    ],
)
def test_the_rule_sees_a_shell(text: str) -> None:
    assert faults(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    ["run(['apt-get', '-c', x])", "run(x, shell=False)", "name = 'sh'", "run(['sha256sum'])"],
)
def test_the_rule_sees_no_shell_where_there_is_none(text: str) -> None:
    assert not faults(ast.parse(text))


def test_no_shell_in_the_packages() -> None:
    found = [place(path, node) for path in sources(*PACKAGES) for node in faults(parsed(path))]
    assert found == []


def test_no_shell_by_a_flag_anywhere() -> None:
    """Tests and tools too; a device's own test may give a container a shell to run, which is no
    shell of ours.
    """
    found = [
        place(path, node)
        for path in sources(*PACKAGES, "tests", "examples", "deploy")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and (
            name_of(node) in ("os.system", "os.popen")
            or name_of(node).rpartition(".")[2] in SHELL_CALLS
            or any(
                word.arg == "shell"
                and not (isinstance(word.value, ast.Constant) and word.value.value is False)
                for word in node.keywords
            )
        )
    ]
    assert found == []
