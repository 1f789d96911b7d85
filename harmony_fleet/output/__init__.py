"""Tables, JSON and progress for operators. Decides nothing."""
