"""The rules of one receiver for the packets of its peer, beyond those of the standard."""

from __future__ import annotations

from attrs import frozen

_UNLIMITED = 1 << 62


@frozen
class Reception:
    """The rules of one receiver. The default accepts everything that the standard allows, from Clients and Servers.

    ``max_user_properties`` is the most User Properties of one packet or Will Message. ``max_properties_bytes`` is the
    longest Property Length, without Authentication Data. ``control_characters`` tells whether control characters and
    non-characters are accepted [MQTT5-1.5.4]. ``from_client`` refuses packets that only a Server may send.
    """

    max_user_properties: int = _UNLIMITED
    max_properties_bytes: int = _UNLIMITED
    control_characters: bool = True
    from_client: bool = False


EVERYTHING = Reception()
