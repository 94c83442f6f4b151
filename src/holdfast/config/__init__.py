"""The configuration file: one TOML file read into immutable values, with every problem reported at once."""

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
