"""The bridges of a mosquitto.conf: each ``connection`` becomes a table [bridges.NAME], or the report tells why not.

How it works. The lines of a bridge are read in their order, and the last one of a keyword counts, except ``address``
and ``topic``. Holdfast's keys are mosquitto's words, so most lines are taken over as they are. A bridge is left out if
it would not work as before: with TLS by pre-shared keys, without an address, or without a topic that Holdfast can have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from attrs import define, field

from holdfast.config.sections.bridges import MQTT_3, MQTT_5, BridgeTopicConfig, parse_address
from holdfast.core.topics import MOST_LEVELS, InvalidTopicFilter, check_topic_filter
from holdfast.moving.files import Table, Value
from holdfast.moving.mosquitto_conf import DEFAULT_PORT, Bridge, Setting, located
from holdfast.moving.report import Report

_UNNAMED = re.compile(r"[^A-Za-z0-9_-]")
_VERSIONS = {"mqttv31": MQTT_3, "mqttv311": MQTT_3, "mqttv50": MQTT_5}
_DIRECTIONS = ("in", "out", "both")
#: the shortest keep alive that the option takes, in seconds
_SHORTEST_KEEP_ALIVE = 5
#: files of TLS by their keywords
_FILES = {"bridge_cafile": "ca", "bridge_certfile": "certificate", "bridge_keyfile": "key"}

#: lines that need no counterpart, with the reason
_SAME: Mapping[str, str] = {
    "bridge_attempt_unsubscribe": "the bridge gives up no subscriptions that it does not have",
    "bridge_max_topic_alias": "the bridge uses no Topic Aliases; the remote broker sees no difference",
    "bridge_session_expiry_interval": "the Session at the remote broker lasts until the bridge is removed",
    "idle_timeout": "the bridge is always connected",
    "local_cleansession": "the Session here is as that at the remote broker: cleansession",
    "local_clientid": "the bridge has a Client Identifier of its own here: $bridge/NAME",
    "local_password": "the bridge needs no login here",
    "local_username": "the bridge needs no login here",
    "threshold": "the bridge is always connected",
}
#: lines that have no counterpart, with what to do
_MISSING: Mapping[str, str] = {
    "bridge_alpn": "the bridge offers no protocol in TLS; use the remote broker's usual port",
    "bridge_bind_address": "the system chooses the address; set a route for the remote broker",
    "bridge_capath": "name one file with the authorities: bridges.NAME.tls.ca",
    "bridge_ciphers": "TLS 1.2 and 1.3 have safe ciphers only; nothing is to be done",
    "bridge_ciphers_tls1.3": "TLS 1.3 has safe ciphers only; nothing is to be done",
    "bridge_max_packet_size": "the bridge takes packets up to mqtt.max_packet_size; set that",
    "bridge_reload_type": "a reload connects changed bridges anew, at once; nothing is to be done",
    "bridge_require_ocsp": "OCSP is not asked; let the remote broker have certificates of short life",
    "bridge_tcp_keepalive": "keepalive_interval notices a lost connection; make it shorter",
    "bridge_tcp_user_timeout": "keepalive_interval notices a lost connection; make it shorter",
    "bridge_tls_version": "TLS 1.2 and 1.3 are used; nothing is to be done",
    "notification_topic": "the state is in the metrics and in holdfast bridge list, and no message tells it",
    "notifications_local_only": "the state is in the metrics and in holdfast bridge list, and no message tells it",
}


@define(eq=False)
class MovedBridges:
    """Makes the tables of bridges. ``files`` gets their passwords."""

    main: Path
    report: Report
    files: dict[str, str]
    _names: set[str] = field(factory=set, init=False)

    def tables(self, bridge: Bridge) -> list[Table]:
        """Return the tables of a bridge; none if it is left out."""
        name = self._name(bridge.name)
        move = _Move(bridge, name, self.main, Report(""))
        tables = list(move.tables())
        password = move.password
        if not tables:
            self._left_out(bridge, move.left_out)
            return []
        self._names.add(name)
        self.report.taken(bridge.origin, f"connection {bridge.name}", f"bridges.{name}")
        self.report.entries += move.report.entries
        if password is not None:
            self.files[f"bridge-{name}-password"] = password + "\n"
        return tables

    def _left_out(self, bridge: Bridge, why: str) -> None:
        lines = "; ".join(str(line) for line in bridge.lines) or "no lines"
        advice = f"left out: {why}; or let mosquitto go on as the bridge (docs/operator/bridges.md)"
        self.report.missing(bridge.origin, f"connection {bridge.name}: {lines}", advice)

    def _name(self, name: str) -> str:
        plain = _UNNAMED.sub("-", name)[:56] or "bridge"
        unique, number = plain, 2
        while unique in self._names:
            unique, number = f"{plain}-{number}", number + 1
        return unique


@define(eq=False)
class _Move:
    """One bridge on its way."""

    bridge: Bridge
    name: str
    main: Path
    report: Report
    password: str | None = None
    left_out: str = ""
    _values: dict[str, Value] = field(factory=dict, init=False)
    _remarks: dict[str, str] = field(factory=dict, init=False)
    _tls: dict[str, Value] | None = field(default=None, init=False)

    def tables(self) -> Iterator[Table]:
        last = {line.keyword: line for line in self.bridge.lines}
        for keyword, why in (
            ("bridge_psk", "there is no TLS with pre-shared keys; get a certificate for the remote broker"),
            ("bridge_identity", "there is no TLS with pre-shared keys; get a certificate for the remote broker"),
        ):
            if keyword in last:
                self.left_out = why
                return
        addresses = [self._address(text) for line in self._all("address") for text in line.text.split()]
        if not addresses or None in addresses:
            self.left_out = "no address is like HOST:PORT; correct the line address"
            return
        self._values["addresses"] = list(dict.fromkeys(each for each in addresses if each is not None))
        for line in self._all("address"):
            self._taken(line, "addresses")
        # Unlike Holdfast, mosquitto speaks MQTT 3.1.1 if nothing is said.
        self._values["protocol_version"] = MQTT_3
        for keyword, line in last.items():
            if keyword not in ("address", "topic"):
                self._line(keyword, line)
        self._password(last)
        topics = [table for line in self._all("topic") if (table := self._topic(line, last)) is not None]
        if not topics:
            self.left_out = "it has no topic that crosses; add a line topic"
            return
        if "notifications" not in last:
            setting = f"connection {self.bridge.name}, notifications (not set)"
            self.report.missing(self.bridge.origin, setting, _NO_NOTES)
        yield Table(("bridges", self.name), self._values, self._remarks)
        if self._tls is not None:
            yield Table(("bridges", self.name, "tls"), self._tls)
        yield from topics

    def _all(self, keyword: str) -> list[Setting]:
        return [line for line in self.bridge.lines if line.keyword == keyword]

    @staticmethod
    def _address(text: str) -> str | None:
        address = parse_address(text)
        if address is None:
            return None
        return text if address.port is not None else f"{text}:{DEFAULT_PORT}"

    def _taken(self, line: Setting, key: str) -> None:
        self.report.taken(line.origin, str(line), f"bridges.{self.name}.{key}")

    def _line(self, keyword: str, line: Setting) -> None:
        """Take over one line, or note why not."""
        text = line.text
        take = _TAKEN.get(keyword)
        if take is not None:
            key, read = take
            value = read(text)
            if value is None:
                self.report.missing(line.origin, str(line), f"the value has no counterpart; bridges.{self.name}.{key}")
            else:
                self._values[key] = value
                self._taken(line, key)
        elif keyword in _FILES:
            self._tls = {**(self._tls or {}), _FILES[keyword]: str(located(Path(text), self.main))}
            self._taken(line, f"tls.{_FILES[keyword]}")
        elif keyword == "bridge_tls_use_os_certs":
            if text == "true":
                self._tls = self._tls or {}
            self._taken(line, "tls")
        elif keyword == "restart_timeout":
            self._restart(line)
        elif keyword in ("remote_password", "bridge_outgoing_retain"):
            return  # with the User Name, and with the topics
        elif keyword in _OFF:
            off, advice = _OFF[keyword]
            note = self.report.same if text == off else self.report.missing
            note(line.origin, str(line), f"{off} is how Holdfast works" if text == off else advice)
        elif keyword in _SAME:
            self.report.same(line.origin, str(line), _SAME[keyword])
        else:
            if keyword == "bridge_capath":
                self._tls = self._tls or {}
            self.report.missing(line.origin, str(line), _MISSING.get(keyword, "has no counterpart"))

    def _restart(self, line: Setting) -> None:
        """Take over ``restart_timeout BASE [CAP]``; with one number, mosquitto waits for this time."""
        numbers = [int(word) for word in line.text.split() if word.isdigit()]
        if not numbers:
            self.report.missing(line.origin, str(line), "is no number of seconds; the default stays")
            return
        base = min(max(numbers[0], 1), 3600)
        self._values["restart_timeout"] = f"{base}s"
        self._values["restart_timeout_max"] = f"{min(max(base, *numbers[1:2]), 86400) if numbers[1:] else base}s"
        self._taken(line, "restart_timeout")

    def _password(self, last: Mapping[str, Setting]) -> None:
        line = last.get("remote_password")
        if line is None:
            return
        if "username" not in self._values:
            self.report.missing(
                line.origin, str(line), "a password needs a User Name: add remote_username, or remove it"
            )
            return
        self.password = line.text
        self._values["password"] = f"file:bridge-{self.name}-password"
        self._taken(line, "password")
        addresses = self._values["addresses"]
        assert isinstance(addresses, list)
        parsed = [parse_address(each) for each in addresses]
        if self._tls is None and not all(each is not None and each.is_loopback for each in parsed):
            self._values["allow_plaintext"] = True
            self._remarks["allow_plaintext"] = "the password without TLS, as before"

    def _topic(self, line: Setting, last: Mapping[str, Setting]) -> Table | None:
        """Return the table of ``topic FILTER [DIRECTION [QOS [LOCAL [REMOTE]]]]``, None if it cannot be had."""
        words = ["" if word == '""' else word for word in line.text.split()]
        words += ["", "out", "0", "", ""][len(words) :]
        pattern, direction, qos, local, remote = words[:5]
        if not pattern and local == remote:
            pattern, local, remote = local, "", ""
        if not pattern or direction not in _DIRECTIONS or qos not in ("0", "1", "2"):
            advice = "name the topic itself on both sides: a bridge of Holdfast changes the beginnings of topics only"
            self.report.missing(line.origin, str(line), advice)
            return None
        retain = "keep"
        plain = last.get("bridge_outgoing_retain")
        if plain is not None and plain.text == "false" and direction != "in":
            retain = "clear"
            if direction == "both":
                advice = "this clears RETAIN in both directions; write two lines, in and out, to clear it outwards only"
                self.report.missing(plain.origin, str(plain), advice)
        topic = BridgeTopicConfig(
            filter=pattern, direction=direction, qos=int(qos), local_prefix=local, remote_prefix=remote, retain=retain
        )
        problem = _problem(topic)
        if problem:
            self.report.missing(line.origin, str(line), f"{problem}; write another line")
            return None
        self._taken(line, "topics")
        values: dict[str, Value] = {"filter": pattern, "direction": direction, "qos": int(qos)}
        values |= {key: text for key, text in (("local_prefix", local), ("remote_prefix", remote)) if text}
        if retain != "keep":
            values["retain"] = retain
        return Table(("bridges", self.name, "topics"), values, is_element=True)


def _problem(topic: BridgeTopicConfig) -> str:
    """Return why Holdfast does not take a line; an empty string if it does."""
    try:
        check_topic_filter(topic.filter, MOST_LEVELS)
    except InvalidTopicFilter as invalid:
        return str(invalid)
    for _, message, _ in topic.problems({}):
        return message
    return ""


_NO_NOTES = "the state is in the metrics and in holdfast bridge list; no message tells it on $SYS/broker/connection"


def _flag(text: str) -> Value | None:
    return {"true": True, "false": False}.get(text)


def _seconds(text: str) -> Value | None:
    return f"{max(int(text), _SHORTEST_KEEP_ALIVE)}s" if text.isdigit() and 0 < int(text) < 64800 else None


def _window(text: str) -> Value | None:
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else None


#: the key of each keyword, and what reads its value; None: it has no counterpart
_TAKEN: Mapping[str, tuple[str, Callable[[str], Value | None]]] = {
    "bridge_protocol_version": ("protocol_version", _VERSIONS.get),
    "bridge_receive_maximum": ("max_inflight_messages", _window),
    "cleansession": ("cleansession", _flag),
    "keepalive_interval": ("keepalive_interval", _seconds),
    "remote_clientid": ("clientid", lambda text: text or None),
    "remote_username": ("username", lambda text: text or None),
    "try_private": ("try_private", _flag),
}
#: keywords of which one value is how Holdfast works, and what to do about the others
_OFF: Mapping[str, tuple[str, str]] = {
    "bridge_insecure": (
        "false",
        "the remote broker's certificate must have the host in addresses: correct one of both",
    ),
    "notifications": ("false", _NO_NOTES),
    "round_robin": ("false", "the addresses are tried in their order; nothing is to be done"),
    "start_type": ("automatic", "the bridge is always connected; pause it with holdfast bridge pause"),
}
