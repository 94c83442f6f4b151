"""The operator's command ``holdfast``.

Each subcommand has a module, which is imported only when the subcommand runs. Commands on retained messages make the
calls of the operators' API through :mod:`holdfast.access`. May import every package but ``pipeline``; nothing imports
``cli``.
"""

from holdfast.cli.root import main

__all__ = ["main"]
