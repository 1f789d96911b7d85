"""The only importers of libraries and of the operating system. Library errors stop here and are
chained.
"""
