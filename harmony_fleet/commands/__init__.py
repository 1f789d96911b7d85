"""Work of each command: open the store, call the part that knows, show the result, return an exit
code.

Imported when a command runs, so that `harmony --help` needs none of it. A group of commands is a
module here.
"""
