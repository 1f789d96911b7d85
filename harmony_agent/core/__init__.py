"""Decisions only: no I/O, no async, no clock of its own, no library but scores (and pydantic
through it).
"""
