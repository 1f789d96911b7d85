"""File: a regular file, a directory, a symbolic link, or the wish that a path be absent."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import Model, Score, fault
from scores.names import Digest, Text, unicode_text
from scores.secrets import TextOrSecret, names_in

MAX_INLINE: Final = 512 * 1024
"""Bytes of content that may stand in a manifest; more goes through an object store."""
MAX_OBJECT: Final = 64 * 1024 * 1024
"""Bytes that an object may have."""


def normal_path(value: str) -> str:
    """An absolute path with no empty, ``.`` or ``..`` part, as the kernel takes it."""
    parts = value.split("/")[1:]
    if not value.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise PydanticCustomError(
            "PathNotNormal", "must be absolute, without //, . or .. and with no / at its end"
        )
    if len(value.encode()) > 4095 or any(len(part.encode()) > 255 for part in parts):
        raise PydanticCustomError(
            "PathTooLong", "must be at most 4095 bytes, each part at most 255"
        )
    return value


Path = Annotated[Text, AfterValidator(normal_path)]
Mode = Annotated[str, Field(pattern=r"^[0-7]{4}$")]
Account = Annotated[Text, Field(pattern=r"^([a-z_][a-z0-9_.-]{0,30}\$?|[0-9]{1,10})$")]
"""A user's or group's name, or its number in decimal."""


class ObjectRef(Model):
    """Content in a NATS object store, up to 64 MiB; the device checks its digest before it uses
    it.
    """

    bucket: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")] = Field(
        description="The object store's bucket.", examples=["site-files"]
    )
    name: Annotated[Text, Field(min_length=1, max_length=512)] = Field(
        description="The object's name in its bucket.", examples=["site.tar"]
    )
    digest: Digest = Field(
        description="SHA-256 of the content, as sha256: and 64 hex digits.",
        examples=["sha256:" + 64 * "0"],
    )


class File(Score):
    """A file with this content, a directory, a symbolic link, or nothing at `path`.

    Example: ``File(name="motd", path="/srv/web/motd", content="hi\\n", mode="0644")``
    """

    kind: Literal["File"] = Field(default="File", description="File, as the class says.")
    path: Path = Field(
        description="Absolute and normal, "
        "inside one of the roots that the agent's configuration allows.",
        examples=["/srv/web/motd"],
    )
    type: Literal["file", "directory", "symlink", "absent"] = Field(
        default="file",
        description="What stands at the path; absent: nothing, and what is there is taken away.",
    )
    content: Annotated[str, AfterValidator(unicode_text)] | None = Field(
        default=None,
        repr=False,
        description="The file's content as text, at most 512 KiB as UTF-8.",
        examples=["Hello\n"],
    )
    content_base64: str | None = Field(
        default=None,
        repr=False,
        description="The file's content as base64 of its bytes, at most 512 KiB of them.",
        examples=["SGVsbG8K"],
    )
    template: Annotated[Sequence[TextOrSecret], Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        repr=False,
        description="The file's content in its parts, texts and secrets, one behind the other. "
        "Without a mode the file is 0600.",
        examples=[["password = ", {"secret": "mqtt-password"}, "\n"]],
    )
    object: ObjectRef | None = Field(
        default=None, description="The file's content from a NATS object store, up to 64 MiB."
    )
    target: Annotated[Text, Field(min_length=1, max_length=4095)] | None = Field(
        default=None,
        description="Where a symlink points; not followed, need not exist.",
        examples=["/srv/web/current"],
    )
    mode: Mode | None = Field(
        default=None,
        description="Four octal digits, in quotes. "
        "None: 0644 (directory 0755) when made, and then not watched.",
        examples=["0644"],
    )
    owner: Account | None = Field(
        default=None,
        description="The owner's name or number. None: the agent's user, and then not watched.",
        examples=["www-data", "1000"],
    )
    group: Account | None = Field(
        default=None,
        description="The group's name or number. None: the agent's group, and then not watched.",
        examples=["www-data", "1000"],
    )
    parents: bool = Field(
        default=False, description="Make missing parent directories, with mode 0755."
    )

    def secret_names(self) -> tuple[str, ...]:
        """The secrets in its template."""
        return names_in(self.template or ())

    @property
    def kept_mode(self) -> str | None:
        """The mode that is kept; None where none is watched."""
        return "0600" if self.mode is None and self.template is not None else self.mode

    def data(self) -> bytes | None:
        """The inline content as bytes; None where the content is an object or a template, or the
        type has none.
        """
        if self.content is not None:
            return self.content.encode()
        return (
            None
            if self.content_base64 is None
            else base64.b64decode(self.content_base64, validate=True)
        )

    @model_validator(mode="after")
    def _fits_its_type(self) -> File:
        ways = [
            name
            for name in ("content", "content_base64", "template", "object")
            if getattr(self, name) is not None
        ]
        if self.type == "file" and len(ways) != 1:
            raise PydanticCustomError(
                "ExactlyOneOf",
                "a file needs exactly one of content, content_base64, template, object",
            )
        if self.type != "file" and ways:
            raise PydanticCustomError("FieldNotForType", "only a file has content")
        if (self.type == "symlink") != (self.target is not None):
            raise PydanticCustomError(
                "FieldNotForType", "a symlink, and nothing else, needs a target"
            )
        if self.mode is not None and self.type in ("symlink", "absent"):
            raise PydanticCustomError("FieldNotForType", "a symlink or an absent path has no mode")
        if self.type == "absent" and (
            self.owner is not None or self.group is not None or self.parents
        ):
            raise PydanticCustomError(
                "FieldNotForType", "an absent path has no owner, group or parents"
            )
        self._check_template()
        self._measure()
        return self

    def _check_template(self) -> None:
        if self.template is None:
            return
        if not self.secret_names():
            raise fault(("template",), "NoSecret", "has no secret in it: use content")
        if self.adopt:
            raise fault(
                ("adopt",),
                "FieldConflict",
                "not with a template: what stood there, maybe with the secret, would be kept. "
                "Move it away",
            )

    def _measure(self) -> None:
        texts = sum(len(one.encode()) for one in self.template or () if isinstance(one, str))
        if texts > MAX_INLINE:
            raise fault(("template",), "ContentTooLarge", "is at most 512 KiB")
        try:
            data = self.data()
        except (binascii.Error, ValueError):
            raise fault(("content_base64",), "InvalidBase64", "is no base64") from None
        if data is not None and len(data) > MAX_INLINE:
            place = "content" if self.content is not None else "content_base64"
            raise fault((place,), "ContentTooLarge", "is at most 512 KiB: use object for more")
