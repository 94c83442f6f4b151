"""The configuration file: one TOML file read into immutable values, with every problem reported at once."""
