"""Lines of `docker run` and `podman run`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from harmony_fleet.importing.attachments import attached
from harmony_fleet.importing.options import NOT_YET, OPTIONS
from harmony_fleet.importing.resource import Place, Resource, take
from harmony_fleet.importing.values import words

SHORT: Final = {
    "c": "cpu-shares",
    "d": "detach",
    "e": "env",
    "h": "hostname",
    "i": "interactive",
    "l": "label",
    "m": "memory",
    "P": "publish-all",
    "p": "publish",
    "q": "quiet",
    "t": "tty",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
ALIASES: Final = {"net": "network"}
SWITCHES: Final = frozenset(
    (
        *("detach", "interactive", "tty", "rm", "init", "privileged", "read-only", "quiet", "rmi"),
        *("no-healthcheck", "publish-all", "replace", "sig-proxy", "env-host", "http-proxy"),
        *("no-hosts", "oom-kill-disable", "tls-verify", "passwd"),
    )
)
"""Options that take no word after them."""
DEFAULT_RESTART: Final = "it had none: Harmony runs it again whenever it ends (restart: always)"
_RUN: Final = re.compile(r"(?:^|\s)(?:docker|podman)\s")


@dataclass(slots=True)
class Line:
    """A command line: its options, and the words behind them."""

    options: list[tuple[str, str, str]] = field(default_factory=list)
    """As it was written, its long name, its value."""
    rest: list[str] = field(default_factory=list)


def parsed(arguments: Sequence[str]) -> Line:
    """The options before the first plain word, which is the image."""
    line, waiting = Line(), list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            waiting.insert(0, word)
            break
        for shown, name, value in _options(word, waiting):
            line.options.append((shown, name, value))
    line.rest = waiting
    return line


def _options(word: str, waiting: list[str]) -> Iterator[tuple[str, str, str]]:
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = ALIASES.get(name, name)
        if not equals and name not in SWITCHES:
            value = waiting.pop(0) if waiting else ""
        yield f"--{name}", name, value
        return
    letters = word[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        name = SHORT.get(letter, letter)
        if name in SWITCHES:
            yield f"-{letter}", name, ""
            continue
        value = letters.removeprefix("=") or (waiting.pop(0) if waiting else "")
        yield f"-{letter} (--{name})", name, value
        return


def lines(text: str) -> list[str]:
    """The lines of a file, each with those that a backslash joins to it."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [line for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]


def has_run(text: str) -> bool:
    """Return whether a text holds a line of docker or podman."""
    return any(_RUN.search(line) for line in lines(text))


def read(text: str, place: Place) -> tuple[list[Resource], list[str]]:
    """The containers of a text's lines, and notes of its other lines."""
    found: list[Resource] = []
    notes: list[str] = []
    for line in lines(text):
        try:
            typed = shlex.split(line)
        except ValueError:
            notes.append(f"{line}: a quote in it isn't closed")
            continue
        tool, at = _verb(typed)
        if not at:
            notes.append(f"{line}: it is no docker run, and no podman run")
            continue
        here = replace(place, docker=typed[tool] == "docker")
        made = container(typed[at + 1 :], here, f"container-{len(found) + 1}")
        for word in (*typed[:tool], *typed[tool + 1 : at]):
            if word not in ("sudo", "container"):
                made.note(word, "it is of the command, and not of the container")
        found.append(made)
    return found, notes


def _verb(typed: Sequence[str]) -> tuple[int, int]:
    """Indices of docker or podman, and of its verb run or create; 0 where it has another one."""
    tool = next((index for index, word in enumerate(typed) if word in ("docker", "podman")), -1)
    after_option = False
    for index in range(tool + 1, len(typed)):
        word = typed[index]
        if word in ("run", "create"):
            return tool, index if tool >= 0 else 0
        if not (word.startswith("-") or after_option or word == "container"):
            break
        after_option = word.startswith("-")
    return tool, 0


def container(arguments: Sequence[str], place: Place, name: str) -> Resource:
    """The container of a run's arguments."""
    line = parsed(arguments)
    made = Resource("Container", name)
    given = {option for _, option, _ in line.options}
    image, *args = line.rest or [""]
    take(made, place, "image", OPTIONS["image"], image)
    for shown, option, value in line.options:
        if option == "name":
            made.name = value
            continue
        take(made, place, shown, OPTIONS.get(option), value, why=NOT_YET.get(option, ""))
    attached(made)
    if args:
        made.set("args", args)
    if not given & {"restart"}:
        made.note("restart", DEFAULT_RESTART)
    if "name" not in given and image:
        made.name = re.sub(r"[^A-Za-z0-9_.-]", "-", image.rpartition("/")[2].partition(":")[0])
        made.note("name", "it had none, and is named after its image")
    return made


def podman_args(resource: Resource, place: Place, text: str) -> None:
    """Options of `podman run` in a quadlet's PodmanArgs=."""
    line = parsed(words(text))
    for shown, option, value in line.options:
        take(resource, place, shown, OPTIONS.get(option), value, why=NOT_YET.get(option, ""))
    for word in line.rest:
        resource.note(word, "it is no option")
