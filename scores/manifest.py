"""Manifest: what one deployment wants of one device; and how the bytes of one are read.

`Manifest` is what an author writes; `WireManifest` is the same with everything that the control
plane adds, and what stands in ``desired-state``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from scores.base import ACCEPTED, Model, Score, check_distinct, fault
from scores.by_kind import ByKind
from scores.canonical import NotCanonical, canonical, read
from scores.container import Container
from scores.file import File
from scores.names import MAX_GENERATION, DeploymentName, DeviceName, Lineage
from scores.network import Network
from scores.package import Package
from scores.session import Session
from scores.signatures import MAX_SIGNATURES, Signature
from scores.system_upgrade import SystemUpgrade
from scores.systemd_unit import SystemdUnit
from scores.volume import Volume

MAX_MANIFEST: Final = 1024 * 1024
"""Bytes of a manifest: what a NATS server carries by default."""
MAX_SCORES: Final = 1000
MAX_ERRORS: Final = 20
"""Field errors that one rejection names; a status stays small however bad the input was."""

AnyScore = Annotated[
    File | SystemdUnit | Container | SystemUpgrade | Session | Volume | Network | Package,
    ByKind(),
]
SCORE_TYPES: Final[Mapping[str, type[Score]]] = {
    "File": File,
    "SystemdUnit": SystemdUnit,
    "Container": Container,
    "SystemUpgrade": SystemUpgrade,
    "Session": Session,
    "Volume": Volume,
    "Network": Network,
    "Package": Package,
}

REVERT_AFTER: Final = r"^([1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|1[0-9]h|2[0-4]h|[1-9]h)$"
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}

M = TypeVar("M", bound=Model)

Generation = Annotated[int, Field(ge=1, le=MAX_GENERATION)]


class FieldError(NamedTuple):
    """Place of an error in the input (``scores[0].path``) with a stable code. Holds no value."""

    field: str
    code: str


class Fault(NamedTuple):
    """The same for people: the place in its parts, as pydantic gives them, and a sentence."""

    place: tuple[int | str, ...]
    code: str
    sentence: str


class InvalidManifest(ValueError):
    """The input is no manifest. `code` says why as a whole, `errors` where; the message and the
    `faults`, one for each of `errors`, are for people.
    """

    def __init__(
        self,
        code: str,
        errors: Sequence[FieldError],
        message: str,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.errors = tuple(errors)
        self.faults = tuple(faults)


class Manifest(Model):
    """A Score author's input: a deployment's name and its Scores.

    Example: ``manifest = Manifest(deployment="web", scores=[File(name="motd", path="/srv/motd",
    content="hi")])``
    """

    api: Literal["harmony/v1"] = Field(
        default="harmony/v1", description="The version of this form."
    )
    device: DeviceName | None = Field(
        default=None,
        description="The device it is for; None: --device or --select says it.",
        examples=["pi-01"],
    )
    deployment: DeploymentName = Field(
        description="Its name on the device: at most 63 of a-z, 0-9 and -.", examples=["web"]
    )
    lineage: Lineage | None = Field(
        default=None,
        description="The authority that writes it; commands set it.",
        examples=["7b0e2c4e-3f5a-4a53-9a3e-0c5ad9f5d2a1"],
    )
    generation: Generation | None = Field(
        default=None,
        description="Counts up with each change; commands set it. "
        "In a file it is a fence: apply refuses where another one is due.",
        examples=[3],
    )
    scores: Annotated[Sequence[AnyScore], Field(max_length=MAX_SCORES)] = Field(
        default=(),
        description="The resources, at most 1,000, in any order: after gives the order of work.",
    )
    removed: bool = Field(
        default=False, description="Takes the deployment off the device; scores is then empty."
    )
    supersedes: Lineage | None = Field(
        default=None,
        description="The authority that this one replaces; --take-over sets it.",
        examples=["7b0e2c4e-3f5a-4a53-9a3e-0c5ad9f5d2a1"],
    )
    allow_prune: Annotated[int, Field(ge=0, le=MAX_SCORES)] | None = Field(
        default=None,
        description="How many resources this change may remove, "
        "when that is more than half of them.",
        examples=[5],
    )
    signatures: (
        Annotated[Sequence[Signature], Field(min_length=1, max_length=MAX_SIGNATURES)] | None
    ) = Field(
        default=None,
        description="Made anew at each write: those of a file that an author gives don't count.",
    )
    revert_after: Annotated[str, Field(pattern=REVERT_AFTER)] | None = Field(
        default=None,
        description="The time that a device gives this change: if it isn't Converged then, the device "
        "goes back by itself to the last generation that was. Seconds, minutes or hours, up to a day. "
        "None: it stays as it is. Set alone, it is no change.",
        examples=["5m"],
    )
    remains: Annotated[Sequence[AnyScore], Field(max_length=MAX_SCORES)] | None = Field(
        default=None,
        description="A decision for a device that lost its memory: it takes back what it had. "
        "Scores of `scores` that it had just so need not be repeated here; "
        "what stands only here is taken back, and then goes.",
    )

    @model_validator(mode="after")
    def _holds_together(self) -> Manifest:
        if self.removed and self.scores:
            raise fault(
                ("scores",), "RemovedWithScores", "a manifest with removed: true has no scores"
            )
        if self.removed and self.revert_after:
            raise fault(("revert_after",), "RevertAfterRemoved", "a removal is never taken back")
        keys = [score.key for score in self.scores]
        another = "another resource has this kind and name"
        check_distinct(keys, "scores", "name", "DuplicateResource", another)
        paths = [
            score.path if isinstance(score, File) else index
            for index, score in enumerate(self.scores)
        ]
        check_distinct(paths, "scores", "path", "DuplicatePath", "another File has this path")
        signers = [signature.key for signature in self.signatures or ()]
        by_key = "another signature is by this key"
        check_distinct(signers, "signatures", "key", "DuplicateSignature", by_key)
        remains = [score.key for score in self.remains or ()]
        check_distinct(remains, "remains", "name", "DuplicateResource", another)
        known = set(keys)
        for index, score in enumerate(self.scores):
            _check_references(index, score, known)
        stuck = cycle(
            {score.key: needs for score in self.scores if (needs := all_needs(score, known))}
        )
        if stuck:
            place = ("scores", keys.index(min(stuck)))
            raise fault(
                place,
                "AfterCycle",
                "its turn never comes: after, restart_on and reload_on go in a circle",
            )
        return self

    @property
    def revert_seconds(self) -> int:
        """Seconds of `revert_after`; 0 where it isn't set."""
        text = self.revert_after
        return int(text[:-1]) * _UNITS[text[-1]] if text is not None else 0

    def bind(
        self, device: str, lineage: str, generation: int, supersedes: str | None = None
    ) -> WireManifest:
        """This manifest for one device and generation, as it goes on the wire."""
        fields: dict[str, Any] = {"api": self.api, "deployment": self.deployment, "device": device}
        fields |= {"lineage": lineage, "generation": generation, "scores": self.scores}
        if self.removed:
            fields["removed"] = True
        if self.allow_prune is not None:
            fields["allow_prune"] = self.allow_prune
        if self.revert_after is not None:
            fields["revert_after"] = self.revert_after
        if self.remains is not None:
            fields["remains"] = self.remains
        if supersedes is not None or self.supersedes is not None:
            fields["supersedes"] = supersedes or self.supersedes
        return WireManifest(**fields)

    def content(self) -> bytes:
        """The canonical bytes of what the author decides: equal bytes need no new generation."""
        wire = self.wire()
        return canonical(
            {key: wire.get(key, default) for key, default in (("scores", []), ("removed", False))}
        )


