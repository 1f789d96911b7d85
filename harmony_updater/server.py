"""The socket: who may speak, how long and how much, and what answer a line gets. It decides nothing about upgrades."""

import logging
import os
import socket
import struct
import threading
import time

from harmony_updater.journal import JournalError
from harmony_updater.protocol import LINE_LIMIT, Answer, Capabilities, Refused, decode, encode
from harmony_updater.work import Updater

_PEER_GROUPS = 59  # SO_PEERGROUPS: the groups as they were at connect, so that a pid that is used again can't mislead


def listen(path: str, group: int) -> socket.socket:
    """systemd's socket when it hands one over, else one of our own at `path`, root's and the group's."""
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        return socket.socket(fileno=3)
    if os.path.lexists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o117)
    listener.bind(path)
    os.chown(path, 0, group)
    listener.listen(64)
    return listener


def serve(listener: socket.socket, updater: Updater, group: int, most: int = 16, patience: float = 30) -> None:
    """Accept for ever: a thread a connection, `most` at once, the rest closed, and whoever idles `patience` seconds."""
    places = threading.BoundedSemaphore(most)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # no file descriptor is left
            time.sleep(0.1)
            continue
        connection.settimeout(patience)
        if places.acquire(blocking=False):
            threading.Thread(target=_talk, args=(connection, updater, group, places), daemon=True).start()
        else:
            connection.close()


def _talk(connection: socket.socket, updater: Updater, group: int, places: threading.BoundedSemaphore) -> None:
    try:
        with connection, connection.makefile("rb") as lines:
            admitted = _admitted(connection, group)
            if not admitted:
                connection.sendall(encode(Refused("forbidden", "cannot serve you: not in the socket's group").answer))
            while admitted and (line := lines.readline(LINE_LIMIT)):
                connection.sendall(encode(_answer(line, updater)))
                admitted = line.endswith(b"\n")
    except (OSError, JournalError) as error:
        logging.warning("cannot answer: %s", error)
    finally:
        places.release()


def _admitted(connection: socket.socket, group: int) -> bool:
    """Root, or a peer with the group as its own or a supplementary one."""
    _, user, own = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    others = connection.getsockopt(socket.SOL_SOCKET, _PEER_GROUPS, 1024)
    return user == 0 or group in {own, *struct.unpack(f"{len(others) // 4}I", others)}


def _answer(line: bytes, updater: Updater) -> Answer:
    try:
        ask = decode(line)
        if ask.request:
            return Answer(ok=True, status=updater.request(ask.request))
        status = updater.journal.load(ask.attemptId) if ask.attemptId else Capabilities()
    except Refused as refused:
        return refused.answer
    return Answer(ok=True, status=status) if status else Refused("unknown-attempt", "cannot find the attempt").answer
