"""Versions of Debian packages, in the order that dpkg has them (deb-version(7)). Pure."""

from __future__ import annotations


def is_older(one: str, other: str) -> bool:
    """Return whether `one` comes before `other`."""
    return _key(one) < _key(other)


Parts = list[tuple[tuple[int, ...], int]]


def _key(version: str) -> tuple[int, Parts, Parts]:
    """Epoch, upstream version and revision, in a form that compares as dpkg compares."""
    epoch, colon, rest = version.rpartition(":")
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, "0"
    return int(epoch) if colon else 0, _parts(upstream), _parts(revision)


def _parts(text: str) -> Parts:
    """Pairs of what is no digit and of a number; the end of each text is between ~ and all others."""
    words, numbers, number = [""], [""], False
    for char in text:
        if char.isdigit():
            numbers[-1] += char
        else:
            if number:
                words.append("")
                numbers.append("")
            words[-1] += char
        number = char.isdigit()
    parts = [
        ((*map(_weight, word), 0), int(digits or "0"))
        for word, digits in zip(words, numbers, strict=True)
    ]
    return [*parts, ((0,), 0)]


def _weight(char: str) -> int:
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256
