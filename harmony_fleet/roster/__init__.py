"""The roster: what is meant to run where, in the one place where that is written.

`model` says what it holds, `text` reads and writes it with its comments, `edit` changes it, `fence`
says which roster may follow which (all pure); `file` keeps it on disk under a lock, written by
`durable`; `sources` loads the Scores of its deployments.
"""
