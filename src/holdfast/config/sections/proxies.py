"""Lists of proxies whose word about their clients is believed."""

from __future__ import annotations

from ipaddress import ip_network

from attrs import frozen

from holdfast.config.kinds import InvalidValue, invalid_value
from holdfast.config.toml.text import literal

#: stands for the peers of UNIX domain sockets among proxies
UNIX_PEERS = "unix"


@frozen
class Proxies:
    """The kind of options with a list of proxies, which may be ``empty``."""

    empty: bool = False

    @property
    def allowed(self) -> str:
        """The names in words."""
        number = "" if self.empty else "one or more "
        return (
            f'a list of {number}IP addresses, networks such as "10.0.0.0/8", and "unix" for the peers'
            " of UNIX domain sockets"
        )

    def read(self, value: object) -> tuple[str, ...]:
        """Return the names; raises InvalidValue."""
        if not isinstance(value, list) or not (value or self.empty):
            raise invalid_value(value, self.allowed)
        for name in value:
            if not isinstance(name, str):
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}")
            if name != UNIX_PEERS:
                self._check(name)
        return tuple(value)

    def _check(self, name: str) -> None:
        try:
            ip_network(name)
        except ValueError:
            try:
                network = ip_network(name, strict=False)
            except ValueError:
                raise InvalidValue(f"found {literal(name)} in the list; allowed: {self.allowed}") from None
            raise InvalidValue(
                f"found {literal(name)} in the list, which has bits after the prefix; did you mean"
                f" {literal(str(network))}?"
            ) from None
