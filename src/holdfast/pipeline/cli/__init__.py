"""The command ``holdfast-pipeline``."""

from holdfast.pipeline.cli.root import main

__all__ = ["main"]
