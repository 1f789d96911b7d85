"""The fleet's view over HTTP, on loopback: a page for people, metrics for Prometheus. Reads only,
and tells codes only.

`data` makes what is told of a view (pure); `metrics` and `page` give it a form, `http` answers,
`serve` puts all together.
"""
