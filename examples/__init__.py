"""Examples, run from the repository."""
