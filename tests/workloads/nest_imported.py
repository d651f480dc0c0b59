"""A module that burns CPU time while it is imported, below the frames of importlib."""
from nest import leaf

leaf()
