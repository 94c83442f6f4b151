"""Reading a mosquitto.conf with its includes: listeners, plugins, bridges, and the settings of each.

How it works. Lines are read in their order, and each one belongs to something that an earlier line has begun:

    per_listener_settings true       from here on, access is a matter of each listener
    listener 1883                    begins a listener
    password_file /etc/a             is this listener's; without per_listener_settings, the whole broker's
    include_dir /etc/conf.d          reads other files here, in the order of their names
    connection cloud                 begins a bridge
    address 192.0.2.1                is this bridge's

The present listener, plugin and bridge are those of one file: an included file begins without any, and after it the
outer file goes on with its own. Listener's settings before the first ``listener`` of a file are for the default
listener, on the port 1883. mosquitto opens it only if ``port``, ``bind_address`` or a ``listener`` stands somewhere;
without all three it listens on this machine only, and forgets the settings of listeners.

Unknown keywords are collected, since a reader of the report decides about them. Values that mosquitto refuses are
problems: then nothing is moved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from attrs import define, field, frozen

from holdfast.config.toml import ConfigError, ConfigProblem, FileUnreadable, display_name, text_of
from holdfast.moving.keywords import ALIASES, KEYWORDS, PLUGIN_OPTIONS, Scope, WrongValue
from holdfast.moving.report import HIDDEN

#: files that one configuration may include
MOST_FILES = 1000
DEFAULT_PORT = 1883


@frozen
class Setting:
    """One line: its keyword, without an alias, and its value. ``origin`` is its place, as in ``mosquitto.conf:12``."""

    keyword: str
    value: object
    origin: str
    text: str  #: the rest of the line
    is_secret: bool = False

    def __str__(self) -> str:
        """Return the line for a report, without a secret."""
        return f"{self.keyword} {HIDDEN if self.is_secret else self.text}".rstrip()


Settings = dict[str, Setting]


@define(eq=False)
class Listener:
    """One listener. ``address`` is the address or host that it is bound to, or the path of a UNIX domain socket."""

    origin: str
    port: int = DEFAULT_PORT
    address: str = ""
    settings: Settings = field(factory=dict)
    origins: list[Setting] = field(factory=list)  #: of web pages: each websockets_origin

    @property
    def is_unix(self) -> bool:
        """Whether it is a UNIX domain socket."""
        return self.port == 0

    def __str__(self) -> str:
        return f"listener {self.port} {self.address}".rstrip()


@define(eq=False)
class Plugin:
    """One plugin, with its options. ``listeners`` are those that use it; None: the whole broker does."""

    origin: str
    path: str
    name: str = ""
    options: Settings = field(factory=dict)
    listeners: list[Listener] | None = None

    @property
    def module(self) -> str:
        """The name of its file, without folder and ending."""
        return Path(self.path).name.split(".", 1)[0]


@define(eq=False)
class Bridge:
    """One connection to another broker, with all its lines."""

    origin: str
    name: str
    lines: list[Setting] = field(factory=list)


@define(eq=False)
class MosquittoConf:
    """What a mosquitto.conf says. Of several lines with one keyword, the last one counts."""

    path: Path
    files: list[str] = field(factory=list)
    settings: Settings = field(factory=dict)  #: of the whole broker, with those about access
    repeated: list[Setting] = field(factory=list)  #: all lines with log_dest and log_type
    listeners: list[Listener] = field(factory=list)
    default_listener: Listener | None = None
    per_listener: bool = False
    is_local_only: bool = True  #: neither a listener nor a port is given
    plugins: list[Plugin] = field(factory=list)
    bridges: list[Bridge] = field(factory=list)
    unknown: list[Setting] = field(factory=list)

    def access_of(self, listener: Listener) -> Settings:
        """Return the settings about access that hold for a listener."""
        return listener.settings if self.per_listener else self.settings


def read_conf(path: Path) -> MosquittoConf:
    """Return the content of a mosquitto.conf and of the files that it includes. Raises ConfigError with all problems.

    If the file itself cannot be read, it is FileUnreadable.
    """
    conf = MosquittoConf(path)
    reader = _Reader(conf)
    reader.read(path, is_main=True)
    if reader.problems:
        raise ConfigError(reader.problems)
    return conf


def read_text(path: Path, name: str, text: str) -> MosquittoConf:
    """Return the content of a mosquitto.conf that is no file. ``name`` is for origins; paths begin at that of ``path``.

    Raises ConfigError.
    """
    conf = MosquittoConf(path, files=[name])
    reader = _Reader(conf)
    reader.take(name, text, is_main=True)
    if reader.problems:
        raise ConfigError(reader.problems)
    return conf


class _Refused(ValueError):
    """mosquitto refuses this line. The text tells what is allowed, and what to do."""


@define(eq=False)
class _Context:
    """What the lines of one file belong to."""

    listener: Listener | None = None
    plugin: Plugin | None = None
    bridge: Bridge | None = None


class _Reader:
    """Reads files into one configuration, and collects their problems."""

    def __init__(self, conf: MosquittoConf) -> None:
        self.problems: list[ConfigProblem] = []
        self._conf = conf
        self._has_access = False

    def read(self, path: Path, *, is_main: bool) -> None:
        name = display_name(path)
        if len(self._conf.files) == MOST_FILES:
            raise ConfigError([ConfigProblem(name, None, "", f"this is one file more than {MOST_FILES}, the most")])
        self._conf.files.append(name)
        self.take(name, text_of(path), is_main=is_main)

    def take(self, name: str, content: str, *, is_main: bool) -> None:
        context = _Context()
        for number, line in enumerate(content.split("\n"), 1):
            text = line.strip(" \t\r")
            if not text or text.startswith("#"):
                continue
            found, _, rest = text.replace("\t", " ", 1).partition(" ") if "\t" in text else text.partition(" ")
            keyword = ALIASES.get(found, found)
            try:
                self._take(keyword, rest.strip(" \t"), name, number, context, is_main)
            except _Refused as refused:
                self.problems.append(ConfigProblem(name, number, found, str(refused)))
            except WrongValue as wrong:
                shown = f"found {rest.strip()!r}; " if keyword not in KEYWORDS or not KEYWORDS[keyword].secret else ""
                advice = f"{shown}{wrong}; correct the line, since mosquitto refuses it as well"
                self.problems.append(ConfigProblem(name, number, found, advice))

    def _take(self, keyword: str, rest: str, name: str, number: int, context: _Context, is_main: bool) -> None:
        origin = f"{name}:{number}"
        for prefix in PLUGIN_OPTIONS:
            if keyword.startswith(prefix):
                self._plugin_option(keyword, rest, origin, prefix, context)
                return
        known = KEYWORDS.get(keyword)
        if known is None:
            self._conf.unknown.append(Setting(keyword, HIDDEN, origin, HIDDEN, is_secret=True))
            return
        setting = Setting(keyword, known.form.read(rest), origin, rest, known.secret)
        match known.scope:
            case Scope.BROKER:
                self._broker(setting)
            case Scope.SECURITY:
                self._has_access = True
                if self._conf.per_listener:
                    self._listener(context).settings[keyword] = setting
                else:
                    self._conf.settings[keyword] = setting
            case Scope.LISTENER:
                listener = self._listener(context)
                if keyword == "websockets_origin":
                    listener.origins.append(setting)
                else:
                    listener.settings[keyword] = setting
            case Scope.PLUGIN:
                self._plugin(context).options[keyword] = setting
            case Scope.BRIDGE:
                if context.bridge is None:
                    raise _Refused(
                        "stands before any connection of this file; allowed: after a line connection NAME of the same"
                        " file; move it there"
                    )
                context.bridge.lines.append(setting)
            case Scope.STRUCTURE:
                self._structure(setting, context, is_main)

    def _broker(self, setting: Setting) -> None:
        conf = self._conf
        if setting.keyword == "per_listener_settings":
            if setting.value and not conf.per_listener and self._has_access:
                raise _Refused(
                    "stands after settings about access; allowed: before password_file, acl_file, allow_anonymous and"
                    " the like; move it to the beginning"
                )
            conf.per_listener = conf.per_listener or bool(setting.value)
        if setting.keyword in ("log_dest", "log_type"):
            conf.repeated.append(setting)
        conf.settings[setting.keyword] = setting

    def _structure(self, setting: Setting, context: _Context, is_main: bool) -> None:
        conf, text, origin = self._conf, setting.text, setting.origin
        match setting.keyword:
            case "listener":
                context.listener = _listener_of(text, origin)
                conf.listeners.append(context.listener)
                conf.is_local_only = False
            case "port":
                context.listener = self._default(origin)
                assert isinstance(setting.value, int)
                context.listener.port = setting.value
                conf.is_local_only = False
            case "bind_address":
                context.listener = self._default(origin)
                context.listener.address = text
                conf.is_local_only = False
            case "connection":
                name = text.split(" ", 1)[0]
                if any(bridge.name == name for bridge in conf.bridges):
                    raise _Refused(f"a connection is named {name} already; allowed: each name once; choose another")
                context.bridge = Bridge(origin, name)
                conf.bridges.append(context.bridge)
            case "plugin" | "global_plugin":
                self._has_access = True
                path = text.split(" ", 1)[0]
                is_own = conf.per_listener and setting.keyword == "plugin"
                context.plugin = Plugin(origin, path, listeners=[self._listener(context)] if is_own else None)
                conf.plugins.append(context.plugin)
            case "plugin_load":
                name, _, path = text.partition(" ")
                if not path.strip():
                    raise _Refused("names no file; allowed: plugin_load NAME FILE; add the file of the plugin")
                context.plugin = Plugin(origin, path.strip(), name, listeners=[])
                conf.plugins.append(context.plugin)
            case "plugin_use":
                found = next((plugin for plugin in conf.plugins if plugin.name == text), None)
                if found is None or found.listeners is None:
                    raise _Refused(f"no plugin is named {text}; allowed: a name of an earlier plugin_load; add that")
                context.plugin = found
                found.listeners.append(self._listener(context))
            case _:
                if not is_main:
                    raise _Refused("stands in an included file; allowed: in the main file; move it there")
                for file in _included(Path(text), self._conf.path):
                    try:
                        self.read(file, is_main=False)
                    except FileUnreadable as error:
                        self.problems += error.problems
                    except ConfigError as error:
                        self.problems += error.problems
                        return

    def _listener(self, context: _Context) -> Listener:
        if context.listener is None:
            context.listener = self._default("")
        return context.listener

    def _default(self, origin: str) -> Listener:
        conf = self._conf
        if conf.default_listener is None:
            conf.default_listener = Listener(origin)
            conf.listeners.append(conf.default_listener)
        if origin:
            conf.default_listener.origin = origin
        return conf.default_listener

    def _plugin(self, context: _Context) -> Plugin:
        if context.plugin is None:
            raise _Refused(
                "stands before any plugin of this file; allowed: after a line plugin FILE of the same file; move it"
                " there"
            )
        return context.plugin

    def _plugin_option(self, keyword: str, rest: str, origin: str, prefix: str, context: _Context) -> None:
        if not rest:
            raise _Refused("has no value; allowed: a text after the keyword and a space; add it, or remove the line")
        name = keyword.removeprefix(prefix)
        self._plugin(context).options[name] = Setting(keyword, rest, origin, rest, is_secret=True)


def _listener_of(text: str, origin: str) -> Listener:
    words = text.split()
    port = KEYWORDS["port"].form
    number = 0 if words[0] == "0" else port.read(words[0])
    assert isinstance(number, int)
    address = words[1] if len(words) > 1 and not words[1].startswith("#") else ""
    if number == 0 and not address:
        raise _Refused("has the port 0 and no path; allowed: listener 0 PATH, for a UNIX domain socket; add the path")
    return Listener(origin, number, address)


def _included(folder: Path, main: Path) -> Iterator[Path]:
    """Yield the files of a folder that mosquitto includes, in its order."""
    found = located(folder, main)
    try:
        names = [name for name in os.listdir(found) if name.endswith(".conf") and len(name) > len(".conf")]
    except OSError as error:
        raise _Refused(
            f"{folder} cannot be read: {error.strerror}; allowed: a folder; correct its path, or remove the line"
        ) from None
    if len(names) > MOST_FILES:
        raise _Refused(f"{folder} has more than {MOST_FILES} files; allowed: {MOST_FILES}; join some of them")
    yield from (found / name for name in sorted(names, key=_order))


def _order(name: str) -> list[tuple[str, str]]:
    """Return the key of mosquitto's order of names: character by character, capitals before small letters."""
    return list(zip_longest(name.upper(), name, fillvalue=""))


def located(path: Path, main: Path) -> Path:
    """Return the place of a file that mosquitto.conf names. A relative path begins at mosquitto's working folder.

    That is unknown here. So a relative path begins at the present folder if the file is there, and else at the folder
    of mosquitto.conf.
    """
    if path.is_absolute() or path.exists():
        return Path(os.path.abspath(path))
    return Path(os.path.abspath(main.parent / path))
