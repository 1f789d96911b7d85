"""`harmony validate`: files of manifests, checked without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harmony_fleet.commands.common import Common, show_error, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.manifests.load import drafts
from harmony_fleet.manifests.variables import Scalar
from harmony_fleet.output import render
from harmony_fleet.output.render import Output, plain


def validate(common: Common, files: Sequence[str], variables: Mapping[str, Scalar]) -> ExitCode:
    """Check each file, also after one that isn't valid."""
    told: list[dict[str, Any]] = []
    code = ExitCode.DONE
    for name in files:
        try:
            told.append(
                {"file": name, "valid": True, "deployments": _check(common, name, variables)}
            )
        except InvalidInput as error:
            code = ExitCode.INVALID
            told.append({"file": name, "valid": False, **error.as_json()})
            if common.output is Output.TABLE:
                show_error(error, common.output)
    if common.output is not Output.TABLE:
        write(told, common.output)
    return code


def _check(common: Common, name: str, variables: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    found = [
        {"deployment": draft.deployment, "resources": draft.check(variables)}
        for draft in drafts(name)
    ]
    if common.output is Output.TABLE:
        for item in found:
            count = item["resources"]
            words = f"{name}: {item['deployment']}: {count} resource{'s' * (count != 1)}, valid"
            render.out().print(plain(words, ""), soft_wrap=True)
    return found
