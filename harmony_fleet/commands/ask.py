"""`harmony wait` and `logs`: commands that need a device to answer."""

from __future__ import annotations

import sys
from typing import Final

from rich.text import Text

from harmony_fleet.commands.common import Common, hint, note, run, write
from harmony_fleet.errors import DeviceFailed, ExitCode, InvalidInput, Unreachable
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Deployment, check_name, read_deployment, told
from harmony_fleet.observe.wait import Target, Verdict, target_of, wait_for
from harmony_fleet.output import render
from harmony_fleet.output.progress import Progress
from harmony_fleet.output.render import Output
from harmony_fleet.rollout.apply import gone
from scores.canonical import NotCanonical, canonical
from scores.keys import DeploymentKey, command_subject
from scores.manifest import SCORE_TYPES

_LOGS_SECONDS: Final = 10.0
_MAX_ANSWER: Final = 1024 * 1024


def wait(common: Common, key: DeploymentKey, seconds: float, *, removed: bool) -> ExitCode:
    """`harmony wait`."""
    check_name("device", key.device)
    check_name("deployment", key.deployment)
    progress = Progress(render.err(), live=common.output is Output.TABLE)

    async def work(store: Store) -> ExitCode:
        target = _target(await read_deployment(store, key), removed=removed)
        if target is None:
            verdict = Verdict(ExitCode.DONE, "Removed")
        else:
            progress.expect([target])
            with progress:
                verdict = (await wait_for(store, [target], seconds, progress.observe))[key]
        _show_verdict(common, key, verdict)
        return verdict.exit_code or ExitCode.DONE

    try:
        return run(common, work, seconds)
    except KeyboardInterrupt:
        note("stopped waiting: what was applied stays applied")
        return ExitCode.NOT_CONVERGED


def _target(found: Deployment, *, removed: bool) -> Target | None:
    """Return the target to wait for. None if it is removed already."""
    standing = found.desired.manifest
    if removed:
        if gone(found):
            return None
        return (
            target_of(standing)
            if standing and standing.removed
            else Target(found.key, "", 0, removed=True)
        )
    if standing is None:
        raise InvalidInput(
            "NotFound", f"cannot wait for {found.key}: it isn't desired", "harmony apply writes it"
        )
    if standing.removed:
        raise InvalidInput(
            "BeingRemoved", f"cannot wait for {found.key}: it is to be removed", "use --for removed"
        )
    return target_of(standing)


def _show_verdict(common: Common, key: DeploymentKey, verdict: Verdict) -> None:
    if common.output is not Output.TABLE:
        told = {"phase": verdict.phase, "reason": verdict.reason, "message": verdict.message}
        write({"device": key.device, "deployment": key.deployment, **told}, common.output)
        return
    words = ": ".join(
        part for part in (verdict.reason, verdict.message) if part and verdict.exit_code
    )
    line = Text.assemble(f"{key.device}/{key.deployment}  ", render.plain(verdict.phase))
    render.out().print(
        line.append(f"  {render.plain(words, '').plain}" if words else ""), soft_wrap=True
    )
    hint(verdict.hint)


def logs(common: Common, resource: str, device: str, lines: int) -> ExitCode:
    """`harmony logs`: asks the device's agent."""
    check_name("device", device)
    kind, slash, name = resource.partition("/")
    if kind not in SCORE_TYPES or not slash or not name:
        raise InvalidInput(
            "InvalidResourceKey",
            "cannot use the resource's name",
            "write it as Kind/name, as Container/web",
        )

    async def work(store: Store) -> ExitCode:
        question = canonical({"resource": resource, "lines": lines})
        answer = await store.ask(command_subject(device, "logs"), question, _LOGS_SECONDS)
        if answer is None:
            raise Unreachable(
                "DeviceSilent",
                f"cannot ask {device} for logs: it doesn't answer",
                "see whether it runs: harmony devices",
            )
        said = _log_lines(answer, device)
        if common.output is Output.TABLE:
            for line in said:
                sys.stdout.write(
                    "".join(char if char.isprintable() or char == "\t" else "?" for char in line)
                    + "\n"
                )
        else:
            write({"device": device, "resource": resource, "lines": said}, common.output)
        return ExitCode.DONE

    return run(common, work)


def _log_lines(answer: bytes, device: str) -> list[str]:
    """``{"ok":true,"lines":[…]}`` or ``{"ok":false,"error":{"code","message"}}``."""
    try:
        value = told(answer, _MAX_ANSWER)
    except NotCanonical:
        value = None
    if isinstance(value, dict) and value.get("ok") is True and isinstance(value.get("lines"), list):
        return [str(line) for line in value["lines"]]
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        raise DeviceFailed(
            "AnswerUnreadable",
            f"cannot read the answer of {device}",
            "is its agent of another version?",
        )
    code, message = str(error.get("code", "Unknown")), str(error.get("message", ""))
    raise DeviceFailed(
        code, f"{device} can't show the logs: {code}: {message}", "see harmony status --resources"
    )
