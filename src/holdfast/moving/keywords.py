"""The keywords of mosquitto.conf, as data: those of mosquitto 2.0 and 2.1, and aliases from older versions.

Each keyword has a scope, which tells what its line is about, and the form of its value. The table follows
``src/conf.c`` and the man page of mosquitto. A keyword that is not in it would also end a start of mosquitto.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from attrs import frozen


class Scope(Enum):
    """What a line is about."""

    BROKER = "broker"  #: the whole broker, wherever the line stands
    SECURITY = "security"  #: the whole broker; after per_listener_settings true, the last listener of the file
    LISTENER = "listener"  #: the last listener of the file; before the first one, the default listener
    PLUGIN = "plugin"  #: the last plugin of the file
    BRIDGE = "bridge"  #: the last connection of the file
    STRUCTURE = "structure"  #: begins something else: a listener, a plugin, a bridge, or other files


class WrongValue(ValueError):
    """A value has the wrong form. The text tells the allowed form."""


class Form(Protocol):
    """The form of a keyword's value."""

    def read(self, rest: str) -> object:
        """Return the value in the rest of a line, without blanks at its ends. Raises WrongValue."""


@frozen
class FlagForm:
    """true or false; further words are ignored, as by mosquitto."""

    def read(self, rest: str) -> bool:
        """Return the value; raises WrongValue."""
        word = _first(rest)
        if word in ("true", "1"):
            return True
        if word in ("false", "0"):
            return False
        raise WrongValue("allowed: true or false")


_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)")


@frozen
class NumberForm:
    """An integer, decimal, octal (0...) or hexadecimal (0x...)."""

    least: int = -(1 << 31)
    most: int = (1 << 31) - 1

    def read(self, rest: str) -> int:
        """Return the value; raises WrongValue."""
        word = _first(rest)
        allowed = f"allowed: an integer from {self.least} to {self.most}"
        if _NUMBER.fullmatch(word) is None:
            raise WrongValue(allowed)
        sign, digits = (-1 if word[0] == "-" else 1), word.lstrip("+-").lower()
        try:
            if digits.startswith("0x"):
                value = sign * int(digits, 16)
            else:
                value = sign * int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10)
        except ValueError:  # 08 is no octal number, and thousands of digits are no number
            raise WrongValue(allowed) from None
        if not self.least <= value <= self.most:
            raise WrongValue(allowed)
        return value


@frozen
class TextForm:
    """The rest of the line."""

    def read(self, rest: str) -> str:
        """Return the value; raises WrongValue."""
        if not rest:
            raise WrongValue("allowed: a text after the keyword and a space")
        return rest


@frozen
class WordForm:
    """The first word of the rest, one of some words; with ``others``, more text may follow it."""

    words: tuple[str, ...]
    others: bool = False

    def read(self, rest: str) -> str:
        """Return the value; raises WrongValue."""
        word = _first(rest)
        if word not in self.words:
            raise WrongValue(f"allowed: {', '.join(self.words[:-1])} or {self.words[-1]}")
        return rest if self.others else word


_UNITS = {"s": 1, "h": 3600, "d": 86400, "w": 7 * 86400, "m": 30 * 86400, "y": 365 * 86400}


@frozen
class PeriodForm:
    """A number and a unit: s, h, d, w, m (30 days) or y. The value is in seconds."""

    def read(self, rest: str) -> int:
        """Return the value in seconds; raises WrongValue."""
        word = _first(rest)
        found = re.fullmatch(r"([0-9]{1,9})([shdwmy])", word)
        if found is None or int(found[1]) == 0:
            raise WrongValue("allowed: a number of 1 or more and its unit: s, h, d, w, m (months) or y, as in 14d")
        return int(found[1]) * _UNITS[found[2]]


@frozen
class AnyForm:
    """Anything, for a keyword without effect."""

    def read(self, rest: str) -> str:
        """Return the text."""
        return rest


def _first(rest: str) -> str:
    return rest.split(" ", 1)[0].rstrip("\t")


@frozen
class Keyword:
    """One keyword. ``secret``: its value is never shown."""

    scope: Scope
    form: Form
    secret: bool = False


FLAG, TEXT, ANY, NUMBER = FlagForm(), TextForm(), AnyForm(), NumberForm()
_PORT = NumberForm(0, 65535)

