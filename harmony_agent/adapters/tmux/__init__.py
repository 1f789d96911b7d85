"""Sessions in tmux: spoken to by argument lists and, for what nobody else may read, by its standard
input. No shell.
"""
