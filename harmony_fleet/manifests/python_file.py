"""A Python file of an author, run as the program that it is; what goes wrong in it is told with its
line.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import ValidationError

from harmony_fleet.errors import InvalidInput, Line
from harmony_fleet.manifests.faults import refusal
from scores.author_schema import model_named
from scores.manifest import Manifest, explain

_OF_NAMES: Final = (ImportError, NameError, AttributeError, TypeError, ZeroDivisionError)
"""Errors whose words hold names and types, and no value."""


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
        return _refusal(path, place, error)
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


def _refusal(path: Path, place: str, error: ValidationError) -> InvalidInput:
    """With the argument underlined that is wrong, where the call stands in the file."""
    model = model_named(error.title) or Manifest
    call = _call(path, error)
    names = {item.arg: item.value for item in call.keywords} if call is not None else {}
    name = names.get("name")
    value = {
        "kind": model.__name__,
        "name": name.value if isinstance(name, ast.Constant) else "",
    }

    def find(parts: Sequence[int | str], _code: str) -> Line | None:
        return _argument(call, str(parts[0])) if call is not None and parts else None

    told = explain(error)
    return refusal(f"cannot use {place}: {error.title}", told, value, find, model)


def _call(path: Path, error: ValidationError) -> ast.Call | None:
    """The author's call that raised it."""
    trace = error.__traceback__
    at: tuple[int | None, ...] | None = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == str(path):
            at = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None))
        trace = trace.tb_next
    if at is None:
        return None
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and at == (
            node.lineno,
            node.end_lineno,
            node.col_offset,
            node.end_col_offset,
        ):
            return node
    return None


def _argument(call: ast.Call, name: str) -> Line | None:
    """The argument's name, and nothing of its value."""
    for item in call.keywords:
        if item.arg == name:
            text, start = f"{name}=…", item.col_offset
            return Line(
                item.lineno, start + 1, " " * min(start, 40) + text, min(start, 40), len(name)
            )
    return None


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
