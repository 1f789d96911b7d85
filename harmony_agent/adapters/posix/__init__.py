"""System calls, threads and paths. Shared by all adapters."""
