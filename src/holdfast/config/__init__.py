"""The configuration: one TOML file, read into immutable values, with all problems reported at once.

It knows the options, their limits and their texts; it does nothing with them.
May import ``topics`` and ``scheduling.rates``.
"""

from holdfast.config.document import Config, Zone, default, exposed_without_authentication, load
from holdfast.config.problems import ConfigError, ConfigProblem

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "Zone",
    "default",
    "exposed_without_authentication",
    "load",
]
