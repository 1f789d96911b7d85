"""NATS on the device: values by CAS, commands, objects.

`connection` keeps the connection, `control_plane` reads desired state.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import nats.errors
from nats.aio.msg import Msg

from harmony_agent.adapters.nats.api import Api
from harmony_agent.adapters.nats.connection import NatsConnection, NoResponders
from harmony_agent.adapters.nats.device_access import DeviceAccess, is_device
from harmony_agent.adapters.nats.full_access import FullAccess
from harmony_agent.adapters.nats.objects import fetch
from harmony_agent.core.errors import Transient
from harmony_agent.topology.control_plane import Conflict, Entry, Unreachable
from scores.jetstream import WRONG_SEQUENCE, ApiError, answered, expecting, kv_subject
from scores.keys import COMMANDS, command_subject, device_inbox


class Access(Protocol):
    """The form of reading. Each method reads the stream as it is now.

    Raises Unreachable, BucketMissing.
    """

    api: Api

    async def get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value. A delete or purge marker is an entry without data."""
        ...

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """Read the last entry that was written to any of `keys`. It needs no name."""
        ...

    async def told(self) -> set[str]:
        """Names of deployments that ``actual-state`` may show: all of them, and maybe more."""
        ...

    async def names(self) -> set[str]:
        """Find the names of this device's deployments."""
        ...

    def written(self, bucket: str, key: str, revision: int) -> None:
        """Note a write that was acknowledged."""
        ...

    async def birth(self, bucket: str) -> str:
        """Return another answer for another bucket of the same name."""
        ...


class NatsLink(NatsConnection):
    """The parts of `topology.ControlPlane` and `topology.ObjectStore` besides desired state."""

    def __init__(
        self,
        device: str,
        installation: str,
        servers: Sequence[str],
        *,
        credentials: str = "",
        tls_ca: str = "",
        insecure: bool = False,
    ) -> None:
        """`installation` tells two agents of one device id apart: it names the connection."""
        self.device = device
        name = f"agent-{device}-{hashlib.sha256(installation.encode()).hexdigest()[:8]}"
        own = is_device(credentials)
        inbox_prefix = device_inbox(device) if own else ""
        super().__init__(
            name,
            servers,
            credentials=credentials,
            tls_ca=tls_ca,
            insecure=insecure,
            inbox_prefix=inbox_prefix,
        )
        self.access: Access = (DeviceAccess if own else FullAccess)(self, device)
        """With the device's own credentials, or with an account's full rights."""

    # -- values

    async def get(self, bucket: str, key: str) -> Entry | None:
        """Read the newest value."""
        return await self.access.get(bucket, key)

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """Read the last entry that was written to any of `keys`."""
        return await self.access.newest(bucket, keys)

    async def told(self) -> set[str]:
        """Names of deployments that ``actual-state`` may show."""
        return await self.access.told()

    async def put(self, bucket: str, key: str, data: bytes, revision: int | None) -> int:
        """Publish one value, acknowledged by the stream."""
        headers = None if revision is None else expecting(revision)
        try:
            answer = answered((await self.ask(kv_subject(bucket, key), data, headers)).data)
        except NoResponders:
            await self.bucket_created_at(bucket)  # raises BucketMissing where that is why
            raise
        except ApiError as error:
            if error.code in WRONG_SEQUENCE:
                raise Conflict(f"{bucket} {key} was written by somebody else") from None
            raise Unreachable(f"NATS refused to write {bucket}: {error}") from None
        self.access.written(bucket, key, int(answer["seq"]))
        return int(answer["seq"])

    async def bucket_created_at(self, bucket: str) -> str:
        """Return another answer for another bucket of the same name."""
        return await self.access.birth(bucket)

    # -- commands

    async def serve(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Answer commands until cancelled, over one connection after the other.

        Each verb has its own subscription: slow logs hold up no ping.
        """

        async def arrived(message: Msg) -> None:
            if message.reply:
                verb = message.subject.rpartition(".")[2]
                reply = await answer(verb, message.data)
                with contextlib.suppress(nats.errors.Error, OSError):
                    await message.respond(reply)

        while True:
            changed = self._connection_changed
            if self.connected():
                with contextlib.suppress(Unreachable):
                    for verb in COMMANDS:
                        await self.subscribe(command_subject(self.device, verb), arrived)
            await changed.wait()

    # -- writes of others

    async def follow(self, bucket: str, heard: Callable[[str], None]) -> None:
        """Listen until cancelled, over one connection after the other."""
        prefix = kv_subject(bucket, f"{self.device}.")

        async def arrived(message: Msg) -> None:
            heard(message.subject.removeprefix(prefix))

        while True:
            changed = self._connection_changed
            if self.connected():
                with contextlib.suppress(Unreachable):
                    await self.subscribe(f"{prefix}*", arrived)
                heard("")
            await changed.wait()

    # -- objects

    async def fetch(
        self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Stream an object in its chunks."""
        if not self.connected():
            raise Transient(
                "Unreachable",
                f"cannot read object {name} of {bucket}: there is no connection to NATS",
            )
        await fetch(self.access.api, bucket, name, limit, write)
