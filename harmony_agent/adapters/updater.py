"""The root updater over its Unix socket: one connection for each question, one JSON line each way.

Imports the protocol's models from `harmony_updater.protocol` and nothing else of it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import anyio
from pydantic import ValidationError

from harmony_agent.core.errors import Transient
from harmony_agent.topology.updater import Ask as AskFor
from harmony_agent.topology.updater import Attempt, Offer, UpdaterRefused
from harmony_updater.protocol import (
    LINE_LIMIT,
    Answer,
    Ask,
    Capabilities,
    Status,
    UpgradeRequest,
    encode,
)
from scores.status import UpgradeDetail

TIMEOUT: Final = 10.0
"""Seconds for one answer; the updater answers from its journal, never after apt."""


class SocketUpdater:
    """`topology.updater.Updater` over a socket path."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def capabilities(self) -> Offer:
        """Ask for the offered operations."""
        answer = await self._ask(Ask(v=1, op="capabilities"))
        if not isinstance(answer, Capabilities):
            raise self._unavailable("it answered something else than its capabilities")
        return Offer(answer.protocol, answer.operations)

    async def status(self, attempt_id: str) -> Attempt | None:
        """Ask for the state of an attempt."""
        try:
            return self._attempt(await self._ask(Ask(v=1, op="status", attemptId=attempt_id)))
        except UpdaterRefused as refused:
            if refused.code == "unknown-attempt":
                return None
            raise

    async def request(self, ask: AskFor) -> Attempt:
        """Ask for the upgrade."""
        request = UpgradeRequest(
            attemptId=ask.attempt_id,
            runUid=ask.run_uid,
            deviceId=ask.device_id,
            expiresAt=ask.expires_at,
        )
        return self._attempt(await self._ask(Ask(v=1, op="AptFullUpgradeV1", request=request)))

    def _attempt(self, answer: Status | Capabilities) -> Attempt:
        if not isinstance(answer, Status):
            raise self._unavailable("it answered something else than a status")
        detail = UpgradeDetail.model_validate(answer.model_dump(mode="json"))
        return Attempt(detail, durable=answer.startedAt is not None)

    async def _ask(self, ask: Ask) -> Status | Capabilities:
        try:
            with anyio.fail_after(TIMEOUT):
                line = await self._exchange(encode(ask))
        except TimeoutError:
            raise self._unavailable(f"no answer within {TIMEOUT:.0f} s") from None
        except (OSError, ValueError) as error:
            raise self._unavailable(str(error) or type(error).__name__) from error
        if not line.endswith(b"\n"):
            raise self._unavailable("it hung up without an answer: its own log says why")
        try:
            answer = Answer.model_validate_json(line)
        except ValidationError:
            raise self._unavailable("its answer can't be read: is it of another version?") from None
        if answer.ok and answer.status is not None:
            return answer.status
        error_ = answer.error or {"code": "", "message": ""}
        raise UpdaterRefused(error_.get("code", ""), error_.get("message", ""))

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=LINE_LIMIT + 1)
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()

    def _unavailable(self, cause: str) -> Transient:
        message = f"cannot ask the updater at {self._path}: {cause}. Is harmony-updater installed and its socket active?"
        return Transient("UpdaterUnavailable", message, delay=10, phase="Blocked")
