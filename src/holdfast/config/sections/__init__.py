"""The tables of the configuration file, one module for each.

Each option has its kind, default, help and example beside it.
May import ``config.fields``, ``config.kinds`` and ``config.toml``.
"""
