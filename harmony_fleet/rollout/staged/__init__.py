"""Rollouts: a changed deployment reaches its devices in waves.

`record` is the value that is kept, `advance` decides how it goes on, `gate` says what is desired of
each device meanwhile (all pure). `stage` reads and keeps records, `carry` takes one step.
"""
