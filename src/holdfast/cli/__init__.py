"""The operator's command ``holdfast``."""

from holdfast.cli.root import main

__all__ = ["main"]
