"""Session: keeps terminal sessions as their Scores say, through a `Sessions` capability.

A session is ours by the token that the ledger holds: it is recorded before the session is created,
and stands in the session as an option. The name alone says nothing. Without a record it is ours by
its marks, if they name this installation. What isn't ours is never taken over, renamed or ended.
"""

from harmony_agent.kinds.session.reconciler import SessionReconciler

__all__ = ["SessionReconciler"]
