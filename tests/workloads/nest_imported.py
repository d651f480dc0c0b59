"""A module that works while it is imported, below the frames of importlib."""
from nest import leaf

leaf()
