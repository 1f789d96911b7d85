"""Read the command line and run it; run apt, when systemd starts us for that.

Exit codes: 0 done, 1 repair needed, 2 wrong usage or state, 5 refused.
"""

import argparse
import grp
import logging
import os
import sys
import threading
import time
import tomllib
from typing import IO

from harmony_updater import __version__
from harmony_updater.apt_output import without_passwords
from harmony_updater.host import STATE, Host
from harmony_updater.journal import JournalError, write_durably
from harmony_updater.server import listen, serve
from harmony_updater.upgrade import Settings, Updater

CONFIGURATION = "/etc/harmony/updater.toml"
SOCKET = "/run/harmony-updater/updater.sock"
GROUP = "fleet-agent"


def main() -> int:
    """Run one command."""
    asked = _arguments()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if asked.command == "version":
        sys.stdout.write(__version__ + "\n")
        return 0
    try:
        updater = _updater()
        match asked.command:
            case "status":
                return show_status(updater)
            case "clear-repair":
                return clear_repair(updater)
            case "run-apt":
                return run_apt(updater, asked.of)
            case _:
                return run(updater)
    except (JournalError, OSError, KeyError, ValueError) as error:
        # ValueError: the configuration isn't valid. KeyError: there is no such group.
        sys.stderr.write(f"cannot run harmony-updater: {error}\n")
        return 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="harmony-updater",
        description="Upgrades this device's packages, as root.",
    )
    commands = ("serve", "status", "clear-repair", "version", "run-apt")
    parser.add_argument("command", choices=commands)
    parser.add_argument("of", nargs="?", help="the attempt, of run-apt, which is the updater's own")
    return parser.parse_args()


def _updater() -> Updater:
    """Make the updater that the configuration describes, if its journals can be trusted."""
    with open(CONFIGURATION, "rb") as file:
        settings = Settings.model_validate(tomllib.load(file))
    updater = Updater(settings, STATE, Host())
    updater.journal.all()
    return updater


def show_status(updater: Updater) -> int:
    """Print every attempt, one JSON object a line; 1 while one needs repair."""
    records = updater.journal.all()
    sys.stdout.writelines(f"{record.model_dump_json()}\n" for record in records)
    return 1 if any(record.needs_repair for record in records) else 0


def clear_repair(updater: Updater) -> int:
    """Release the device, when its packages are healthy again."""
    hindrances = updater.clear_repair()
    sys.stderr.writelines(f"cannot clear: {line}\n" for line in hindrances)
    return 5 if hindrances else 0


def run(updater: Updater) -> int:
    """Serve the socket and work on attempts, for ever."""
    group = grp.getgrnam(GROUP).gr_gid
    listener = listen(SOCKET, group)
    threading.Thread(target=serve, args=(listener, updater, group), daemon=True).start()
    return updater.run()


def run_apt(updater: Updater, attempt: str) -> int:
    """Begin apt's upgrade, once at most, in the unit of its own, and note durably how it ended."""
    record = updater.journal.load(attempt)
    path = f"{updater.journal.folder}/{attempt}"
    turn = (
        record is not None
        and record.phase == "applying"
        and record.bootIdBefore == updater.host.boot_id()
    )
    if not turn or os.path.exists(f"{path}.exit"):
        return 5
    write_durably(f"{path}.exit", "begun")
    process = updater.host.start("upgrade")
    copied = (process.stdout, f"{path}.log", updater.settings.log_bytes)
    log = threading.Thread(target=copy, args=copied, daemon=True)
    log.start()
    code = abs(process.wait())
    log.join(5)  # what apt left running may hold the pipe open
    while True:
        try:
            write_durably(f"{path}.exit", str(code))
        except OSError:  # no room: the updater waits as long as this runs
            time.sleep(5)
        else:
            return code


def copy(output: IO[bytes], path: str, limit: int) -> None:
    """Keep the end of the output, `limit` bytes in two files; apt doesn't wait for the disk."""
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415  # only the runner needs it

    log = RotatingFileHandler(path, maxBytes=limit // 2, backupCount=1, delay=True)
    while line := output.readline(65_536):
        text = without_passwords(line.decode(errors="replace").removesuffix("\n"))
        log.emit(logging.makeLogRecord({"msg": text}))
    log.close()
    output.close()


if __name__ == "__main__":
    sys.exit(main())
