"""A manifest as it stands in a file: whole, or with variables that are another for each device."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.faults import Find, nowhere, refusal, untagged
from harmony_fleet.manifests.variables import Scalar, fill, uses
from scores.manifest import Fault, InvalidManifest, Manifest, validate

_SAMPLES: Final[tuple[Scalar, ...]] = ("x", "/x", 1, True, "sha256:" + "0" * 64)
"""One of each form that a field may take."""


@dataclass(frozen=True)
class Draft:
    """`value` is a Manifest, or JSON that is to be one; `find` shows its lines."""

    where: str
    value: Any = field(repr=False)
    find: Find = nowhere

    @property
    def deployment(self) -> str:
        """The manifest's name."""
        return self._head.deployment

    @property
    def device(self) -> str | None:
        """The device that the file names."""
        return self._head.device

    @cached_property
    def _head(self) -> Manifest:
        """The manifest without what differs by device."""
        if not self.varies:
            return self._whole
        return self._validated({key: self.value[key] for key in self.value if key != "scores"})

    @cached_property
    def _whole(self) -> Manifest:
        return self.value if isinstance(self.value, Manifest) else self._validated(self.value)

    @cached_property
    def varies(self) -> bool:
        """Return whether it has variables."""
        return isinstance(self.value, Mapping) and uses(self.value.get("scores"))

    def manifest(self, known: Mapping[str, Scalar], device: str = "") -> Manifest:
        """The manifest with these variables. Raises InvalidInput."""
        if not self.varies:
            return self._whole
        where = f"use {self.where}{f' for {device}' if device else ''}"
        scores = fill(self.value.get("scores"), known, "scores", where)
        return self._validated({**self.value, "scores": scores})

    def check(self, known: Mapping[str, Scalar]) -> int:
        """Check all that can be told without the other variables; the number of its resources."""
        if not self.varies:
            return len(self._whole.scores)
        sampled = _Sampled(known)
        while True:
            value = {**self.value, "scores": sampled.filled(self.value.get("scores"), ("scores",))}
            try:
                return len(validate(Manifest, value).scores)
            except InvalidManifest as error:
                if sampled.try_others(error):
                    continue
                left = sampled.without_samples(error)
                if left is not None:
                    raise refusal(f"cannot use {self.where}", left, value, self.find) from None
                return len(value["scores"])

    def _validated(self, value: Any) -> Manifest:
        try:
            return validate(Manifest, value)
        except InvalidManifest as error:
            raise refusal(f"cannot use {self.where}", error, value, self.find) from None


class _Sampled:
    """Raw Scores with samples in the place of variables that nobody knows yet."""

    def __init__(self, known: Mapping[str, Scalar]) -> None:
        self._known = known
        self._tried: dict[tuple[str | int, ...], int] = {}

    def filled(self, value: Any, place: tuple[str | int, ...]) -> Any:
        """`value` with each variable filled in."""
        if isinstance(value, Mapping) and len(value) == 1 and {"$var", "$text"} & value.keys():
            with contextlib.suppress(InvalidInput):
                return fill(value, self._known, "", "")
            at = self._tried.setdefault(place, 0)
            known = _Anything(self._known, _SAMPLES[at])
            return fill(value, known, "", "")
        if isinstance(value, Mapping):
            return {key: self.filled(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.filled(item, (*place, at)) for at, item in enumerate(value)]
        return value

    def _of(self, fault: Fault) -> tuple[str | int, ...] | None:
        """The variable's place that a fault is at or below, unless it is a field that there isn't."""
        if fault.code == "UnknownField":
            return None
        parts = untagged(fault.place)
        return next((at for at in self._tried if parts[: len(at)] == list(at)), None)

    def try_others(self, error: InvalidManifest) -> bool:
        """Take the next sample for what a fault is about; tell if there was one."""
        moved = False
        for place in {self._of(fault) for fault in error.faults}:
            if place is not None and self._tried[place] + 1 < len(_SAMPLES):
                self._tried[place] += 1
                moved = True
        return moved

    def without_samples(self, error: InvalidManifest) -> InvalidManifest | None:
        """The faults that no variable has a part in."""
        own = [
            (item, fault)
            for item, fault in zip(error.errors, error.faults, strict=True)
            if self._of(fault) is None
        ]
        if not own:
            return None
        codes = {item.code for item, _ in own}
        code = codes.pop() if len(codes) == 1 else "Invalid"
        return InvalidManifest(
            code, [item for item, _ in own], str(error), [fault for _, fault in own]
        )


class _Anything(dict[str, Scalar]):
    """Variables, with a sample for each that isn't known."""

    def __init__(self, known: Mapping[str, Scalar], sample: Scalar) -> None:
        super().__init__(known)
        self._sample = sample

    def __contains__(self, _name: object) -> bool:
        return True

    def __missing__(self, _name: str) -> Scalar:
        return self._sample
