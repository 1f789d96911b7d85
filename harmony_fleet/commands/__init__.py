"""What each command does: opens the store, calls the part that knows, shows what comes of it, returns an exit code.

Imported when a command runs, so that `harmony --help` needs none of it. A group of commands is a module here.
"""