_BROKER: Mapping[str, Form] = {
    "allow_duplicate_messages": FLAG,
    "autosave_interval": NUMBER,
    "autosave_on_changes": FLAG,
    "check_retain_source": FLAG,
    "clientid_prefixes": TEXT,
    "connection_messages": FLAG,
    "enable_control_api": FLAG,
    "global_max_clients": NUMBER,
    "global_max_connections": NUMBER,
    "log_dest": WordForm(("none", "syslog", "stdout", "stderr", "topic", "dlt", "android", "file"), others=True),
    "log_facility": NumberForm(0, 7),
    "log_timestamp": FLAG,
    "log_timestamp_format": TEXT,
    "log_type": WordForm((
        "none", "information", "notice", "warning", "error", "debug", "subscribe", "unsubscribe", "internal",
        "websockets", "all",
    )),
    "max_inflight_bytes": NUMBER,
    "max_inflight_messages": NumberForm(most=65535),
    "max_keepalive": NumberForm(0, 65535),
    "max_packet_size": NumberForm(least=20),
    "max_queued_bytes": NUMBER,
    "max_queued_messages": NUMBER,
    "memory_limit": NumberForm(0, (1 << 63) - 1),
    "message_size_limit": NumberForm(0, 268435455),
    "packet_buffer_size": NumberForm(0, 65535),
    "per_listener_settings": FLAG,
    "persistence": FLAG,
    "persistence_file": TEXT,
    "persistence_location": TEXT,
    "persistent_client_expiration": PeriodForm(),
    "pid_file": TEXT,
    "queue_qos0_messages": FLAG,
    "retain_available": FLAG,
    "retain_expiry_interval": NumberForm(least=1),
    "retry_interval": ANY,
    "set_tcp_nodelay": FLAG,
    "store_clean_interval": ANY,
    "sys_interval": NumberForm(0, 65535),
    "upgrade_outgoing_qos": FLAG,
    "user": TEXT,
    "websockets_log_level": NUMBER,
}  # fmt: skip
_SECURITY: Mapping[str, Form] = {
    "acl_file": TEXT,
    "allow_anonymous": FLAG,
    "allow_zero_length_clientid": FLAG,
    "auto_id_prefix": TEXT,
    "password_file": TEXT,
    "psk_file": TEXT,
}
_LISTENER: Mapping[str, Form] = {
    "accept_protocol_versions": TEXT,
    "bind_interface": TEXT,
    "cafile": TEXT,
    "capath": TEXT,
    "certfile": TEXT,
    "ciphers": TEXT,
    "ciphers_tls1.3": TEXT,
    "crlfile": TEXT,
    "dhparamfile": ANY,
    "disable_client_cert_date_checks": FLAG,
    "enable_proxy_protocol": NumberForm(1, 2),
    "http_dir": TEXT,
    "keyfile": TEXT,
    "listener_allow_anonymous": FLAG,
    "listener_auto_id_prefix": TEXT,
    "max_connections": NUMBER,
    "max_qos": NumberForm(0, 2),
    "max_topic_alias": NumberForm(0, 65535),
    "max_topic_alias_broker": NumberForm(0, 65535),
    "mount_point": TEXT,
    "protocol": WordForm(("mqtt", "websockets", "http_api")),
    "proxy_protocol_v2_require_tls": FLAG,
    "psk_hint": TEXT,
    "require_certificate": FLAG,
    "socket_domain": WordForm(("ipv4", "ipv6")),
    "tls_engine": TEXT,
    "tls_keyform": TEXT,
    "tls_version": TEXT,
    "use_identity_as_username": FLAG,
    "use_subject_as_username": FLAG,
    "use_username_as_clientid": FLAG,
    "websockets_origin": TEXT,
}
#: Begins with these: the rest of the keyword is the name of the plugin's option, and its value may be a secret.
PLUGIN_OPTIONS = ("plugin_opt_", "auth_opt_")
_STRUCTURE: Mapping[str, Form] = {
    "bind_address": TEXT,
    "connection": TEXT,
    "global_plugin": TEXT,
    "include_dir": TEXT,
    "listener": TEXT,
    "plugin": TEXT,
    "plugin_load": TEXT,
    "plugin_use": TEXT,
    "port": NumberForm(1, 65535),
}
#: What reads the lines of a bridge checks their values: holdfast.moving.mosquitto_bridges.
_BRIDGE = (
    "address", "bridge_alpn", "bridge_attempt_unsubscribe", "bridge_bind_address", "bridge_cafile", "bridge_capath",
    "bridge_certfile", "bridge_ciphers", "bridge_ciphers_tls1.3", "bridge_identity", "bridge_insecure",
    "bridge_keyfile", "bridge_max_packet_size", "bridge_max_topic_alias", "bridge_outgoing_retain",
    "bridge_protocol_version", "bridge_receive_maximum", "bridge_reload_type", "bridge_require_ocsp",
    "bridge_session_expiry_interval", "bridge_tcp_keepalive", "bridge_tcp_user_timeout", "bridge_tls_use_os_certs",
    "bridge_tls_version", "cleansession", "idle_timeout", "keepalive_interval", "local_cleansession", "local_clientid",
    "local_username", "notification_topic", "notifications", "notifications_local_only", "remote_clientid",
    "remote_username", "restart_timeout", "round_robin", "start_type", "threshold", "topic", "try_private",
)  # fmt: skip
_BRIDGE_SECRETS = ("bridge_psk", "local_password", "remote_password")

KEYWORDS: Mapping[str, Keyword] = {
    **{name: Keyword(Scope.BROKER, form) for name, form in _BROKER.items()},
    **{name: Keyword(Scope.SECURITY, form) for name, form in _SECURITY.items()},
    **{name: Keyword(Scope.LISTENER, form) for name, form in _LISTENER.items()},
    "tls_engine_kpass_sha1": Keyword(Scope.LISTENER, TEXT, secret=True),
    "auth_plugin_deny_special_chars": Keyword(Scope.PLUGIN, FLAG),
    **{name: Keyword(Scope.STRUCTURE, form) for name, form in _STRUCTURE.items()},
    **{name: Keyword(Scope.BRIDGE, ANY) for name in _BRIDGE},
    **{name: Keyword(Scope.BRIDGE, ANY, secret=True) for name in _BRIDGE_SECRETS},
}
#: other names of keywords, mostly of older versions
ALIASES: Mapping[str, str] = {
    "addresses": "address",
    "auth_plugin": "plugin",
    "clientid": "remote_clientid",
    "maximum_qos": "max_qos",
    "password": "remote_password",
    "retained_persistence": "persistence",
    "username": "remote_username",
    "websockets_headers_size": "packet_buffer_size",
}
