"""The configuration: one TOML file, read into immutable values, with all problems reported at once.

It knows the options, their limits and their texts; it does nothing with them.
"""

from holdfast.config.document import Config, Zone, default, exposed_without_authentication, load
from holdfast.config.toml import ConfigError, ConfigProblem

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "Zone",
    "default",
    "exposed_without_authentication",
    "load",
]
