"""Files that survive a kill, locks of folders, secrets."""
