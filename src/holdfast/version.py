"""The version of this program."""

from __future__ import annotations


def version() -> str:
    """Return the version of the installed package."""
    from importlib import metadata  # imports the package email

    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "(not installed)"
