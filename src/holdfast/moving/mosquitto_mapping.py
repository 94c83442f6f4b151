"""From a mosquitto.conf to Holdfast's files: the configuration, the passwords, the rules, and the report.

How it works. Each listener becomes a table. Access is worked out for each listener, as mosquitto does: the settings of
the listener itself with ``per_listener_settings``, and those of the whole broker without. From them come its methods:

    use_identity_as_username true      the certificate; nobody asks for a password
    password_file, dynamic security    a password file each
    none, and allow_anonymous true     no method: every client is a guest
    none, and allow_anonymous false    an empty password file: nobody is admitted, as before

Nothing that is written opens more than mosquitto did. A listener that Holdfast cannot limit in the same way is left
out (``psk_hint``, ``mount_point``), or listens on this machine only (``bind_interface``), and the report says so.
Passwords and ACL files are copied, since mosquitto goes on with its own; certificates are named where they are, since
they are renewed there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from attrs import define, field

from holdfast.config.toml import display_name
from holdfast.core.terminal import counted
from holdfast.moving.broker_settings import (
    INFINITY,
    LEVELS,
    LOG_LEVELS,
    MISSING,
    MISSING_OF_LISTENER,
    SAME,
    TAKEN,
    Unmapped,
)
from holdfast.moving.dynamic_security import read_dynamic_security, rules_of, users_of
from holdfast.moving.files import Table, Value, toml_text
from holdfast.moving.mosquitto_bridges import MovedBridges
from holdfast.moving.mosquitto_conf import DEFAULT_PORT, Listener, MosquittoConf, Plugin, Setting, located
from holdfast.moving.mosquitto_listeners import LOOPBACK, ListenerParts, is_set
from holdfast.moving.report import Entry, Report
from holdfast.moving.rules import EVERYTHING, PUBLISH, SUBSCRIBE, MovedRule, RuleBook, Subject
from holdfast.moving.users import Users, read_hashes, text_at

#: names of written files
CONFIG, RULES, REPORT = "holdfast.toml", "rules.toml", "migration.md"
_PASSWORDS, _ACL = "passwords", "acl"
_CERTIFICATES = "certificates"
#: plugins of mosquitto 2.1 that stand for keywords, with the option that names their file
_PASSWORD_PLUGIN, _ACL_PLUGIN = "mosquitto_password_file", "mosquitto_acl_file"
_DYNAMIC_SECURITY = "mosquitto_dynamic_security"


@define
class Move:
    """The files by their names, and the report, which is among them."""

    report: Report
    files: dict[str, str] = field(factory=dict)


def move_mosquitto(
    conf: MosquittoConf, users: Users | None = None, notes: Report | None = None, title: str = ""
) -> Move:
    """Return what a mosquitto.conf means for Holdfast. Raises ConfigError for files that cannot be read.

    ``users`` can log in through every listener, ``notes`` are earlier entries of the report, ``title`` is its own one.
    """
    mapping = _Mapping(conf, title or f"From mosquitto to Holdfast: {display_name(conf.path)}")
    if users is not None:
        mapping.add_users(users)
    return mapping.move(notes.entries if notes is not None else ())


@define(eq=False)
class _Access:
    """How the clients of one listener prove who they are, and which file has their rules."""

    methods: list[str] = field(factory=list)
    guests: bool = False
    acl: str = ""  #: the name of the source of rules; empty for none
    dynamic: Plugin | None = None


class _Mapping:
    """Makes the files of one configuration, and notes each setting in the report."""

    def __init__(self, conf: MosquittoConf, title: str) -> None:
        self._conf = conf
        self._report = Report(title)
        self._files: dict[str, str] = {}
        self._values: dict[str, dict[str, Value]] = {}
        self._users: dict[str, Users] = {}  #: by method
        self._by_path: dict[tuple[str, Path], str] = {}  #: the copies of files, by kind and place
        self._names: dict[Listener, str] = {}
        self._access: dict[Listener, _Access] = {}
        self._parts = ListenerParts(conf, self._report, self._files, self._names)
        self._certificates: dict[str, str] = {}  #: the part of the certificate with the name, by method

    def add_users(self, users: Users) -> None:
        """Let these users log in through every listener."""
        self._users[_PASSWORDS] = users
        self._by_path[_PASSWORDS, Path()] = _PASSWORDS

    def move(self, notes: Iterable[Entry] = ()) -> Move:
        conf = self._conf
        self._report.entries += notes
        listeners = [each for each in self._present_listeners() if self._is_possible(each)]
        for listener in listeners:
            self._names[listener] = self._name_of(listener)
        for listener in listeners:
            self._access[listener] = self._access_of(listener)
        tables = [table for listener in listeners for table in self._listener_tables(listener)]
        self._broker_settings()
        self._log_settings()
        authorization = self._authorization()
        for plugin in conf.plugins:
            self._unknown_plugin(plugin)
        moved = MovedBridges(conf.path, self._report, self._files)
        bridges = [table for bridge in conf.bridges for table in moved.tables(bridge)]
        for setting in conf.unknown:
            advice = "is no keyword of mosquitto 2.0 or 2.1, which refuse it; remove it, or look up the intended one"
            self._report.missing(setting.origin, setting.keyword, advice)
        general = [Table((name,), values) for name, values in self._values.items() if name != "authorization"]
        heading = [
            f"Made from {display_name(conf.path)} by holdfast migrate: see {REPORT}.",
            "Check it with: holdfast check-config holdfast.toml",
        ]
        config = toml_text(
            heading,
            [
                Table(("node",), {"data_dir": "data"}),
                *tables,
                *self._authentication(),
                *authorization,
                *general,
                *bridges,
            ],
        )
        self._files = {CONFIG: config, **self._files}
        for method, users in self._users.items():
            self._files[method] = users.text()
        self._files[REPORT] = self._report.markdown()
        return Move(self._report, self._files)

    # Listeners.

    def _present_listeners(self) -> list[Listener]:
        conf = self._conf
        if not conf.is_local_only:
            return conf.listeners
        self._report.taken(
            "", "no listener", f"one on this machine only, on the port {DEFAULT_PORT}, as with mosquitto"
        )
        for listener in conf.listeners:
            for setting in (*listener.settings.values(), *listener.origins):
                advice = "has no effect in mosquitto either: neither listener nor port is given; add one"
                self._report.missing(setting.origin, str(setting), advice)
        return [Listener("", DEFAULT_PORT, LOOPBACK)]

    def _is_possible(self, listener: Listener) -> bool:
        """Tell whether Holdfast can have this listener. If not, the report tells why it is left out."""
        settings = listener.settings
        for keyword, advice in (
            ("psk_hint", "left out: no TLS with pre-shared keys; give the listener a certificate"),
            (
                "mount_point",
                "left out: topics have no prefix of a listener; write rules, and let clients use whole topics",
            ),
        ):
            if keyword in settings:
                self._report.missing(settings[keyword].origin, f"{listener}, {settings[keyword]}", advice)
                return False
        if "protocol" in settings and settings["protocol"].value == "http_api":
            advice = "left out: Holdfast's own API and dashboard are at admin.endpoint"
            self._report.missing(settings["protocol"].origin, f"{listener}, {settings['protocol']}", advice)
            return False
        return True

    def _name_of(self, listener: Listener) -> str:
        """Return a name for the table: of the use and the port, and unique."""
        if listener.is_unix:
            use = "local"
        elif is_set(listener, "protocol", "websockets"):
            use = "web"
        else:
            use = "tls" if "certfile" in listener.settings else "mqtt"
        name = use if listener.is_unix else f"{use}-{listener.port}"
        unique, number = name, 2
        while unique in self._names.values():
            unique, number = f"{name}-{number}", number + 1
        return unique

    def _listener_tables(self, listener: Listener) -> Iterable[Table]:
        name, access = self._names[listener], self._access[listener]
        endpoint, is_loopback = self._parts.endpoint(listener)
        table = Table(("listeners", name), {"endpoint": endpoint})
        self._report.taken(listener.origin, str(listener), f"listeners.{name}, {endpoint}")
        settings = dict(listener.settings)
        if is_set(listener, "protocol", "websockets"):
            table.values["transport"] = "websocket"
            table.values["origins"] = [str(each.value) for each in listener.origins] or ["*"]
            if not listener.origins:
                table.remarks["origins"] = "as before: the pages of every host; better name yours"
                advice = "mosquitto lets the pages of every host connect, so origins is *; better name your pages there"
                self._report.taken(listener.origin, "websockets_origin (not set)", advice)
            for each in listener.origins:
                self._report.taken(each.origin, str(each), f"listeners.{name}.origins")
        if self._all_methods() and (access.methods != self._all_methods() or not access.methods):
            table.values["authentication"] = list(access.methods)
        if access.guests:
            table.values["allow_anonymous"] = True
        tls = self._parts.tls(listener)
        sends_secrets = any(method not in self._certificates for method in access.methods)
        if sends_secrets and tls is None and not is_loopback:
            table.values["allow_plaintext"] = True
            table.remarks["allow_plaintext"] = "passwords without TLS, as before"
        connections = settings.get("max_connections")
        if connections is not None:
            number = connections.value
            assert isinstance(number, int)
            table.values["max_connections"] = number if number > 0 else INFINITY
            self._report.taken(connections.origin, str(connections), f"listeners.{name}.max_connections")
        zone: dict[str, Value] = {}
        for keyword, option in (("max_qos", "max_qos_allowed"), ("max_topic_alias", "max_topic_alias")):
            if keyword in settings:
                number = settings[keyword].value
                assert isinstance(number, int)
                zone[option] = number
                self._report.taken(settings[keyword].origin, str(settings[keyword]), f"zones.{name}.mqtt.{option}")
        if zone:
            table.values["zone"] = name
        self._listener_rest(settings, name)
        yield table
        if tls is not None:
            yield Table(("listeners", name, "tls"), tls)
        if zone:
            yield Table(("zones", name, "mqtt"), zone)

    def _listener_rest(self, settings: dict[str, Setting], name: str) -> None:
        """Report the settings of a listener that have no effect on its table."""
        for keyword, setting in settings.items():
            if keyword in MISSING_OF_LISTENER:
                off = setting.value is False
                note = self._report.same if off else self._report.missing
                note(
                    setting.origin, str(setting), "false is how Holdfast works" if off else MISSING_OF_LISTENER[keyword]
                )
            elif keyword == "dhparamfile":
                self._report.same(setting.origin, str(setting), SAME[keyword])
            elif keyword == "protocol":
                self._report.taken(setting.origin, str(setting), f"listeners.{name}.transport")
            elif keyword in MISSING and self._conf.per_listener:
                self._without_option(setting)

    # Who the clients are.

    def _access_of(self, listener: Listener) -> _Access:
        conf = self._conf
        settings = conf.access_of(listener)
        access = _Access(guests=self._admits_guests(listener, settings))
        plugins = [plugin for plugin in conf.plugins if plugin.listeners is None or listener in plugin.listeners]
        password_files = (
            [(settings["password_file"], settings["password_file"].text)] if "password_file" in settings else []
        )
        acl_files = [(settings["acl_file"], settings["acl_file"].text)] if "acl_file" in settings else []
        for plugin in plugins:
            for module, option, files in (
                (_PASSWORD_PLUGIN, "password_file", password_files),
                (_ACL_PLUGIN, "acl_file", acl_files),
            ):
                if plugin.module == module and option in plugin.options:
                    files.append((plugin.options[option], plugin.options[option].text))
        part = self._parts.names_users(listener)
        if part:
            access.methods.append(self._certificate_method(part, listener))
            for setting, _ in password_files:
                advice = f"{listener}: users are named by their certificates, so no password is asked, as before"
                self._report.same(setting.origin, setting.keyword, advice)
        else:
            access.methods += dict.fromkeys(self._password_method(setting, text) for setting, text in password_files)
        if (_PASSWORDS, Path()) in self._by_path:
            access.methods.insert(0, _PASSWORDS)
        for plugin in plugins:
            if plugin.module == _DYNAMIC_SECURITY and "config_file" in plugin.options:
                access.dynamic = plugin
                if not part:
                    access.methods.append(self._dynamic_method(plugin))
        if not access.methods and not access.guests:
            access.methods.append(_PASSWORDS)
            self._users.setdefault(_PASSWORDS, Users())
            advice = "nobody is admitted yet, as by mosquitto itself: add users with holdfast passwd add passwords USER"
            self._report.missing(listener.origin, f"{listener}, no users", advice)
        if acl_files:
            setting, text = acl_files[-1]
            access.acl = self._acl_source(setting, text)
            if access.dynamic is not None:
                advice = "acl_file decides for this listener, so the rules of the plugin are not taken over"
                self._report.missing(access.dynamic.origin, "dynamic security beside acl_file", advice)
                access.dynamic = None
            if not access.methods:
                advice = "no password is asked, so no User Name is proven: only the lines for guests and %c count"
                self._report.missing(setting.origin, f"{listener}, names in the ACL file", advice)
        return access

    def _admits_guests(self, listener: Listener, settings: dict[str, Setting]) -> bool:
        own = listener.settings.get("listener_allow_anonymous")
        setting = own or settings.get("allow_anonymous")
        if setting is None:
            return self._conf.is_local_only
        name = f"listeners.{self._names[listener]}.allow_anonymous"
        note = self._report.taken if setting.value else self._report.same
        note(setting.origin, str(setting), name if setting.value else f"{name} is false")
        return bool(setting.value)

    def _certificate_method(self, part: str, listener: Listener) -> str:
        name = _CERTIFICATES if part == "common_name" else f"{_CERTIFICATES}-{part}"
        self._certificates[name] = part
        keyword = "use_identity_as_username" if part == "common_name" else "use_subject_as_username"
        setting = listener.settings[keyword]
        self._report.taken(setting.origin, str(setting), f"authentication.{name}")
        return name

    def _copy_name(self, kind: str, path: Path) -> tuple[str, bool]:
        """Return the name for the copy of a file, and whether it is new."""
        name = self._by_path.get((kind, path))
        if name is not None:
            return name, False
        taken = [each for (one, _), each in self._by_path.items() if one == kind]
        name = kind if not taken else f"{kind}-{len(taken) + 1}"
        self._by_path[kind, path] = name
        return name, True

    def _password_method(self, setting: Setting, text: str) -> str:
        path = located(Path(text), self._conf.path)
        name, is_new = self._copy_name(_PASSWORDS, path)
        if is_new:
            self._users[name] = read_hashes(path, setting.origin, setting.keyword, self._report)
            remark = f"authentication.{name}, a copy with {counted(len(self._users[name].hashes), 'user')}"
            self._report.taken(setting.origin, f"{setting.keyword} {text}", remark)
        return name

    def _dynamic_method(self, plugin: Plugin) -> str:
        setting = plugin.options["config_file"]
        path = located(Path(setting.text), self._conf.path)
        name, is_new = self._copy_name(_PASSWORDS, path)
        if is_new:
            self._users[name] = users_of(read_dynamic_security(path, setting.origin), self._report)
            remark = f"authentication.{name}, {counted(len(self._users[name].hashes), 'user')}"
            self._report.taken(setting.origin, f"{setting.keyword} {setting.text}", remark)
        return name

    def _acl_source(self, setting: Setting, text: str) -> str:
        path = located(Path(text), self._conf.path)
        name, is_new = self._copy_name(_ACL, path)
        if is_new:
            self._files[name] = text_at(path, setting.origin, setting.keyword)
            self._report.taken(setting.origin, f"{setting.keyword} {text}", f"authorization.{name}, a copy")
        return name

    def _all_methods(self) -> list[str]:
        return list(dict.fromkeys(method for access in self._access.values() for method in access.methods))

    def _authentication(self) -> Iterable[Table]:
        for method in self._all_methods():
            if method in self._certificates:
                part = self._certificates[method]
                values: dict[str, Value] = {"type": "certificate", "name": part, "ignore_username": True}
            else:
                values = {"type": "file", "path": method}
            yield Table(("authentication", method), values)

    # What they may do.

    def _authorization(self) -> list[Table]:
        """Return the tables about rules. Every listener has an ACL file, dynamic security, or may do everything."""
        sources: dict[str, list[str]] = {}
        dynamic: dict[Plugin, list[str]] = {}
        free = []
        for listener, access in self._access.items():
            name = self._names[listener]
            if access.acl:
                sources.setdefault(access.acl, []).append(name)
            elif access.dynamic is not None:
                dynamic.setdefault(access.dynamic, []).append(name)
            else:
                free.append(name)
        values: dict[str, Value] = dict(self._values.pop("authorization", {}))
        if not sources and not dynamic:
            if self._all_methods():
                advice = "everyone may do everything; only $SYS/# needs a name in authorization.administrators"
                self._report.missing("", "no acl_file", advice)
            return [Table(("authorization",), values)] if values else []
        everyone = len(self._access)
        book = RuleBook()
        if free:
            subject = Subject(listeners=tuple(free))
            book.add(MovedRule(subject, True, (*PUBLISH, *SUBSCRIBE), EVERYTHING, "no acl_file: everything is allowed"))
            self._report.taken("", f"no acl_file for {', '.join(free)}", f"a rule in {RULES} that allows everything")
        for plugin, names in dynamic.items():
            setting = plugin.options["config_file"]
            found = read_dynamic_security(located(Path(setting.text), self._conf.path), setting.origin)
            moved = rules_of(found, self._report, () if len(names) == everyone else tuple(names))
            book.groups |= moved.groups
            book.rules += moved.rules
        tables = []
        names = list(sources)
        for source, listeners in sources.items():
            table = Table(("authorization", source), {"type": "mosquitto", "path": source})
            if len(listeners) < everyone:
                table.values["listeners"] = listeners
            tables.append(table)
        if book.rules:
            names.append("rules")
            tables.append(Table(("authorization", "rules"), {"type": "file", "path": RULES}))
            self._files[RULES] = book.text(["Made by holdfast migrate. The first rule that matches decides."])
        if dynamic:
            values["subscribe_partially"] = True
        return [Table(("authorization",), {"sources": names, **values}), *tables]

    # The broker as a whole.

    def _broker_settings(self) -> None:
        settings = self._conf.settings
        for keyword, setting in settings.items():
            if keyword in TAKEN:
                self._option(setting)
            elif keyword in SAME:
                self._report.same(setting.origin, str(setting), SAME[keyword])
            elif keyword in MISSING and keyword != "log_dest":
                self._without_option(setting)
        if "persistent_client_expiration" not in settings:
            self._values.setdefault("mqtt", {})["session_expiry_interval"] = INFINITY
            advice = (
                "mqtt.session_expiry_interval is infinity, as before; a limit such as 14d would remove old Sessions"
            )
            self._report.taken("", "persistent_client_expiration (not set)", advice)

    def _option(self, setting: Setting) -> None:
        counterpart = TAKEN[setting.keyword]
        option = f"{counterpart.table}.{counterpart.key}"
        if setting.keyword == "message_size_limit" and "max_packet_size" in self._conf.settings:
            self._report.missing(setting.origin, str(setting), f"max_packet_size counts for {option}")
            return
        try:
            value = counterpart.value(setting.value)
        except Unmapped as unmapped:
            self._report.missing(setting.origin, str(setting), unmapped.advice)
            return
        self._values.setdefault(counterpart.table, {})[counterpart.key] = value
        self._report.taken(setting.origin, str(setting), option)

    def _without_option(self, setting: Setting) -> None:
        if setting.keyword == "allow_zero_length_clientid" and setting.value:
            self._report.same(setting.origin, str(setting), "Client Identifiers may be empty")
        elif setting.value is False:
            self._report.same(setting.origin, str(setting), "false is how Holdfast works")
        else:
            self._report.missing(setting.origin, str(setting), MISSING[setting.keyword])

    def _log_settings(self) -> None:
        levels = []
        for setting in self._conf.repeated:
            if setting.keyword == "log_type":
                levels.append(LOG_LEVELS[str(setting.value)])
                self._report.taken(setting.origin, str(setting), "log.level, which is the least important of all")
            elif str(setting.value).split(" ", 1)[0] in ("stdout", "stderr"):
                self._report.same(setting.origin, str(setting), "the log goes to standard output")
            else:
                self._report.missing(setting.origin, str(setting), MISSING["log_dest"])
        if levels:
            self._values.setdefault("log", {})["level"] = min(levels, key=LEVELS.index)

    def _unknown_plugin(self, plugin: Plugin) -> None:
        known = {_PASSWORD_PLUGIN: "password_file", _ACL_PLUGIN: "acl_file", _DYNAMIC_SECURITY: "config_file"}
        needed = known.get(plugin.module)
        if needed in plugin.options:
            return
        options = ", ".join(sorted(plugin.options)) or "none"
        advice = f"options: {options}; ask an HTTP service, tokens or certificates instead (identity-sources.md)"
        if plugin.module == "mosquitto_persist_sqlite":
            advice = "Holdfast has its own database; import the retained messages (docs/pipeline/import.md)"
        self._report.missing(plugin.origin, f"plugin {plugin.module}", advice)
