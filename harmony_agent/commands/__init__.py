"""The verbs of ``harmony-agent``. They print, and decide nothing."""
