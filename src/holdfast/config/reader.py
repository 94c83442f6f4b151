"""From a TOML document to the objects of the configuration. All problems are collected, none ends the reading."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from attrs import frozen

from holdfast.config.options import (
    Form,
    InvalidValue,
    Option,
    Section,
    Subsection,
    Variants,
    described,
    invalid_value,
    variants_of,
)
from holdfast.config.toml import dotted, literal

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_ALLOWED = "names of 1 to 64 letters, digits, - and _"

#: names of keys; of a table in an array, its number from 1 on
KeyPath = tuple[str, ...]
SectionT = TypeVar("SectionT", bound=Section)


@frozen
class KeyProblem:
    """A problem of the key with this path."""

    path: KeyPath
    message: str
    #: The problem is ignored if one of these keys is rejected: that key then has its default, not its value in the
    #: file.
    needs: tuple[KeyPath, ...] = ()


class Reader:
    """Reads documents of one root section, and collects the ``problems``, and the keys of EMQX that are ``ignored``."""

    def __init__(self, root: type[Section]) -> None:
        self.problems: list[KeyProblem] = []
        self.ignored: list[KeyProblem] = []
        self._rejected: set[KeyPath] = set()
        self._known: dict[str, list[str]] = {}
        self._learn(root, ())

    def reject(self, path: KeyPath, message: str) -> None:
        """Note the problem of a key, which is not used then."""
        self.problems.append(KeyProblem(path, message))
        self._rejected.add(path)

    def add(self, problem: KeyProblem) -> None:
        """Note a problem of several keys together, unless one of them is rejected already."""
        if not any(path[:depth] in self._rejected for path in problem.needs for depth in range(1, len(path) + 1)):
            self.problems.append(problem)

    def section(self, section: type[SectionT], found: object, path: KeyPath) -> SectionT:
        """Return the section of a table. A rejected key has its default."""
        if section.further_names and isinstance(found, dict):
            found = self._with_own_names(section, found, path)
        values = self._values(section, found, path)
        built = section(**values)
        # Problems of options together come last: only here are the defaults of missing keys known.
        for key, message, involved in built.problems(values):
            self.add(KeyProblem((*path, key), message, tuple((*path, other) for other in involved)))
        return built

    def _values(self, section: type[Section], found: object, path: KeyPath) -> dict[str, Any]:
        if not isinstance(found, dict):
            self.reject(path, str(invalid_value(found, f"a table, [{dotted(path)}]")))
            return {}
        known = described(section)
        named = variants_of(section)
        values: dict[str, Any] = {}
        variants: dict[str, Section] = {}
        if named is not None:
            values[named[0]] = variants
        for key, value in found.items():
            here = (*path, key)
            match known.get(key):
                case None if named is not None and isinstance(value, dict):
                    variant = self._variant(named[1], value, here)
                    if variant is not None:
                        variants[key] = variant
                case None if (replacement := replacement_of(here)) is not None:
                    self.ignored.append(KeyProblem(here, f"known to EMQX, ignored here: {replacement}"))
                case None:
                    self.reject(here, explain(here, known, self._known))
                case Option(kind=kind):
                    try:
                        values[key] = kind.read(value)
                    except InvalidValue as invalid:
                        self.reject(here, str(invalid))
                case Subsection() as subsection:
                    values[key] = self._subsection(subsection, value, here)
        return values

    def _with_own_names(self, section: type[Section], found: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        """Return a table with the values of EMQX's further names under the names of their options. Notes both."""
        known = described(section)
        for names, own in section.further_names.items():
            *tables, last = names
            inner = found
            for table in tables:
                inner = inner.get(table, {})
            if not isinstance(inner, dict) or last not in inner:
                continue
            here, value, option = (*path, *names), inner[last], known[own]
            found = _without(found, names)
            assert isinstance(option, Option)
            try:
                option.kind.read(value)
            except InvalidValue as invalid:
                self.reject(here, str(invalid))
                continue
            if found.setdefault(own, value) != value:
                self.reject(here, f"another name of {own}, which has another value here; allowed: only one of them")
            else:
                own_path = dotted((*path, own))
                self.ignored.append(
                    KeyProblem(here, f"known to EMQX; here its name is {own_path}, which gets the value")
                )
        return found

    def _subsection(self, subsection: Subsection, found: object, path: KeyPath) -> object:
        match subsection.form:
            case Form.TABLE:
                return self.section(subsection.section, found, path)
            case Form.PARTIAL:
                return self._values(subsection.section, found, path)
            case Form.NAMED:
                return self._named(subsection.section, found, path)
            case Form.LISTED:
                return self._listed(subsection.section, found, path)

    def _named(self, section: type[Section], found: object, path: KeyPath) -> Mapping[str, Section]:
        if not isinstance(found, dict):
            self.reject(path, str(invalid_value(found, f"tables with a name, [{dotted([*path, 'NAME'])}]")))
            return {}
        for name in found:
            self._check_name((*path, name))
        return {name: self.section(section, value, (*path, name)) for name, value in found.items()}

    def _listed(self, section: type[Section], found: object, path: KeyPath) -> Sequence[Section]:
        if not isinstance(found, list):
            self.reject(path, str(invalid_value(found, f"an array of tables, [[{dotted(path)}]]")))
            return ()
        return tuple(self.section(section, value, (*path, str(number))) for number, value in enumerate(found, 1))

    def _variant(self, variants: Variants, found: dict[str, object], path: KeyPath) -> Section | None:
        """Return the section that the key ``type`` of a table names; None if the table cannot be used."""
        self._check_name(path)
        type_name = found.get("type")
        allowed = " or ".join(map(literal, variants.types))
        if type_name is None:
            self.reject(path, f"has no type; allowed: type = {allowed}")
            return None
        section = variants.types.get(type_name) if isinstance(type_name, str) else None
        if section is None:
            self.reject((*path, "type"), str(invalid_value(type_name, allowed)))
            return None
        return self.section(section, {key: value for key, value in found.items() if key != "type"}, path)

    def _check_name(self, path: KeyPath) -> None:
        if _NAME.fullmatch(path[-1]) is None:
            self.reject(path, f"not a name; allowed: {_NAME_ALLOWED}")

    def _learn(self, section: type[Section], path: KeyPath) -> None:
        """Note the paths of all keys, to suggest the right path for a key in the wrong table."""
        for key, entry in described(section).items():
            here = (*path, key)
            self._known.setdefault(key, []).append(dotted(here))
            if isinstance(entry, Subsection) and entry.form is Form.TABLE:
                self._learn(entry.section, here)
            elif isinstance(entry, Subsection) and entry.form is Form.NAMED:
                self._learn_named(entry.section, here)
            elif isinstance(entry, Subsection) and entry.form is Form.LISTED:
                self._learn(entry.section, here)
        named = variants_of(section)
        for variant in named[1].types.values() if named is not None else ():
            self._learn_named(variant, path)

    def _learn_named(self, section: type[Section], path: KeyPath) -> None:
        for key, entry in described(section).items():
            if isinstance(entry, Option):
                known = self._known.setdefault(key, [])
                here = dotted((*path, "NAME", key))
                if here not in known:  # several variants may have this key
                    known.append(here)
            elif isinstance(entry, Subsection) and entry.form is Form.TABLE and entry.section is not section:
                self._learn(entry.section, (*path, "NAME", key))


