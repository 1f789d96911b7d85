"""Reads with an account's full rights, for devices without credentials of their own.

Every read goes to the stream's leader. It works with any bucket, however that was made.
"""

from __future__ import annotations

from harmony_agent.adapters.nats.api import Api
from harmony_agent.adapters.nats.connection import NatsConnection
from harmony_agent.topology.control_plane import Entry, Unreachable
from scores.jetstream import API, NO_MESSAGE, ApiError, kv_stream, kv_subject, stored
from scores.keys import ACTUAL, DESIRED


class FullAccess:
    """`link.Access` by JetStream's own API."""

    def __init__(self, connection: NatsConnection, device: str) -> None:
        self._connection = connection
        self._device = device
        self.api = Api(connection, API)

    async def get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value of `key`, which may hold wildcards."""
        try:
            request = {"last_by_subj": kv_subject(bucket, key)}
            answer = await self.api.call(f"STREAM.MSG.GET.{kv_stream(bucket)}", request)
        except ApiError as error:
            if error.code == NO_MESSAGE:
                return None
            raise Unreachable(f"NATS refused to read {bucket}: {error}") from error
        found = stored(answer["message"])
        return Entry(
            found.subject.removeprefix(kv_subject(bucket, "")), found.value, found.sequence
        )

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """Read the last entry that was written to any of `keys`."""
        return await self.get(bucket, keys)

    async def names(self) -> set[str]:
        """List all names: the server counts each subject that matches."""
        return await self._names(DESIRED)

    async def told(self) -> set[str]:
        """List the names that stand in ``actual-state``."""
        return await self._names(ACTUAL)

    async def _names(self, bucket: str) -> set[str]:
        prefix = kv_subject(bucket, f"{self._device}.")
        try:
            info = await self.api.call(
                f"STREAM.INFO.{kv_stream(bucket)}", {"subjects_filter": f"{prefix}*"}
            )
        except ApiError as error:
            raise Unreachable(f"NATS refused to look at {bucket}: {error}") from error
        return {subject.removeprefix(prefix) for subject in info["state"].get("subjects") or ()}

    def written(self, bucket: str, key: str, revision: int) -> None:
        """Nothing to note: `birth` asks the server."""

    async def birth(self, bucket: str) -> str:
        """Read the bucket's time of creation, as its server writes it."""
        try:
            return str((await self.api.call(f"STREAM.INFO.{kv_stream(bucket)}", None))["created"])
        except ApiError as error:
            raise Unreachable(f"NATS refused to look at {bucket}: {error}") from error
