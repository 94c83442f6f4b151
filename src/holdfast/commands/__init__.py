"""The operator's command ``holdfast``.

Each subcommand is imported only when it runs. Commands on retained messages make the calls of the operators' API, of
the running broker or, where none runs, of a stand-in for it (``opening``).
"""

from holdfast.commands.root import main

__all__ = ["main"]
