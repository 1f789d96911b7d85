"""Manifests from a file: YAML, JSON, or Python that defines `manifest` or `manifests`.

Every mistake is an InvalidInput that names the place, a code and what to do, never a value. A
Python file is the author's own program and runs as such, with what it prints sent to standard
error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import ValidationError

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.read_yaml import read_yaml
from scores.canonical import NotCanonical, read
from scores.manifest import MAX_MANIFEST, FieldError, InvalidManifest, Manifest, explain, validate

MAX_FILE: Final = 16 * MAX_MANIFEST
"""Bytes of a file that are read; it may hold several manifests."""
_OF_NAMES: Final = (ImportError, NameError, AttributeError, TypeError, ZeroDivisionError)
"""Errors whose words hold names and types, and no value."""
_HINTS: Final[Mapping[str, str]] = {
    "UnknownField": "see the fields with: harmony schema --kind <Kind>",
    "UnknownKind": "kinds are File, SystemdUnit, Container, SystemUpgrade",
    "WrongType": 'see the type with: harmony schema; in YAML, write numbers that are text in quotes, as mode: "0644"',
    "Missing": "add the field; see: harmony schema",
    "InvalidFormat": 'see the pattern with: harmony schema; a mode is four octal digits in quotes, as "0644"',
}


def load(name: str) -> list[Manifest]:
    """The manifests of the file `name` (``-`` is standard input, YAML or JSON); at least one, in
    the file's order.
    """
    if name == "-":
        found = _from_text(sys.stdin.buffer.read(MAX_FILE + 1), "standard input", json=None)
    else:
        path = Path(name)
        data = read_bytes(path)
        if path.suffix == ".py":
            found = _from_python(path, data)
        elif path.suffix in (".yaml", ".yml", ".json"):
            found = _from_text(data, str(path), json=path.suffix == ".json")
        else:
            raise InvalidInput(
                "UnknownFormat",
                f"cannot tell what {path} is",
                "name it .yaml, .yml, .json or .py, or pipe it to: -",
            )
    if not found:
        raise InvalidInput(
            "NoManifest",
            f"cannot find a manifest in {name}: it is empty",
            "start from: harmony schema",
        )
    names = [manifest.deployment for manifest in found]
    if twice := sorted({item for item in names if names.count(item) > 1}):
        raise InvalidInput(
            "DuplicateDeployment",
            f"cannot use {name}: two manifests are named {twice[0]}",
            "give each its own deployment",
        )
    return found


def read_bytes(path: Path) -> bytes:
    """A regular file's bytes, at most one more than `MAX_FILE`. Raises InvalidInput."""
    try:
        if not path.is_file():
            what = "it is no regular file" if path.exists() else "there is no such file"
            raise InvalidInput("FileMissing", f"cannot read {path}: {what}", "check the name")
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) else "its name is invalid"
        raise InvalidInput(
            "FileUnreadable", f"cannot read {path}: {why}", "check its permissions"
        ) from None
    return data


def _from_text(data: bytes, where: str, json: bool | None) -> list[Manifest]:
    if len(data) > MAX_FILE:
        raise InvalidInput(
            "TooLarge", f"cannot read {where}: more than {MAX_FILE} bytes", "split it"
        )
    if json is None:
        json = data.lstrip()[:1] == b"{"
    values = [read_json(data, where)] if json else read_yaml(data, where)
    many = len(values) > 1
    return [
        _validated(value, f"{where}, document {at}" if many else where)
        for at, value in enumerate(values, 1)
    ]


def read_json(data: bytes, where: str) -> Any:
    """One JSON value. Raises InvalidInput."""
    try:
        return read(data, MAX_FILE)
    except NotCanonical as error:
        raise InvalidInput(
            error.code, f"cannot read {where}: {error}", "mend the JSON there"
        ) from None


def _validated(value: Any, where: str) -> Manifest:
    try:
        return validate(Manifest, value)
    except InvalidManifest as error:
        raise _invalid(f"cannot use {where}", error) from None


def _invalid(message: str, error: InvalidManifest) -> InvalidInput:
    return InvalidInput(
        error.code, message, _hint(error.errors), error.errors, details=str(error).split("; ")
    )


def _hint(errors: Sequence[FieldError]) -> str:
    return next(
        (_HINTS[error.code] for error in errors if error.code in _HINTS), "see: harmony schema"
    )


def _from_python(path: Path, data: bytes) -> list[Manifest]:
    namespace = run_python(path, data)
    if "manifest" in namespace:
        values: Iterable[Any] = [namespace["manifest"]]
    elif "manifests" in namespace:
        values = namespace["manifests"]
        if isinstance(values, (str, Mapping, Manifest)) or not isinstance(values, Iterable):
            raise InvalidInput(
                "WrongType",
                f"cannot use {path}: manifests is no list",
                "write manifests = [Manifest(…)]",
            )
    else:
        raise InvalidInput(
            "NoManifest",
            f"cannot find a manifest in {path}",
            "define manifest = Manifest(…), or a list named manifests",
        )
    found = list(values)
    for value in found:
        if not isinstance(value, (Manifest, Mapping)):
            raise InvalidInput(
                "WrongType",
                f"cannot use {path}: it defines no Manifest but a {type(value).__name__}",
                "write Manifest(…)",
            )
    return [
        value if isinstance(value, Manifest) else _validated(dict(value), f"{path}, manifest {at}")
        for at, value in enumerate(found, 1)
    ]


def run_python(path: Path, data: bytes) -> dict[str, Any]:
    """Execute the file as a module of its own; its folder can be imported from, as for a script."""
    module = ModuleType("harmony_manifest")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pydantic look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(data, str(path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what a .py is for
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _python_error(path, error) from None
    finally:
        sys.path.remove(str(path.resolve().parent))
        del sys.modules[module.__name__]
    return module.__dict__


def _python_error(path: Path, error: BaseException) -> InvalidInput:
    """Describe an error with the line of the author's own file.

    No source line, and no words that may repeat a value.
    """
    place = f"{path}{_last_line(path, error)}"
    if isinstance(error, ValidationError):
        return _invalid(f"cannot use {place}: {error.title}", explain(error))
    if isinstance(error, SyntaxError):
        return InvalidInput(
            "NotPython", f"cannot run {path}, line {error.lineno}: {error.msg}", "mend the line"
        )
    if isinstance(error, SystemExit):
        return InvalidInput(
            "PythonExited", f"cannot use {place}: the file exits", "let it end after the manifest"
        )
    words = f": {error}" if isinstance(error, _OF_NAMES) else ""
    hint = f"mend the file; python3 {path} tells all of it"
    return InvalidInput("PythonFailed", f"cannot run {place}: {type(error).__name__}{words}", hint)


def _last_line(path: Path, error: BaseException) -> str:
    """The last frame that is the author's: the file itself, or one beside it that it imports."""
    folder = str(path.resolve().parent)
    line = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == str(path):
            line = f", line {trace.tb_lineno}"
        elif line and os.path.dirname(name) == folder:
            line = f" ({os.path.basename(name)}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return line