def _without(table: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a table without the key of this path."""
    first, *rest = names
    if not rest:
        return {key: value for key, value in table.items() if key != first}
    return {**table, first: _without(table[first], rest)}


# The message for an unknown key: the nearest known key, or that only EMQX has this key.
#
# Keys of EMQX whose purpose is served in another way are ignored with a warning, so that a table of its file can be
# used as it is. All other keys of EMQX are problems: without them, the broker would not do what its operator expects.


#: Keys of EMQX that Holdfast does not have (yet). ``*`` is any name of a zone or listener.
_EMQX = frozenset(
    f"{table}.{key}" if table else key
    for table, keys in {
        "": "actions alarm api_key auto_subscribe broker cluster conn_congestion"
        " connectors dashboard delayed durable_sessions durable_storage exhook flapping_detect gateway limiter"
        " overload_protection plugins prometheus psk_authentication rewrite rpc rule_engine slow_subs sources stats"
        " sys_topics sysmon telemetry topic_metrics",
        "listeners.*": "access_rules authentication bind enable enable_authn max_conn_rate max_connections"
        " mountpoint proxy_protocol proxy_protocol_timeout ssl_options tcp_options websocket",
        "log": "console file throttling audit",
        "mqtt": "client_attrs_init clientid_override exclusive_subscription keepalive_check_interval"
        " message_expiry_interval mqueue_default_priority mqueue_priorities peer_cert_as_clientid peer_cert_as_username"
        " retry_interval shared_subscription_initial_sticky_pick shared_subscription_strategy strict_mode"
        " use_username_as_clientid",
        "node": "name role",
        "zones.*": "conn_congestion durable_sessions flapping_detect overload_protection stats",
    }.items()
    for key in keys.split()
)

_MEMORY = "force_shutdown.max_bytes limits what waits for a connection, and limits.memory the whole broker"
_ERLANG = "it is about Erlang, in which Holdfast is not written"
#: Keys of EMQX that are not needed, and what takes their place.
_REPLACED = {
    "retainer.backend": "storage.url names the database of the retained messages",
    "retainer.external_backends": "storage.url names the database of the retained messages",
    "force_shutdown.max_heap_size": _MEMORY,
    "force_gc": _MEMORY,
    "zones.*.force_gc": _MEMORY,
    "listeners.*.acceptors": "one process accepts all connections",
    "mqtt.max_clientid_len": "a Client Identifier has at most 1024 bytes",
    "mqtt.await_rel_timeout": "a Packet Identifier of QoS 2 is kept until its PUBREL, or the end of its Session",
    "mqtt.response_information": "clients choose their own Response Topics",
    "node.cookie": _ERLANG,
    "node.max_ports": _ERLANG,
    "node.process_limit": _ERLANG,
}


def replacement_of(path: Sequence[str]) -> str | None:
    """Return what takes the place of a key of EMQX that is ignored; None for any other unknown key."""
    return _REPLACED.get(_generic(path))


def explain(path: Sequence[str], siblings: Collection[str], elsewhere: Mapping[str, Sequence[str]]) -> str:
    """Return the message for an unknown key.

    ``siblings`` are the known keys of its table. ``elsewhere`` maps the last part of each known dotted key to all
    dotted keys that end in it.
    """
    *parents, name = path
    if _generic(path) in _EMQX:
        return "known to EMQX, not supported here (yet)"
    if len(parents) == 2 and parents[0] == "listeners" and parents[1] in ("tcp", "ssl", "ws", "wss", "quic"):
        return "EMQX's listeners.TYPE.NAME is not supported here; write listeners.NAME with an endpoint"
    if name in elsewhere:
        return f"unknown key; did you mean {' or '.join(elsewhere[name])}?"
    near = get_close_matches(name, siblings, n=1)
    if near:
        return f"unknown key; did you mean {dotted([*parents, near[0]])}?"
    return f"unknown key; known here: {', '.join(sorted(siblings))}"


def _generic(path: Sequence[str]) -> str:
    """Return the dotted key with ``*`` in place of the operator's names."""
    match list(path):
        case ["zones", _, ("mqtt" | "force_shutdown") as table, *rest]:
            return dotted([table, *rest])
        case [("zones" | "listeners") as tables, _, *rest]:
            return ".".join([tables, "*", *rest])
        case plain:
            return dotted(plain)
