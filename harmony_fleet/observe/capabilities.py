"""Capabilities and trust of a device, by its own word. Checked before anything is written. Pure."""

from __future__ import annotations

from harmony_fleet.errors import Refused
from harmony_fleet.observe.state import Device
from scores.manifest import FieldError, Manifest, WireManifest
from scores.status import DeviceInfo


def kind_problem(manifest: Manifest, device: Device) -> str:
    """Return the kinds that the device lacks for this manifest, as a code and names.

    Empty if it has all.
    """
    info = device.info
    kinds = sorted({score.kind for score in manifest.scores}) if info is not None else []
    refused = [kind for kind in kinds if info is not None and kind not in info.kinds]
    lacking = [kind for kind in kinds if info is not None and _lacks(info, kind)]
    if refused:
        return f"KindNotAllowed {' '.join(refused)}"
    return f"MissingCapability {' '.join(lacking)}" if lacking else ""


def check_kinds(wire: WireManifest, device: Device) -> None:
    """Refuse kinds that the device can't do."""
    info = device.info
    if info is None:
        return
    refused = [
        (at, score.kind) for at, score in enumerate(wire.scores) if score.kind not in info.kinds
    ]
    if refused:
        kinds = ", ".join(sorted({kind for _, kind in refused}))
        raise Refused(
            "KindNotAllowed",
            f"cannot apply {wire.deployment} to {device.name}: its configuration doesn't allow {kinds}",
            f"allow it with kinds in the agent's configuration there; now: {', '.join(info.kinds) or 'none'}",
            [FieldError(f"scores[{at}].kind", "KindNotAllowed") for at, _ in refused],
            alone=True,
        )
    lacking = [(at, score.kind) for at, score in enumerate(wire.scores) if _lacks(info, score.kind)]
    if lacking:
        what = ", ".join(sorted({_lacks(info, kind) for _, kind in lacking}))
        raise Refused(
            "MissingCapability",
            f"cannot apply {wire.deployment} to {device.name}: it has no {what}",
            "on the device, harmony-agent check says how to mend it",
            [FieldError(f"scores[{at}].kind", "MissingCapability") for at, _ in lacking],
            alone=True,
        )


def check_secrets(wire: WireManifest, device: Device) -> None:
    """Refuse secrets where the device tells no key to seal them for."""
    info = device.info
    named = [at for at, score in enumerate(wire.scores) if score.secret_names()]
    if named and info is not None and info.sealing is None:
        raise Refused(
            "DeviceKeyMissing",
            f"cannot apply {wire.deployment} to {device.name}: it names secrets, and the device tells no key",
            "upgrade its agent; harmony-agent check on the device says whether it has a key",
            [FieldError(f"scores[{at}]", "DeviceKeyMissing") for at in named],
            alone=True,
        )


def check_trust(wire: WireManifest, device: Device) -> None:
    """A device that says that it believes only certain keys isn't written what it would refuse."""
    told = device.info.trust if device.info is not None else None
    signed = [item.key for item in wire.signatures or ()]
    if told is None or not told.require or set(signed) & set(told.keys):
        return
    trusts = f"cannot apply {wire.deployment} to {device.name}: it believes only what {' '.join(told.keys)} signed"
    if not signed:
        raise Refused(
            "SignatureMissing",
            f"{trusts}, and there is no signing key here",
            "write it where the signing keys are",
            alone=True,
        )
    raise Refused(
        "SignatureUnknownKey",
        f"{trusts}, and here {' '.join(signed)} signs",
        "put the key of harmony fleet key list into [trust] keys there; or take a retired one up again with --undo",
        alone=True,
    )


def _lacks(info: DeviceInfo, kind: str) -> str:
    """Return the missing part for this kind. Empty if nothing is missing."""
    has = info.capabilities
    if kind == "SystemdUnit" and has.systemd is None:
        return "systemd"
    if kind in ("Container", "Volume", "Network") and has.podman is None:
        return "podman"
    if kind == "Session" and has.tmux is None:
        return "tmux"
    if kind == "SystemUpgrade" and (
        has.updater is None or "AptFullUpgradeV1" not in has.updater.operations
    ):
        return "updater"
    return ""
