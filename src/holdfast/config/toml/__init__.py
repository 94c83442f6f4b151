"""TOML files: read with the line of every key, and values written as TOML.

Nothing here knows what an option means.
May import ``config.problems`` only.
"""
