"""The root updater as it waits, for its memory: the program itself, with its places in a folder of
its own.

python -m tests.bench.updater FOLDER
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from harmony_updater import __main__ as program


def main(folder: str) -> None:
    place = Path(folder)
    settings = program.Settings.model_validate({"device_id": "pi-01"})
    updater = program.Updater(settings, str(place / "state"), program.Host())
    listener = program.listen(str(place / "updater.sock"), os.getgid())
    threading.Thread(
        target=program.serve, args=(listener, updater, os.getgid()), daemon=True
    ).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
