"""The properties of MQTT 5 as values [MQTT5-2.2.2]. :mod:`holdfast.wire.property_codec` reads and writes them."""

from __future__ import annotations

from holdfast.hot_values import hot_frozen

#: used like a packet type, for the properties of the Will Message, which are in CONNECT's payload
WILL = 0


@hot_frozen(kw_only=True)
class Properties:
    """The properties of one packet; None means absent. User Properties keep their order [MQTT5-3.3.2-18]."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES = Properties()
