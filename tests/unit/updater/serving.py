"""A program: the updater's server at an abstract socket, over a device in a directory. ROOT NAME
GROUP PATIENCE.
"""

import socket
import sys
import threading
from pathlib import Path

from harmony_updater.server import serve
from tests.unit.updater.world import World


def main() -> None:
    """Serve until killed."""
    root, name, group, patience = sys.argv[1:]
    updater = World(Path(root)).updater()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{name}")
    listener.listen(64)
    served = (listener, updater, int(group), 16, float(patience))
    threading.Thread(target=serve, args=served, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
