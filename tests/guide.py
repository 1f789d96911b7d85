"""The console blocks of docs/*.md as what they are: which machine, what is typed there, what is to
be seen.

A line of a block begins with a prompt or belongs to what the command before it shows. `nats$` is
the operator on the fleet's machine, `nats#` is root there, `pi-01#` is root on that device; all of
a block is typed at one prompt. In what is shown, `…` stands for anything. `^C` ends a command that
goes on until Ctrl-C. Must not run anything.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from harmony_agent.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(r"^(nats[$#]|pi-\d\d#) (.*)$")


@dataclass
class Typed:
    """A line as it is typed, and the lines that it is to show.

    Where `interrupted`, Ctrl-C ends it when these have been seen.
    """

    line: str
    shows: list[str] = field(default_factory=list)
    interrupted: bool = False


@dataclass(frozen=True)
class Block:
    """A fenced block. One of language `console` has a prompt and lines that are typed; another has
    its text.
    """

    section: str
    language: str
    text: str
    prompt: str = ""
    typed: list[Typed] = field(default_factory=list)


def blocks(name: str) -> list[Block]:
    """Every fenced block of a guide, in order."""
    page = (DOCS / name).read_text("utf-8")
    found = list(_BLOCK.finditer(page))
    assert page.count("```") == 2 * len(found), (
        f"{name}: a fence isn't closed, or isn't at the start of its line"
    )
    return [_block(page, match) for match in found]


def section(name: str, title: str) -> list[Block]:
    """Those below one heading; there must be some."""
    found = [block for block in blocks(name) if block.section == title]
    assert found, f"{name} has no blocks below {title!r}"
    return found


def _block(page: str, match: re.Match[str]) -> Block:
    titles = re.findall(r"^##+ (.*)$", page[: match.start()], re.MULTILINE)
    title, language, text = titles[-1] if titles else "", match[1], match[2]
    if language != "console":
        return Block(title, language, text)
    prompts, typed = set(), list[Typed]()
    for line in text.splitlines():
        at = _PROMPT.match(line)
        if at is not None:
            prompts.add(at[1])
            typed.append(Typed(at[2]))
        else:
            assert typed, f"{title}: {line!r} has no prompt, and no command is before it"
            assert not typed[-1].interrupted, f"{title}: {line!r} comes after Ctrl-C"
            if line == "^C":
                typed[-1].interrupted = True
            else:
                typed[-1].shows.append(line)
    assert len(prompts) == 1, f"{title}: a block is typed at one prompt, not at {sorted(prompts)}"
    return Block(title, language, text, prompts.pop(), typed)


def unseen(shows: list[str], said: str) -> list[str]:
    """The lines that weren't shown, in this order; how many spaces are between words doesn't
    matter.
    """
    lines = iter(" ".join(line.split()) for line in said.splitlines())
    return [
        wanted for wanted in shows if not any(_pattern(wanted).fullmatch(line) for line in lines)
    ]


def _pattern(wanted: str) -> re.Pattern[str]:
    return re.compile(
        ".*".join(
            re.escape(" ".join(part.split(" "))) for part in " ".join(wanted.split()).split("…")
        )
    )


def recipes() -> tuple[Settings, dict[str, list[dict[str, Any]]]]:
    """The configuration of the page of recipes, and the Scores of each by its name."""
    found = blocks("recipes.md")
    [config] = [block.text for block in found if block.language == "toml"]
    texts = [block.text for block in found if block.language == "yaml"]
    read = YAML(typ="safe").load
    named = {text.partition(".yaml")[0].removeprefix("# "): read(text) for text in texts}
    assert len(named) == len(texts), "each has a name of its own"
    return Settings.model_validate(tomllib.loads(config)), named
