"""Reading TOML files with the line of every key, and writing values as TOML.

Nothing here knows the meaning of an option.
May import ``config.problems`` only.
"""
