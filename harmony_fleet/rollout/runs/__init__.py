"""Upgrade runs: `plan` freezes one, `advance` decides how it goes on (both pure), `store` keeps
them, `follow` acts.

A run is carried on by whoever watches it; nothing of it is kept in a process.
"""
