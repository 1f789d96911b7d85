"""The loops that drive the reconcilers. Sees core, topology and scores; imports no kind and no
adapter.
"""
