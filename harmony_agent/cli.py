"""The command ``harmony-agent``: run, check, status, plan, join, version. Prints for people, exits
by the contract.

argparse and plain text, and each verb imports what it needs, so that the running agent stays small.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio

from harmony_agent import __version__
from harmony_agent.adapters import sd_notify, status_socket
from harmony_agent.adapters.host import AlreadyRunning
from harmony_agent.adapters.ledger.ledger import LedgerUnreadable, read_only
from harmony_agent.settings import DEFAULT_PATH, InvalidSettings, Settings, load
from scores.names import parse_time

OK: Final = 0
NOT_CONVERGED: Final = 1
INVALID: Final = 2
UNREACHABLE: Final = 4

_EPILOG: Final = """\
exit codes: 0 done, or converged; 1 not converged; 2 usage or an invalid input;
4 not reached in time; 5 refused by a guard, or a capability is missing

examples:
  harmony-agent check                    what is missing on this machine, and how to mend it
  harmony-agent run --config agent.toml  run in the foreground
  harmony-agent status                   how each resource is, from the running agent
  harmony-agent plan manifest.json       what would be done here for a manifest; does nothing
  harmony-agent join pi-01.bundle        become a fleet's device, as root
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="harmony-agent",
        description="Keeps this device as its manifests say.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = top.add_subparsers(
        dest="verb", required=True, metavar="run|check|status|plan|join|version"
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", help=f"TOML; else $HARMONY_AGENT_CONFIG, else {DEFAULT_PATH}")
    run = verbs.add_parser("run", parents=[common], help="run until stopped")
    run.add_argument("--verbose", action="store_true", help="log each step")
    verbs.add_parser(
        "check", parents=[common], help="say what is missing on this machine and how to mend it"
    )
    status = verbs.add_parser("status", parents=[common], help="say how each resource is")
    status.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table")
    planned = verbs.add_parser(
        "plan", parents=[common], help="say what would be done here; does nothing"
    )
    planned.add_argument(
        "manifest", nargs="?", help="a manifest in JSON; without it: what was accepted last"
    )
    joined = verbs.add_parser(
        "join", help="become the device of a bundle, as root; may be run again"
    )
    joined.add_argument("bundle", help="as harmony device enroll wrote it")
    joined.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for the connection (60)"
    )
    joined.add_argument(
        "--replace", action="store_true", help="also where this is another device already"
    )
    verbs.add_parser("version", help="print the version")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """The console script."""
    arguments = parser().parse_args(argv)
    if arguments.verb in ("version", "join"):
        return _unconfigured(arguments)
    try:
        settings = load(arguments.config, os.environ)
    except InvalidSettings as error:
        print(f"harmony-agent: {error}", file=sys.stderr)
        return INVALID
    try:
        return _dispatch(arguments, settings)
    except (AlreadyRunning, LedgerUnreadable) as error:
        print(f"harmony-agent: {error}", file=sys.stderr)
        sd_notify.notify(f"STATUS={error}")
        return NOT_CONVERGED
    except (OSError, sqlite3.Error) as error:
        print(f"harmony-agent: cannot {arguments.verb}: {error}", file=sys.stderr)
        sd_notify.notify(f"STATUS=cannot {arguments.verb}: {error}")
        return NOT_CONVERGED
    except KeyboardInterrupt:
        return 130


def _unconfigured(arguments: argparse.Namespace) -> int:
    """Run a verb that needs no configuration."""
    if arguments.verb == "join":
        from harmony_agent.commands import join

        return join.run(arguments.bundle, seconds=arguments.wait, replace=arguments.replace)
    print(__version__)
    return OK


def _dispatch(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.verb == "run":
        from harmony_agent import app

        sd_notify.set_up_logging(settings.agent.device_id, verbose=arguments.verbose)
        anyio.run(app.run, settings)
        return OK
    if arguments.verb == "check":
        from harmony_agent.commands import check

        return anyio.run(check.run, settings)
    if arguments.verb == "plan":
        from harmony_agent.commands import plan

        return anyio.run(plan.run, settings, arguments.manifest)
    return _status(settings, arguments.output)


def _status(settings: Settings, output: str) -> int:
    state_dir = Path(settings.agent.state_dir)
    try:
        told = status_socket.ask(state_dir)
    except OSError:
        return _stopped(state_dir)
    statuses, lost = told["statuses"], told.get("lost", "")
    if lost:
        print(
            f"harmony-agent: desired state can't be read ({lost}): this is what was accepted",
            file=sys.stderr,
        )
    if output == "json":
        print(json.dumps(statuses, indent=2))
    elif output == "yaml":
        from harmony_agent.commands.yaml_text import to_yaml

        print(to_yaml(statuses))
    else:
        print(_table(statuses))
    converged = all(status["phase"] in ("Converged", "Removed") for status in statuses)
    if converged and lost and told["connected"]:  # without a connection a device is no worse for it
        return UNREACHABLE
    return OK if converged else NOT_CONVERGED


def _stopped(state_dir: Path) -> int:
    """No agent answers: say what is known all the same."""
    print(
        f"harmony-agent: no agent runs in {state_dir}: start it with systemctl, or with harmony-agent run"
    )
    if (state_dir / "manifests.db").exists():
        manifests, records = read_only(state_dir)
        for stored in manifests:
            owned = sum(1 for record in records if record.deployment == stored.deployment)
            print(
                f"  {stored.deployment}: generation {stored.generation} was accepted, {owned} resources are owned"
            )
    return UNREACHABLE


def _local(time: str) -> str:
    """A time of the wire as the clock here shows it ($TZ), with its distance from UTC."""
    return parse_time(time).astimezone().isoformat(" ", "seconds")


def _table(statuses: list[dict[str, object]]) -> str:
    rows = [("RESOURCE", "PHASE", "GENERATION", "SINCE", "REASON")]
    for status in statuses:
        reason = f"{status['reason']} {status['message']}".strip()
        paused = status.get("paused")
        if isinstance(paused, dict):
            reason = f"paused until {_local(paused['until'])}; {reason}".rstrip("; ")
        rows.append(
            (
                str(status["deployment"]),
                str(status["phase"]),
                str(status["generation"] or "-"),
                "",
                reason,
            )
        )
        resources = status["resources"]
        for key, one in resources.items() if isinstance(resources, dict) else ():
            reason = f"{one['reason']} {one['message']}".strip()
            rows.append(
                (f"  {key}", one["phase"], str(one["generation"]), _local(one["since"]), reason)
            )
    if len(rows) == 1:
        return "nothing is wanted of this device yet"
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]
        ).rstrip()
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
