"""`harmony import`: compose files, quadlets, lines of `docker run` and unit files become a manifest.

Nothing is dropped silently: what can't be taken over is named in a comment, with the reason. Pure but
for the files that it reads.
"""
