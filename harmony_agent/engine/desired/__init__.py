"""The first loop: from desired-state to what is enforced."""
