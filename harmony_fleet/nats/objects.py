"""A NATS object store for the operator's side: put, list, remove, check; chunk by chunk.

An object is its chunks, and a description that names them. A description is written by
compare-and-set once the chunks are stored, and old chunks go after that. So whatever cuts this
leaves the old object or the new one, and perhaps chunks that no description names.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Final

from harmony_fleet.errors import Conflict, DeviceFailed, Unreachable
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.connection import Connection, NoResponders
from scores.jetstream import (
    NO_MESSAGE,
    NO_STREAM,
    STREAM_EXISTS,
    WRONG_SEQUENCE,
    ApiError,
    Stored,
    answered,
    expecting,
    object_chunks,
    object_meta,
    object_stream,
    stored,
)

_CHUNK: Final = 128 * 1024
_HEADROOM: Final = 512
_ABANDONED: Final = timedelta(hours=1)
"""Age of the last chunk that no description names: nobody writes that object any more."""


@dataclass(frozen=True, slots=True)
class Object:
    """One object. `digest` is as a Score spells it; "" where the description holds another."""

    name: str
    size: int
    digest: str
    nuid: str
    chunks: int
    revision: int


class Objects:
    """The object store `bucket`."""

    def __init__(self, connection: Connection, bucket: str) -> None:
        self._nats = connection
        self.bucket = bucket
        self._stream = object_stream(bucket)

    async def ensure(self, replicas: int) -> None:
        """Make it if it is missing."""
        config = {
            "name": self._stream,
            "subjects": [object_chunks(self.bucket, ">"), f"$O.{self.bucket}.M.>"],
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "allow_direct": True,
            "allow_rollup_hdrs": True,
        }
        try:
            await self._nats.api(f"STREAM.CREATE.{self._stream}", config)
        except ApiError as error:
            if error.code != STREAM_EXISTS:
                raise self._failed("make", error) from None

    async def get(self, name: str) -> tuple[Object | None, int]:
        """The object, and the revision of its description: 0 where there never was one."""
        found = await self._message({"last_by_subj": object_meta(self.bucket, name)})
        return (None, 0) if found is None else (_object(found), found.sequence)

    async def all(self) -> list[Object]:
        """Every object, by name."""
        subjects = await self._subjects(f"$O.{self.bucket}.M.>")
        found = await gather_bounded(
            lambda subject: self._message({"last_by_subj": subject}), subjects
        )
        objects = (_object(message) for message in found if message is not None)
        return sorted((one for one in objects if one is not None), key=lambda one: one.name)

    async def put(self, name: str, file: BinaryIO, revision: int, old: Object | None) -> Object:
        """Store what `file` holds under `name`, whose description is at `revision`.

        Raises Conflict where somebody else put one meanwhile; OSError.
        """
        nuid = secrets.token_hex(11)
        size = chunks = 0
        sha, most = hashlib.sha256(), min(_CHUNK, self._nats.max_payload - _HEADROOM)
        try:
            for part in _parts(file, most):
                await self._publish(object_chunks(self.bucket, nuid), part)
                sha.update(part)
                size, chunks = size + len(part), chunks + 1
            made = Object(name, size, f"sha256:{sha.hexdigest()}", nuid, chunks, 0)
            await self.check(made)
            await self._describe(made, sha.digest(), revision)
        except BaseException:
            with contextlib.suppress(Unreachable):
                await self._purge(object_chunks(self.bucket, nuid))
            raise
        if old is not None:
            await self._purge(object_chunks(self.bucket, old.nuid))
        return made

    async def check(self, found: Object) -> None:
        """Read it back. Raises DeviceFailed where it isn't what its description says."""
        sha, size = hashlib.sha256(), 0
        async for part in self._read(found):
            sha.update(part)
            size += len(part)
        if (size, f"sha256:{sha.hexdigest()}") != (found.size, found.digest):
            raise DeviceFailed(
                "DigestMismatch",
                f"cannot use object {found.name} of {self.bucket}: its content isn't what was put",
                f"put it again: harmony object put FILE --name {found.name}",
            )

    async def remove(self, found: Object) -> None:
        """Remove it. Raises Conflict where somebody else wrote it meanwhile."""
        value = {"name": found.name, "bucket": self.bucket, "nuid": found.nuid, "deleted": True}
        value |= {"size": 0, "chunks": 0, "digest": "", "options": {}}
        await self._write_meta(found.name, value, found.revision)
        await self._purge(object_chunks(self.bucket, found.nuid))

    async def abandoned(self, now: datetime) -> list[str]:
        """Subjects of chunks that no description names, and that nobody writes any more."""
        found: list[str] = []
        known = {object_chunks(self.bucket, one.nuid) for one in await self.all()}
        for subject in await self._subjects(object_chunks(self.bucket, ">")):
            last = None if subject in known else await self._message({"last_by_subj": subject})
            if last is not None and last.created and now - last.created > _ABANDONED:
                found.append(subject)
        return found

    async def purge(self, subjects: Iterable[str]) -> None:
        """Take such chunks away."""
        for subject in subjects:
            await self._purge(subject)

    @staticmethod
    def measure(file: BinaryIO) -> tuple[str, int]:
        """Digest and size of what `file` holds."""
        sha, size = hashlib.sha256(), 0
        for part in _parts(file, _CHUNK):
            sha.update(part)
            size += len(part)
        return f"sha256:{sha.hexdigest()}", size

    async def _read(self, found: Object) -> AsyncIterator[bytes]:
        sequence = 1
        for _ in range(found.chunks):
            subject = object_chunks(self.bucket, found.nuid)
            chunk = await self._message({"seq": sequence, "next_by_subj": subject})
            if chunk is None:
                return
            sequence = chunk.sequence + 1
            yield chunk.value or b""

    async def _describe(self, made: Object, sha: bytes, revision: int) -> None:
        digest = base64.urlsafe_b64encode(sha).decode()
        value = {
            "name": made.name,
            "bucket": self.bucket,
            "nuid": made.nuid,
            "size": made.size,
            "chunks": made.chunks,
            "digest": f"SHA-256={digest}",
            "options": {"max_chunk_size": _CHUNK},
        }
        await self._write_meta(made.name, value, revision)

    async def _write_meta(self, name: str, value: dict[str, Any], revision: int) -> None:
        headers = {"Nats-Rollup": "sub", **expecting(revision)}
        await self._publish(object_meta(self.bucket, name), json.dumps(value).encode(), headers)

    async def _publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> None:
        try:
            answered(await self._nats.request(subject, data, headers))
        except NoResponders:
            raise self._failed("write", "it isn't there") from None
        except ApiError as error:
            if error.code in WRONG_SEQUENCE:
                raise Conflict(
                    "Conflict",
                    f"cannot write an object of {self.bucket}: somebody else wrote it meanwhile",
                    "look at it with harmony object list, then try again",
                ) from None
            raise self._failed("write", error) from None

    async def _purge(self, subject: str) -> None:
        try:
            await self._nats.api(f"STREAM.PURGE.{self._stream}", {"filter": subject})
        except ApiError as error:
            raise self._failed("write", error) from None

    async def _message(self, request: dict[str, Any]) -> Stored | None:
        try:
            answer = await self._nats.api(f"STREAM.MSG.GET.{self._stream}", request)
        except ApiError as error:
            if error.code in (NO_MESSAGE, NO_STREAM):
                return None
            raise self._failed("read", error) from None
        return stored(answer["message"])

    async def _subjects(self, pattern: str) -> list[str]:
        """Every subject of the stream below `pattern`; no more come with one answer than it holds."""
        found: list[str] = []
        while True:
            request = {"subjects_filter": pattern, "offset": len(found)}
            try:
                info = await self._nats.api(f"STREAM.INFO.{self._stream}", request)
            except ApiError as error:
                if error.code == NO_STREAM:
                    return []
                raise self._failed("read", error) from None
            page = list(info["state"].get("subjects") or {})
            found += page
            if not page or len(found) >= int(info.get("total") or 0):
                return sorted(found)

    def _failed(self, verb: str, why: object) -> Unreachable:
        return Unreachable(
            "ObjectStoreFailed",
            f"cannot {verb} the object store {self.bucket}: {why}",
            "see the server's log and its limits",
        )


def _parts(file: BinaryIO, most: int) -> Iterator[bytes]:
    while part := file.read(most):
        yield part


def _object(message: Stored) -> Object | None:
    """Decode a description; None for an object that was removed, and for what is no description."""
    try:
        value = json.loads(message.value or b"{}")
        if not value or value.get("deleted"):
            return None
        kind, _, text = str(value.get("digest") or "").partition("=")
        sha = base64.urlsafe_b64decode(text) if kind == "SHA-256" else b""
        return Object(
            str(value["name"]),
            int(value.get("size") or 0),
            f"sha256:{sha.hex()}" if sha else "",
            str(value["nuid"]),
            int(value.get("chunks") or 0),
            message.sequence,
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
