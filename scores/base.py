"""Base of every model here: strict, frozen, no unknown field, dumped as the author set it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from scores.canonical import canonical, digest
from scores.names import ResourceName

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # has no public name


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value


WHOLE: Final = PlainSerializer(_whole, when_used="json")
"""On a number that may have a fraction: 10 stays 10 on the wire, whether it was written as 10 or as
10.0.
"""


class _Documented(ModelMetaclass):
    """A model's `__doc__` has its fields below the docstring, so that `help` shows them first. It is
    made when it is read: a device never asks.
    """

    def _with_fields(cls) -> str:
        from scores.describe import fields_of  # noqa: PLC0415 - only people need it

        model: Any = cls
        return f"{cls.opening}\n\n{fields_of(model)}"

    __doc__ = property(_with_fields)

    @property
    def opening(cls) -> str:
        """The docstring as it was written."""
        return inspect.cleandoc(vars(cls).get("__doc__") or "")


class Model(BaseModel, metaclass=_Documented):
    """A strict, frozen model. On the wire is what was set, so that a new field with a default
    changes no digest.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        allow_inf_nan=False,
        defer_build=True,  # each schema costs memory; most are used only as part of another
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        made = handler(schema)
        described = handler.resolve_ref_schema(made)
        described["description"] = cls.opening
        return made

    def wire(self) -> dict[str, Any]:
        """The JSON value of what was set, ready for `canonical`."""
        return self.model_dump(mode="json", exclude_unset=True)

    def canonical(self) -> bytes:
        """The canonical bytes of what was set."""
        return canonical(self.wire())


def fault(place: Sequence[str | int], code: str, sentence: str) -> ValidationError:
    """Error of a model's validator for a fault below the model, at `place`."""
    error = PydanticCustomError(code, sentence)
    return ValidationError.from_exception_data(
        "fault", [InitErrorDetails(type=error, loc=tuple(place), input=None)]
    )


ACCEPTED: Final = {"accepted": True}
"""The context in which a device reads what it has accepted already, and a command what stands."""


def is_new(info: ValidationInfo) -> bool:
    """Return whether rules hold that came later than the wire's version: a device keeps what it
    accepted before them, and nothing new may break them.
    """
    return info.context is not ACCEPTED


def repeated(values: Sequence[object]) -> int | None:
    """The index of the first of `values` that stood there before; None where all differ."""
    seen: set[object] = set()
    for index, value in enumerate(values):
        if value in seen:
            return index
        seen.add(value)
    return None


def check_distinct(
    values: Sequence[object], place: str, part: str, code: str, sentence: str
) -> None:
    """Refuse what stands twice in `values`, at ``place[index].part``."""
    twice = repeated(values)
    if twice is not None:
        raise fault((place, twice, part), code, sentence)


KINDS: Final = (
    *(
        "File",
        "SystemdUnit",
        "Container",
        "SystemUpgrade",
        "Session",
        "Volume",
        "Network",
        "Package",
    ),
)


def _key(value: str) -> str:
    kind, slash, name = value.partition("/")
    if not slash or kind not in KINDS or not name:
        raise PydanticCustomError("InvalidResourceKey", "must be <Kind>/<name>, as File/motd")
    return value


ResourceKey = Annotated[str, AfterValidator(_key)]
"""``<Kind>/<name>``: how one resource of a manifest names another."""


class Score(Model):
    """One resource of a manifest: typed, idempotent desired state."""

    restarts: ClassVar[bool] = False
    """This kind has a process that `restart_on` can restart."""

    kind: str
    name: ResourceName = Field(
        description="Unique among this kind on its device; Kind/name is how others refer to it.",
        examples=["web", "web.service"],
    )
    after: Sequence[ResourceKey] = Field(
        default=(),
        description="Resources of this manifest that must be Ready or Completed first.",
        examples=[["File/motd"]],
    )
    restart_on: Sequence[ResourceKey] = Field(
        default=(),
        description="When one of these changes on the device, by a new spec or a repair, this one "
        "is restarted once after it. Only SystemdUnit, Container and Session have it.",
        examples=[["File/motd"]],
    )
    drift: Literal["enforce", "report"] = Field(
        default="enforce",
        description="What to do when the device no longer is as wanted: repair it, or only say so.",
    )
    on_remove: Literal["delete", "orphan"] = Field(
        default="delete",
        description="When this resource leaves the manifest: take it away, or leave it and let go.",
    )
    adopt: bool = Field(
        default=False,
        description="Take over what exists already and isn't ours; "
        "its former content is kept and put back on removal.",
    )

    def model_post_init(self, _context: Any) -> None:
        """The kind always stands on the wire, though an author leaves it to the class."""
        self.__pydantic_fields_set__.add("kind")

    def spec_digest(self) -> str:
        """The digest of the canonical bytes of this Score as it stands in its manifest."""
        return digest(self.canonical())

    @property
    def key(self) -> str:
        """``<Kind>/<name>``, unique in a manifest."""
        return f"{self.kind}/{self.name}"

    def stopped(self) -> Self:
        """The same where nothing of it may run, nor be started by a boot. A kind that `restarts`
        has its own.
        """
        return self

    def uses(self) -> tuple[str, ...]:
        """Keys that must be settled before this one where they stand in its manifest."""
        return ()

    def secret_names(self) -> tuple[str, ...]:
        """The names of the secrets that it is made of."""
        return ()

    def needs(self) -> tuple[str, ...]:
        """Every key that must be settled before this one: `after`, and what it restarts or reloads
        on.
        """
        return tuple(dict.fromkeys((*self.after, *self.restart_on)))
