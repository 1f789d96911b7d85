"""Units by systemd's manager, its directories and its journal."""
