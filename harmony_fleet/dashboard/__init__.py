"""The fleet's view over HTTP, on loopback: a page for people, metrics for Prometheus. Reads only,
and tells codes only.

`metrics` and `page` give the view a form (pure), `http` answers, `serve` puts all together.
"""
