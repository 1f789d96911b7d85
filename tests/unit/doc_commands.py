"""The commands that README.md and docs/*.md name: in blocks, whole, and in sentences, as far as a
sentence tells them. Must not run one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from harmony_agent.cli import parser as agent_parser
from harmony_fleet.cli import app
from tests import guide

PAGES = [guide.DOCS.parent / "README.md", *sorted(guide.DOCS.glob("*.md"))]
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(r"^(?:nats[$#]|pi-\d\d#|\$) ")
_INLINE = re.compile(r"`(harmony(?:-agent|-updater)? [^`]+)`")
_OURS = ("harmony", "harmony-agent", "harmony-updater")
_SHELL = ("|", ">", "<", ";", "&&")
UsageError: Any = typer.BadParameter.__mro__[1]
"""typer has click inside, and gives no other name for it."""


class Unfinished(Exception):
    """The command goes on."""


@dataclass(frozen=True)
class Named:
    """A command as a page names it. One in a sentence may lack arguments."""

    page: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def named(page: Path) -> Iterator[Named]:
    """Each command of a page, as words."""
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        if match[1] in ("", "console"):
            for line in match[2].splitlines():
                if match[1] != "" and not _PROMPT.match(line):
                    continue  # what a command shows
                for words in _commands(_PROMPT.sub("", line)):
                    yield Named(page.name, words, whole=True)
    for match in _INLINE.finditer(_FENCE.sub("", text)):
        for words in _alternatives(" ".join(match[1].split())):
            yield Named(page.name, words, whole=False)


def _commands(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of ours in a line of a shell."""
    if not re.search(r"(^|[|;&] ?)harmony(-agent|-updater)? ", line):
        return
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word not in _SHELL:
            words.append(word)
            continue
        if words and words[0] in _OURS:
            yield tuple(words)
        words = []


def _alternatives(text: str) -> Iterator[tuple[str, ...]]:
    """`a|b` in a sentence is two commands; what is optional is there; `…` ends it."""
    text = text.partition("…")[0] if text.endswith("…") and " …" in text else text
    text = text.replace("[", "").replace("]", "").replace("…", "")
    first = next((word for word in text.split() if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word)), "")
    for choice in first.split("|") if first else [""]:
        yield tuple(shlex.split(text.replace(first, choice, 1) if first else text))


def refusal(one: Named) -> str:
    """The reason why a command isn't one; "" for one that is."""
    program, *rest = ("1" if word in ("N", "LINES") else word for word in one.words)
    try:
        if program == "harmony":
            _fleet(rest)
        elif program == "harmony-agent":
            with redirect_stderr(StringIO()) as said:
                try:
                    agent_parser().parse_args(rest)
                except SystemExit as ended:
                    lacks = "are required" in said.getvalue() and not one.whole
                    return said.getvalue() if ended.code and not lacks else ""
        elif rest[0] not in ("serve", "status", "clear-repair", "version"):
            return f"harmony-updater has no {rest[0]}"
    except Unfinished as error:
        return str(error) if one.whole else ""
    except UsageError as error:
        lacks = type(error).__name__ == "MissingParameter" or "requires an arg" in str(error)
        return "" if lacks and not one.whole else str(error)
    return ""


def _fleet(rest: list[str]) -> None:
    """Parse as `harmony` does. Raises click's errors."""
    command: Any = typer.main.get_command(app)
    path = "harmony"
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            raise UsageError(f"{path} has no {rest[0]}")
        path, command, rest = f"{path} {rest[0]}", command.commands[rest[0]], rest[1:]
    if hasattr(command, "commands"):  # its options act at once: they are looked up
        known = {name for option in command.params for name in option.opts}
        if not rest:
            raise Unfinished(f"{path} needs a command")
        if not known.issuperset(rest):
            raise UsageError(f"{path} has no {' '.join(rest)}")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARMONY_SERVER", "nats://127.0.0.1:1")
        command.make_context(path, rest)
