"""The operator's side: writes desired state, reads actual state. Sees scores, never the agent."""
