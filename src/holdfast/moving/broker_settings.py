"""The settings of mosquitto's whole broker, as data: Holdfast's option for each, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import frozen

from holdfast.moving.files import Value

#: bytes
_KIB, _GIB = 1024, 1024 * 1024 * 1024
_LARGEST_PACKET = 268435455
_SMALLEST_PACKET = _KIB
_SMALLEST_MEMORY = 64 * 1024 * _KIB
_LONGEST_EXPIRY = 4294967295
#: bytes of a packet beside its payload, at most
_BESIDE_PAYLOAD = 64 * _KIB
INFINITY = "infinity"


@frozen
class Unmapped(ValueError):
    """A value has no counterpart. ``advice`` tells what to do."""

    advice: str


@frozen
class Counterpart:
    """An option of Holdfast, and its value for a value of mosquitto. ``value`` raises Unmapped."""

    table: str
    key: str
    value: Callable[[object], Value]


def _plain(value: object) -> Value:
    assert isinstance(value, bool | int | str)
    return value


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _packet_size(value: object) -> Value:
    size = _number(value)
    if size < _SMALLEST_PACKET:
        raise Unmapped(f"mqtt.max_packet_size is {_SMALLEST_PACKET} bytes or more; nothing was written")
    return min(size, _LARGEST_PACKET)


def _payload_size(value: object) -> Value:
    size = _number(value)
    if size == 0:
        raise Unmapped("0 is no limit; Holdfast has one, mqtt.max_packet_size (2 MB): set it as high as you need")
    return min(size + _BESIDE_PAYLOAD, _LARGEST_PACKET)


def _inflight(value: object) -> Value:
    number = _number(value)
    return number if 0 < number < 65535 else 65535


def _bytes_or_most(value: object) -> Value:
    size = _number(value)
    if size <= 0:
        raise Unmapped("0 is no limit; Holdfast's default limit stays: set the option as high as you need, up to 64GB")
    return min(max(size, _KIB), 64 * _GIB)


def _queue_length(value: object) -> Value:
    return _number(value) if _number(value) > 0 else INFINITY


def _keep_alive(value: object) -> Value:
    return _number(value) if 0 < _number(value) < 65535 else "disabled"


def _expiry(value: object) -> Value:
    return f"{min(_number(value), _LONGEST_EXPIRY)}s"


def _minutes(value: object) -> Value:
    return _expiry(_number(value) * 60)


def _interval(value: object) -> Value:
    return f"{_number(value)}s" if _number(value) else "disabled"


def _memory(value: object) -> Value:
    size = _number(value)
    if size == 0:
        return INFINITY
    if size < _SMALLEST_MEMORY:
        raise Unmapped("limits.memory is 64MB or more, for a Python program; set it to what the machine can spare")
    return size


#: what Holdfast has an option for
TAKEN: Mapping[str, Counterpart] = {
    "check_retain_source": Counterpart("authorization", "check_retain_source", _plain),
    "connection_messages": Counterpart("log", "connections", _plain),
    "max_inflight_bytes": Counterpart("mqtt", "max_inflight_bytes", _bytes_or_most),
    "max_inflight_messages": Counterpart("mqtt", "max_inflight", _inflight),
    "max_keepalive": Counterpart("mqtt", "max_keepalive", _keep_alive),
    "max_packet_size": Counterpart("mqtt", "max_packet_size", _packet_size),
    "max_queued_bytes": Counterpart("mqtt", "max_mqueue_bytes", _bytes_or_most),
    "max_queued_messages": Counterpart("mqtt", "max_mqueue_len", _queue_length),
    "memory_limit": Counterpart("limits", "memory", _memory),
    "message_size_limit": Counterpart("mqtt", "max_packet_size", _payload_size),
    "persistent_client_expiration": Counterpart("mqtt", "session_expiry_interval", _expiry),
    "queue_qos0_messages": Counterpart("mqtt", "mqueue_store_qos0", _plain),
    "retain_available": Counterpart("mqtt", "retain_available", _plain),
    "retain_expiry_interval": Counterpart("retainer", "msg_expiry_interval", _minutes),
    "sys_interval": Counterpart("sys_topics", "sys_msg_interval", _interval),
    "upgrade_outgoing_qos": Counterpart("mqtt", "upgrade_qos", _plain),
}

#: what needs no option
SAME: Mapping[str, str] = {
    "allow_duplicate_messages": "overlapping Subscriptions get a message each, as MQTT says",
    "autosave_interval": "every acknowledged change is in the database (storage.durability)",
    "autosave_on_changes": "every acknowledged change is in the database (storage.durability)",
    "dhparamfile": "TLS 1.2 and 1.3 need no such file",
    "log_timestamp": "every line of the log has its time",
    "log_timestamp_format": "the log has times by ISO 8601; the journal of systemd shows them in any form",
    "packet_buffer_size": "headers of WebSockets have a limit of their own",
    "per_listener_settings": "each listener names its methods: listeners.NAME.authentication",
    "persistence": "Holdfast always stores retained messages and Sessions",
    "set_tcp_nodelay": "all connections have TCP_NODELAY",
}

#: what has no option, with what to do
MISSING: Mapping[str, str] = {
    "allow_zero_length_clientid": "clients may leave their Client Identifier empty, and get one; nothing is to be done",
    "auto_id_prefix": "the broker chooses Client Identifiers by itself; write rules for User Names instead",
    "clientid_prefixes": "write rules with clients = [...], each name in full, or rules for User Names",
    "enable_control_api": "use the API ([admin]) and the holdfast commands instead of $CONTROL topics",
    "global_max_clients": "limit the Sessions of each user: limits.max_sessions",
    "global_max_connections": "limit each listener: listeners.NAME.max_connections",
    "log_dest": "the log goes to standard output, and to the journal with the unit for systemd",
    "log_facility": "the log goes to standard output; let the journal or the supervisor forward it",
    "persistence_file": "import its retained messages: see the page on importing (docs/pipeline/import.md)",
    "persistence_location": "Holdfast's data is in node.data_dir; import the retained messages of mosquitto.db",
    "pid_file": "not needed with the unit for systemd; twistd --pidfile writes one",
    "psk_file": "no TLS with pre-shared keys; give the clients certificates, or users with passwords",
    "retry_interval": "has had no effect since mosquitto 2.0: remove it",
    "store_clean_interval": "has had no effect since mosquitto 2.0: remove it",
    "user": "start Holdfast as this user, or with the unit for systemd, which has its own",
    "websockets_log_level": "set log.level",
}

#: what a listener has no option for, with what to do
MISSING_OF_LISTENER: Mapping[str, str] = {
    "accept_protocol_versions": "the listener takes MQTT 3.1, 3.1.1 and 5.0; nothing is to be done",
    "ciphers": "TLS 1.2 and 1.3 have safe ciphers only; set tls.minimum to exclude TLS 1.2",
    "ciphers_tls1.3": "TLS 1.3 has safe ciphers only; nothing is to be done",
    "disable_client_cert_date_checks": "certificates that have expired are refused; renew them",
    "http_dir": "serve files with a web server, and name its origin in listeners.NAME.origins",
    "listener_auto_id_prefix": "the broker chooses Client Identifiers by itself; write rules for User Names instead",
    "max_topic_alias_broker": "clients see no difference; nothing is to be done",
    "proxy_protocol_v2_require_tls": "let the proxy take connections with TLS only",
    "tls_engine": "keys are files in PEM form: export the key, or let a proxy with the engine end TLS",
    "tls_engine_kpass_sha1": "keys are files in PEM form: tls.key_password_file has the password of an encrypted one",
    "tls_keyform": "keys are files in PEM form: export the key, or let a proxy with the engine end TLS",
    "use_username_as_clientid": "write rules for User Names; a Session belongs to the user who began it",
}

#: levels of the log by mosquitto's types, the least important one first
LOG_LEVELS: Mapping[str, str] = {
    "all": "debug", "debug": "debug", "internal": "debug", "subscribe": "info", "unsubscribe": "info",
    "websockets": "info", "information": "info", "notice": "info", "warning": "warning", "error": "error",
    "none": "error",
}  # fmt: skip
LEVELS = ("debug", "info", "warning", "error")
