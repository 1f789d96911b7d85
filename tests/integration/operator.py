"""Runs the command `harmony` for integration tests: in this process, or as one of its own where two
shall race.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from harmony_fleet.cli import main
from harmony_fleet.output.forms import FORMS
from tests.natsserver import NatsServer


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error that standard error holds as JSON."""
        return json.loads(self.err[self.err.index("{") :])["error"]


def as_described(words: Sequence[str], out: str, err: str) -> None:
    """Hold what a command printed as JSON to its form, of which the schema is made."""
    if "json" not in words:
        return
    command = " ".join(itertools.takewhile(lambda word: not word.startswith("-"), words[:3]))
    if "--dry-run" in words and f"{command} --dry-run" in FORMS:
        command += " --dry-run"
    while command and command not in FORMS:  # an argument of it
        command = command.rpartition(" ")[0]
    for text in out.splitlines() if command == "events" else [out] if out.strip() else []:
        if command:
            TypeAdapter(FORMS[command]).validate_json(text)
    if err.startswith("{"):
        TypeAdapter(FORMS["error"]).validate_json(err)


class Operator:
    """An operator with a home (and so a lineage) of their own at one server."""

    def __init__(self, server: NatsServer, home: Path) -> None:
        self.server = server
        self.home = home
        self.folder = home / "files"
        self.folder.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        """What the command finds around it."""
        return {
            "COLUMNS": "",  # a test runner's own width is no reader's
            "HARMONY_SERVER": self.server.url,
            "HARMONY_HOME": str(self.home),
        }

    async def __call__(self, *words: str) -> Ran:
        """Run it in this process, one at a time."""
        return await asyncio.to_thread(self._run, words)

    def _run(self, words: tuple[str, ...]) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment().items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(words)
        as_described(words, out.getvalue(), err.getvalue())
        return Ran(code, out.getvalue(), err.getvalue())

    async def process(self, *words: str) -> asyncio.subprocess.Process:
        """Start it as a process of its own."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys; from harmony_fleet.cli import main; sys.exit(main())",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | self.environment(),
        )

    def file(self, name: str, *scores: dict[str, Any], **fields: Any) -> str:
        """A manifest of these Scores as a JSON file (which is YAML too, and named so)."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"deployment": name, "scores": list(scores), **fields}))
        return str(path)


def a_file(name: str = "motd", content: str = "hi\n", **fields: Any) -> dict[str, Any]:
    """A File as an author writes it."""
    return {"kind": "File", "name": name, "path": f"/srv/{name}", "content": content, **fields}
