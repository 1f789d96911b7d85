"""The command line, and the runner of apt.

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
from importlib.metadata import version
from typing import IO

from harmony_updater.apt_output import without_passwords
from harmony_updater.host import Host
from harmony_updater.journal import JournalError, write_durably
from harmony_updater.server import listen, serve
from harmony_updater.upgrade import Settings, Updater


def run_apt(updater: Updater, attempt: str) -> int:
    """In a unit of its own: begin apt's upgrade, once at most, and note durably how it ended."""
    record, path = updater.journal.load(attempt), f"{updater.journal.folder}/{attempt}"
    turn = record and record.phase == "applying" and record.bootIdBefore == updater.host.boot_id()
    if not turn or os.path.exists(f"{path}.exit"):
        return 5
    write_durably(f"{path}.exit", "begun")
    process = updater.host.start("upgrade")
    log = threading.Thread(
        target=copy, args=(process.stdout, f"{path}.log", updater.settings.log_bytes), daemon=True
    )
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
    """Keep the end of the output, `limit` bytes in two files; apt doesn't wait for room on the disk."""
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415  # what waits holds none of it

    log = RotatingFileHandler(path, maxBytes=limit // 2, backupCount=1, delay=True)
    while line := output.readline(65_536):
        log.emit(
            logging.makeLogRecord(
                {"msg": without_passwords(line.decode(errors="replace").removesuffix("\n"))}
            )
        )
    log.close()
    output.close()


def main() -> int:
    """Parse the command line and run it."""
    parser = argparse.ArgumentParser(
        prog="harmony-updater", description="Upgrades this device's packages, as root."
    )
    parser.add_argument(
        "command", choices=("serve", "status", "clear-repair", "version", "run-apt")
    )
    parser.add_argument("of", nargs="?", help="the attempt, of run-apt, which is the updater's own")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if asked.command == "version":
        sys.stdout.write(version("harmony-device") + "\n")
        return 0
    try:
        with open("/etc/harmony/updater.toml", "rb") as file:
            settings = Settings.model_validate(tomllib.load(file))
        updater = Updater(settings, "/var/lib/harmony-fleet-updater", Host())
        records = updater.journal.all()
        if asked.command == "status":
            sys.stdout.writelines(record.model_dump_json() + "\n" for record in records)
            return int(
                any(
                    record.phase == "repair-required" and not record.clearedAt for record in records
                )
            )
        if asked.command == "clear-repair":
            hindrances = updater.clear_repair()
            sys.stderr.writelines(f"cannot clear: {line}\n" for line in hindrances)
            return 5 if hindrances else 0
        if asked.command == "run-apt":
            return run_apt(updater, asked.of)
        group = grp.getgrnam("fleet-agent").gr_gid
        listener = listen("/run/harmony-updater/updater.sock", group)
        threading.Thread(target=serve, args=(listener, updater, group), daemon=True).start()
        return updater.run()
    except (
        JournalError,
        OSError,
        KeyError,
        ValueError,
    ) as error:  # ValueError: of the configuration
        sys.stderr.write(f"cannot run harmony-updater: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
