"""`harmony fleet key new`, `list` and `retire`. They need no NATS, and show no private half."""

from __future__ import annotations

from typing import Any

from harmony_fleet.commands.common import Common, note, write
from harmony_fleet.errors import ExitCode
from harmony_fleet.manifests import signing_keys
from harmony_fleet.manifests.signing import Key, State
from harmony_fleet.output import render
from harmony_fleet.output.render import Output, plain


def new(common: Common) -> ExitCode:
    """`harmony fleet key new`."""
    home = common.home()
    made = signing_keys.new(home)
    if common.output is not Output.TABLE:
        write(_told(made), common.output)
        return ExitCode.DONE
    note(
        f"made key {made.id}; its private half is in {signing_keys.keys_folder(home)}: keep a copy of it off this machine"
    )
    note(f"devices trust it once this stands in [trust] keys of their configuration: {made.spelt}")
    note("harmony fleet apply signs with it")
    return ExitCode.DONE


def show(common: Common) -> ExitCode:
    """`harmony fleet key list`."""
    found = signing_keys.all_keys(common.home())
    if common.output is not Output.TABLE:
        write([_told(key) for key in found], common.output)
    elif found:
        rows = [
            [
                plain(key.id),
                plain("signs" if key.state == "active" else "retired"),
                plain(key.spelt),
            ]
            for key in found
        ]
        render.grid(["KEY", "STATE", "AS DEVICES SPELL IT"], rows, render.out())
    else:
        note("no keys: nothing is signed; harmony fleet key new makes one")
    return ExitCode.DONE


def retire(common: Common, name: str, *, undo: bool) -> ExitCode:
    """`harmony fleet key retire`, and with `undo` the way back."""
    home = common.home()
    state: State = "active" if undo else "retired"
    changed = signing_keys.turn(home, name, state)
    if common.output is not Output.TABLE:
        write({"key": name, "state": state, "changed": changed}, common.output)
    elif not changed:
        note(f"nothing changed: {name} is {state} already")
    else:
        note(
            f"{name} {'signs again' if undo else 'signs no more'} from the next harmony fleet apply on"
        )
    return ExitCode.DONE


def _told(key: Key) -> dict[str, Any]:
    return {"key": key.id, "state": key.state, "public": key.spelt}