class WireManifest(Manifest):
    """A Manifest as it stands in ``desired-state``: for one device, of one lineage, at one
    generation.
    """

    api: Literal["harmony/v1"]
    device: DeviceName
    lineage: Lineage
    generation: Generation
    scores: Annotated[Sequence[AnyScore], Field(max_length=MAX_SCORES)]


def all_needs(score: Score, known: Collection[str]) -> tuple[str, ...]:
    """Keys that must be settled before `score` in a manifest that has the keys `known`."""
    return tuple(dict.fromkeys((*score.needs(), *(key for key in score.uses() if key in known))))


def _check_references(index: int, score: Score, known: set[str]) -> None:
    place = ("scores", index)
    if not score.restarts and score.restart_on:
        raise fault(
            (*place, "restart_on"),
            "NotRestartable",
            "only kinds that run have it: SystemdUnit, Container and Session",
        )
    if all(key in known for key in score.needs()):
        return
    for name in ("after", "restart_on", "reload_on"):
        for position, key in enumerate(getattr(score, name, ())):
            if key not in known:
                raise fault(
                    (*place, name, position), "AfterUnknown", "names no resource of this manifest"
                )


def cycle(edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Keys that stand in a circle of the graph (key -> what it needs), or only behind one; empty
    where none is.
    """
    waiting = {key: {need for need in needs if need in edges} for key, needs in edges.items()}
    users: dict[str, list[str]] = {key: [] for key in edges}
    for key, needs in waiting.items():
        for need in needs:
            users[need].append(key)
    free = [key for key, needs in waiting.items() if not needs]
    while free:
        done = free.pop()
        del waiting[done]
        for user in users[done]:
            waiting[user].discard(done)
            if not waiting[user]:
                free.append(user)
    return set(waiting)


def decode(
    data: bytes,
    *,
    device: str,
    deployment: str,
    limit: int = MAX_MANIFEST,
    accepted: bool = False,
) -> WireManifest:
    """Read a value of ``desired-state``. `device` and `deployment` are the key's. Raises
    InvalidManifest.
    """
    return bound(parse(data, limit), device=device, deployment=deployment, accepted=accepted)


def parse(data: bytes, limit: int = MAX_MANIFEST) -> Any:
    """The JSON value of bytes of which nothing is believed yet. Raises InvalidManifest."""
    try:
        return read(data, limit)
    except NotCanonical as error:
        raise InvalidManifest(error.code, (FieldError("", error.code),), str(error)) from None


def bound(value: Any, *, device: str, deployment: str, accepted: bool = False) -> WireManifest:
    """A JSON value as the manifest of this key. Raises InvalidManifest.

    `accepted`: it stands already, so that no rule holds that came later: see `is_new`.
    """
    manifest = validate(WireManifest, value, accepted=accepted)
    wrong = [
        name
        for name, want in (("device", device), ("deployment", deployment))
        if getattr(manifest, name) != want
    ]
    if wrong:
        errors = [FieldError(name, "KeyMismatch") for name in wrong]
        raise InvalidManifest("KeyMismatch", errors, f"{' and '.join(wrong)} isn't the key's")
    return manifest


def validate(model: type[M], value: Any, *, accepted: bool = False) -> M:
    """`value` (from JSON or YAML) as a `model`. Raises InvalidManifest with field paths and codes,
    never values.
    """
    try:
        return model.model_validate(value, context=ACCEPTED if accepted else None)
    except ValidationError as error:
        raise explain(error) from None


def explain(error: ValidationError) -> InvalidManifest:
    """Pydantic's error as ours: field paths, codes and sentences, never values."""
    details = error.errors(include_url=False)
    named = [_field_error(detail) for detail in details[:MAX_ERRORS]]
    faults = [
        Fault(detail["loc"], item.code, _sentence(item, detail))
        for item, detail in zip(named, details, strict=False)
    ]
    lines = [
        f"{item.field or 'the manifest'}: {fault.sentence}"
        for item, fault in zip(named, faults, strict=True)
    ]
    more = len(details) - len(named)
    lines += [f"and {more} more"] if more else []
    return InvalidManifest(_overall(named), named, "; ".join(lines), faults)


def _sentence(error: FieldError, detail: ErrorDetails) -> str:
    """Pydantic's sentence, but where that repeats the input."""
    if detail["type"] == "union_tag_not_found":
        return f"has no kind: one of {', '.join(SCORE_TYPES)}"
    if error.code in _SENTENCES:
        return _SENTENCES[error.code]
    if error.code == "TooLong":
        return f"must be at most {detail['ctx']['max_length']} characters"
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "must be names with values"
    return "must not be empty" if error.code == "TooShort" else detail["msg"]


_SENTENCES: Final = {
    "UnknownKind": f"kind must be one of {', '.join(SCORE_TYPES)}",
    "UnknownField": "there is no such field",
    "Missing": "is required, and isn't there",
    "InvalidFormat": "isn't of the form that it takes",
}


def _overall(errors: Sequence[FieldError]) -> str:
    """The one code for the whole: a code of ours where there is just one, else Invalid."""
    codes = {error.code for error in errors}
    return codes.pop() if len(codes) == 1 else "Invalid"


_CODES: Final = {
    "missing": "Missing",
    "extra_forbidden": "UnknownField",
    "union_tag_invalid": "UnknownKind",
    "union_tag_not_found": "UnknownKind",
    "string_unicode": "NotUnicode",
    "string_too_long": "TooLong",
    "string_too_short": "TooShort",
    "too_long": "TooMany",
    "too_short": "TooFew",
    "string_pattern_mismatch": "InvalidFormat",
    "literal_error": "NotAllowed",
    "frozen_field": "NotAllowed",
}


def _field_error(detail: ErrorDetails) -> FieldError:
    kind = detail["type"]
    code = _CODES.get(kind)
    if code is None:
        code = kind if kind[:1].isupper() else _by_shape(kind)
    if isinstance(
        detail["input"], str
    ):  # pydantic counts the items of a text that we looked at before it
        code = {"TooMany": "TooLong", "TooFew": "TooShort"}.get(code, code)
    return FieldError(field_path(detail["loc"]), code)


def _by_shape(kind: str) -> str:
    if kind.endswith(("_type", "_parsing")) or kind in (
        "int_from_float",
        "is_instance_of",
        "sequence_str",
    ):
        return "WrongType"
    if kind.startswith(("greater_than", "less_than", "finite_number")):
        return "OutOfRange"
    return "Invalid"


def field_path(loc: Iterable[int | str]) -> str:
    """``scores[0].path`` from pydantic's location.

    The union's own tag is left out and an odd name is cut. A key that itself is wrong isn't told:
    it may be a ``NAME=value``.
    """
    path = ""
    parts = list(loc)
    if parts[-1:] == ["[key]"]:
        parts = parts[:-2]
    for index, part in enumerate(parts):
        if isinstance(part, int):
            path += f"[{part}]"
        elif not (index == 2 and parts[0] in ("scores", "remains") and part in SCORE_TYPES):
            name = "".join(char if char.isprintable() else "?" for char in part[:64])
            path += f".{name}" if path else name
    return path
