"""The kinds: their actions, pure plans and reconcilers. They see core, topology and scores, and no
other kind.
"""
