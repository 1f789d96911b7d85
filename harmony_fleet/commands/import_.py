"""`harmony import`: what others wrote, as a manifest."""

from __future__ import annotations

import os
import sys

from harmony_fleet.commands.common import Common, note
from harmony_fleet.errors import ExitCode
from harmony_fleet.importing.emit import HEAD
from harmony_fleet.importing.whole import Import, imported
from harmony_fleet.manifests.files import MAX_FILE


def import_(common: Common, wanted: Import) -> ExitCode:
    """Print the manifest; how much wasn't taken over is said beside it."""
    del common
    wanted.env = dict(os.environ)
    if "-" in wanted.files:
        wanted.stdin = sys.stdin.buffer.read(MAX_FILE + 1)
    text = imported(wanted)
    sys.stdout.write(text)
    odd = sum(1 for line in text.splitlines() if line.lstrip().startswith("#   "))
    if odd:
        note(f"{odd} remarks, as comments below {HEAD!r}")
    return ExitCode.DONE
