"""Container: which images the agent fetched, and which of them nothing wants any more. Pure.

An image is ours if it wasn't on the device before the agent pulled it. A name of it that no Score
pulled by is somebody else's, and so is then the image.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from harmony_agent.topology.images import OwnImage, PulledImages, StoredImage

Refs = Mapping[str, Collection[str]]
"""By resource, the names of images in its Score."""


def arrived(pulled: PulledImages, ref: str, ident: str, before: Collection[str]) -> PulledImages:
    """Note that a pull of `ref` brought the image `ident`; `before` are the images that were there
    when it began.
    """
    images = {
        one: replace(image, refs=image.refs - {ref}) if ref in image.refs else image
        for one, image in pulled.images.items()
    }
    if ident in images or ident not in before:
        image = images.get(ident, OwnImage())
        images[ident] = OwnImage(image.refs | {ref})
    return replace(pulled, images=images)


def forget(pulled: PulledImages, idents: Collection[str]) -> PulledImages:
    """Know these no more: they are gone, or somebody else's."""
    images = {ident: image for ident, image in pulled.images.items() if ident not in idents}
    return replace(pulled, images=images)


def sorted_out(
    pulled: PulledImages, wanted: Refs, working: Collection[str], now: int
) -> PulledImages:
    """Mark what nothing wants since now. What a resource had when it worked last is wanted until it
    is `working` with what it has now.
    """
    good = {name: _ids(pulled, refs) for name, refs in wanted.items() if name in working}
    good |= {
        name: kept
        for name in wanted
        if name not in good and (kept := _known(pulled, pulled.good.get(name, ())))
    }
    good = {name: idents for name, idents in good.items() if idents}
    named = {ref for refs in wanted.values() for ref in refs}
    needed = {ident for idents in good.values() for ident in idents}
    images = {
        ident: _marked(image, now, wanted=ident in needed or bool(image.refs & named))
        for ident, image in pulled.images.items()
    }
    return replace(pulled, images=images, good=good)


def _ids(pulled: PulledImages, refs: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(one for one, image in pulled.images.items() if image.refs & set(refs)))


def _known(pulled: PulledImages, idents: Iterable[str]) -> tuple[str, ...]:
    return tuple(ident for ident in idents if ident in pulled.images)


def _marked(image: OwnImage, now: int, *, wanted: bool) -> OwnImage:
    if wanted:
        return image if image.unwanted is None else replace(image, unwanted=None)
    if image.unwanted is None or image.unwanted > now:  # the clock was set back
        return replace(image, unwanted=now)
    return image


def unwanted(pulled: PulledImages, before: float) -> list[str]:
    """The images that nothing has wanted since `before` or longer, the oldest first."""
    found = [
        (image.unwanted, ident)
        for ident, image in pulled.images.items()
        if image.unwanted is not None and image.unwanted <= before
    ]
    return [ident for _, ident in sorted(found)]


def names_to_remove(
    pulled: PulledImages, image: StoredImage, listed: Iterable[StoredImage]
) -> Sequence[str] | None:
    """The names by which the image goes; none where it has to wait for images of ours that have its
    layers. None where it is somebody else's: it has a name that isn't ours, or is in their image.
    """
    refs = pulled.images[image.id].refs
    foreign = [name for name in image.names if not any(is_name_of(ref, name) for ref in refs)]
    above = [other.id for other in listed if other.parent == image.id]
    if foreign or any(ident not in pulled.images for ident in above):
        return None
    return () if above else image.names or (image.id,)


def is_name_of(ref: str, name: str) -> bool:
    """Tell if `name`, as the engine spells it, comes of a pull of `ref`. A pull by tag and digest
    leaves the digest alone; one without a registry may have found it in any.
    """
    repository, at, digest = ref.partition("@")
    head, slash, last = repository.rpartition("/")
    untagged, colon, _ = last.partition(":")
    spelt = repository if colon else f"{repository}:latest"
    if at:
        spelt = f"{head}{slash}{untagged}@{digest}"
    return name == spelt or name.endswith(f"/{spelt}")
