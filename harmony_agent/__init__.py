"""Harmony's agent: a Score interpreter that keeps one device as its manifests say.

The arrows between its layers are in ``docs/design.md`` and held by ``tests/arch``.
"""

__version__ = "0.1.0"
