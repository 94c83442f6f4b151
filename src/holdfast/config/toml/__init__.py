"""Reading TOML files with the line of every key, and writing values as TOML.

Nothing here knows what an option means.
May import ``config.problems`` only.
"""
