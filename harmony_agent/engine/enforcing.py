"""Manifests enforced without being followed: what was accepted before this start, and what would be if it came."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harmony_agent.core.admission import Device, Keep, Kind, Last, judge
from harmony_agent.core.reconcile import Key
from harmony_agent.engine.book import Book
from harmony_agent.engine.glimpse import identity
from harmony_agent.engine.kind import KindInstance
from harmony_agent.engine.wanted import digests_of, generations_of
from harmony_agent.topology.control import Stored
from scores.manifest import InvalidManifest, WireManifest, bound, parse
from scores.signatures import content_digest

log = logging.getLogger(__name__)


def restore(book: Book, device: str, stored: Stored) -> tuple[Any, set[Key]] | None:
    """Enforce what was accepted before; its JSON value, and the keys to work on.

    None where it can't be read: then nothing of it is touched.
    """
    try:
        value = parse(stored.data)
        manifest = bound(value, device=device, deployment=stored.deployment)
    except InvalidManifest as error:
        message = f"the accepted manifest can't be read ({error.code}): nothing of it is touched"
        log.error("%s: %s", stored.deployment, message)  # noqa: TRY400  # what is wrong stands in the code
        book.deployment(stored.deployment).floor = Last(stored.lineage, stored.generation, stored.digest)
        book.keep(stored.deployment, Keep("Held", "ManifestUnreadable", message))
        return None
    # An agent of before took the digest of all bytes, signatures as well.
    return value, book.enforce(replace(stored, digest=content_digest(value)), manifest)


def view_of(book: Book, kinds: Mapping[str, Kind], name: str) -> Device:
    """Make the device as a manifest of the deployment `name` is judged by it."""
    taken: dict[str, str] = {}
    for key, record in book.records.items():
        if record.deployment != name:
            taken |= dict.fromkeys((str(key), *record.claims), record.deployment)
    for key, desired in book.desired.items():
        if desired.deployment != name:
            claims = kinds[key.kind].claims(desired.spec) if key.kind in kinds else ()
            taken |= dict.fromkeys((str(key), *claims), desired.deployment)
    return Device(kinds, book.has(name), taken)


def enforce_if_accepted(book: Book, kinds: Mapping[str, KindInstance], manifest: WireManifest) -> Keep | None:
    """Have a book whose ledger keeps nothing enforce `manifest`, or tell why the agent would refuse it."""
    data = manifest.canonical()
    last = book.deployment(manifest.deployment).last
    found = identity(last, parse(data), data)
    admission = {name: Kind(kind.admit, kind.claims) for name, kind in kinds.items()}
    verdict = judge(last, manifest, found, view_of(book, admission, manifest.deployment))
    if isinstance(verdict, Keep):
        return verdict
    digests = digests_of(manifest.scores, book.desired)
    generations = generations_of(digests, manifest.generation, book.desired)
    stored = Stored(manifest.deployment, manifest.lineage, manifest.generation, found, data, generations)
    book.enforce(stored, manifest, digests)
    return None
