"""The client library, hardened against any subject or header that a device can write.

Permissions name the first token of a key, and any bytes may follow. The library takes a vertical
tab for the end of a subject. It ends the connection over bytes that are not UTF-8. One such key
would keep everybody from listing the bucket.
"""

from __future__ import annotations

import re
from typing import Any, Final

from nats.aio.msg import Msg
from nats.protocol import parser

from harmony_nats.channel import ChannelClient

_WORD: Final = rb"([^ \t\r\n]+)"
# As the server splits its lines. The library's own patterns take more for white space.
parser.MSG_RE = re.compile(
    rb"\AMSG[ \t]+%b[ \t]+%b[ \t]+(%b[ \t]+)?([0-9]+)\r\n" % (_WORD, _WORD, _WORD)
)
parser.HMSG_RE = re.compile(
    rb"\AHMSG[ \t]+%b[ \t]+%b[ \t]+(%b[ \t]+)?([0-9]+)[ \t]+([0-9]+)\r\n" % (_WORD, _WORD, _WORD)
)


class TolerantClient(ChannelClient):
    """Subjects become text of one line. Headers that can't be read count as missing."""

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except Exception:  # the library's parser assumes the library's writer
            return {}
        return found

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any
    ) -> Msg:
        spelt = plain_subject(subject).encode()
        made: Msg = super()._build_message(sid, spelt, reply, data, headers)
        return made


def plain_subject(subject: bytes) -> str:
    r"""As text in which nothing is for a terminal: ``$KV.actual-state.pi-01.\x1b[31m``."""
    text = bytes(subject).decode("utf-8", "backslashreplace")
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
