"""The roster: the one place that says what is meant to run where.

Pure are `model` (what it holds), `text` (read and written with its comments), `edit` (changed) and
`seal` (which roster may follow which). `file` keeps it on disk under a lock. `sources` loads the
Scores of its deployments.
"""
