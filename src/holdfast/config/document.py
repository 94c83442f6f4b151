"""The whole configuration: defaults, a file, and the options of the command line, in this order."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from holdfast.config import toml as toml_file
from holdfast.config.options import (
    FilePath,
    Form,
    InvalidValue,
    Kind,
    Option,
    Section,
    described,
    listed_tables,
    named_tables,
    partial_table,
    table,
    variants_of,
)
from holdfast.config.reader import KeyProblem, Reader
from holdfast.config.secrets import Secret
from holdfast.config.sections.admin import AdminConfig, AdminEndpoint, admin_problems, unknown_client_listener
from holdfast.config.sections.authentication import (
    AuthenticationConfig,
    CredConfig,
    authentication_problems,
    plaintext_problems,
)
from holdfast.config.sections.authorization import AuthorizationConfig, FailedLoginsConfig
from holdfast.config.sections.bridges import BridgeConfig
from holdfast.config.sections.cluster import ClusterConfig, async_in_cluster, cluster_on_sqlite
from holdfast.config.sections.endpoints import EndpointString
from holdfast.config.sections.hooks import HookConfig, repeated_hooks
from holdfast.config.sections.limits import ForceShutdownConfig, LimitsConfig, LimitsOfClients
from holdfast.config.sections.listeners import (
    DEFAULT_LISTENERS,
    ListenerConfig,
    exposed,
    shared_endpoints,
    unknown_zones,
)
from holdfast.config.sections.mqtt import MQTTConfig
from holdfast.config.sections.retainer import RetainerConfig, RetainModes
from holdfast.config.sections.storage import (
    FolderPath,
    NodeConfig,
    StorageConfig,
    StoreURL,
    resolved_url,
    without_password,
)
from holdfast.config.sections.watching import AlarmsConfig, AuditConfig, LogConfig, SysTopicsConfig
from holdfast.config.toml import ConfigError, ConfigOrigin, ConfigProblem

_COMMAND_LINE = ConfigOrigin("command line")
_AUTH = "--auth"  # begins the names of methods from the command line; no name in a file begins so
_DEFAULTS = ConfigOrigin("built-in defaults")


@frozen
class Zone:
    """The options for the clients of a listener, including those of its zone."""

    mqtt: MQTTConfig
    force_shutdown: ForceShutdownConfig
    retainer: RetainModes
    limits: LimitsOfClients


@frozen
class ZoneOverrides(Section):
    """The options of a zone that replace the general ones, by key."""

    mqtt: Mapping[str, Any] = field(
        factory=dict, metadata=partial_table(MQTTConfig, "Options of [mqtt] for the clients of this zone.")
    )
    force_shutdown: Mapping[str, Any] = field(
        factory=dict,
        metadata=partial_table(ForceShutdownConfig, "Options of [force_shutdown] for the clients of this zone."),
    )
    retainer: Mapping[str, Any] = field(
        factory=dict, metadata=partial_table(RetainModes, "Options of [retainer] for the clients of this zone.")
    )
    limits: Mapping[str, Any] = field(
        factory=dict, metadata=partial_table(LimitsOfClients, "Options of [limits] for the clients of this zone.")
    )


@frozen
class Config(Section):
    """All options, with absolute paths."""

    node: NodeConfig = field(factory=NodeConfig, metadata=table(NodeConfig, "This broker itself."))
    listeners: Mapping[str, ListenerConfig] = field(
        factory=dict,
        metadata=named_tables(
            ListenerConfig,
            "The listeners that clients connect to: one table each, with a name of your choice. Without any, there is"
            " one named default, with the values shown here.",
        ),
    )
    authentication: AuthenticationConfig = field(
        factory=AuthenticationConfig,
        metadata=table(AuthenticationConfig, "The methods by which clients prove their identity."),
    )
    authorization: AuthorizationConfig = field(
        factory=AuthorizationConfig, metadata=table(AuthorizationConfig, "What clients may do.")
    )
    failed_logins: FailedLoginsConfig = field(
        factory=FailedLoginsConfig,
        metadata=table(FailedLoginsConfig, "What failed logins cost the address that they come from."),
    )
    mqtt: MQTTConfig = field(factory=MQTTConfig, metadata=table(MQTTConfig, "Limits and features of the protocol."))
    force_shutdown: ForceShutdownConfig = field(
        factory=ForceShutdownConfig,
        metadata=table(ForceShutdownConfig, "Limits on the memory of a slow Network Connection."),
    )
    limits: LimitsConfig = field(
        factory=LimitsConfig, metadata=table(LimitsConfig, "What each user, all guests and the whole broker may use.")
    )
    zones: Mapping[str, ZoneOverrides] = field(
        factory=dict,
        metadata=named_tables(
            ZoneOverrides,
            "Options of [mqtt], [force_shutdown], [retainer] and [limits] for the clients of some listeners only:"
            " those that name the zone.",
        ),
    )
    storage: StorageConfig = field(
        factory=StorageConfig, metadata=table(StorageConfig, "The database, and the durability of changes.")
    )
    cluster: ClusterConfig = field(
        factory=ClusterConfig,
        metadata=table(ClusterConfig, "Several brokers on one Postgres database: see cluster.md."),
    )
    bridges: Mapping[str, BridgeConfig] = field(
        factory=dict,
        metadata=named_tables(
            BridgeConfig,
            "Bridges to other brokers: one table each, with a name of your choice. See bridges.md.",
        ),
    )
    retainer: RetainerConfig = field(
        factory=RetainerConfig, metadata=table(RetainerConfig, "The retained messages and their replay.")
    )
    sys_topics: SysTopicsConfig = field(
        factory=SysTopicsConfig,
        metadata=table(SysTopicsConfig, "The topics in which the broker publishes its own figures."),
    )
    admin: AdminConfig = field(
        factory=AdminConfig, metadata=table(AdminConfig, "The API for operators over HTTP, and the dashboard.")
    )
    audit: AuditConfig = field(
        factory=AuditConfig,
        metadata=table(
            AuditConfig, "The log of who connected, who was refused, what was denied and what operators changed."
        ),
    )
    alarms: AlarmsConfig = field(
        factory=AlarmsConfig, metadata=table(AlarmsConfig, "When the broker raises alarms: see monitor.md.")
    )
    hooks: Sequence[HookConfig] = field(
        factory=tuple,
        metadata=listed_tables(HookConfig, "HTTP servers that the broker tells of events: see hooks.md."),
    )
    log: LogConfig = field(
        factory=LogConfig, metadata=table(LogConfig, "The lines that the broker writes about its clients.")
    )

    #: Relative paths begin at this folder; absolute.
    folder: Path = field(default=Path("/"), kw_only=True)
    #: Whether the database is the default one in ``node.data_dir``.
    url_by_default: bool = field(default=True, kw_only=True)
    #: The configuration file, absolute; None for none.
    file: Path | None = field(default=None, kw_only=True, eq=False)
    #: The options that the command line has replaced.
    overridden: frozenset[str] = field(default=frozenset(), kw_only=True, eq=False)
    #: The origin of the listeners, for messages.
    source: ConfigOrigin = field(default=_DEFAULTS, kw_only=True, eq=False, repr=False)
    #: Keys of EMQX in the file that need no counterpart, each with what takes its place.
    ignored: tuple[ConfigProblem, ...] = field(default=(), kw_only=True, eq=False, repr=False)

    @property
    def data_dir(self) -> Path:
        """The folder of all data of this broker; absolute."""
        return Path(os.path.abspath(self.folder / self.node.data_dir))

    def absolute(self, path: str) -> Path:
        """Return the absolute form of a path that an option names."""
        return Path(os.path.abspath(self.folder / path))

    @property
    def upgrade_command(self) -> str:
        """The command that upgrades this broker's database. It works in every folder and shows no password."""
        words = ["holdfast", "db", "upgrade"]
        if self.file is not None:
            words += ["--config", str(self.file)]
        if self.file is None or "--data-dir" in self.overridden:
            words += ["--data-dir", str(self.data_dir)]
        if "--storage" in self.overridden:
            words += ["--storage", without_password(self.storage.url)]
        return shlex.join(words)

    @property
    def most_topic_levels(self) -> int:
        """The most levels of a Topic Name or Topic Filter that any client may use."""
        return max(self.zone(name).mqtt.max_topic_levels for name in ("", *self.zones))

    def zone(self, name: str) -> Zone:
        """Return the options for a zone; the empty name means the general options. Raises KeyError."""
        if not name:
            return Zone(self.mqtt, self.force_shutdown, self.retainer, self.limits)
        overrides = self.zones[name]
        return Zone(
            attrs.evolve(self.mqtt, **overrides.mqtt),
            attrs.evolve(self.force_shutdown, **overrides.force_shutdown),
            attrs.evolve(self.retainer, **overrides.retainer),
            attrs.evolve(self.limits, **overrides.limits),
        )

    @property
    def max_packet_size(self) -> int:
        """The largest ``mqtt.max_packet_size`` of all zones, in bytes."""
        return max(self.zone(name).mqtt.max_packet_size for name in ("", *self.zones))

    def override(
        self,
        listen: Sequence[str],
        data_dir: str | None,
        storage: str | None,
        allow_anonymous: bool,
        cwd: Path,
        auth: Sequence[str] = (),
        admin: str | None = None,
    ) -> Config:
        """Return this configuration with the options of the command line.

        Endpoints in ``listen`` replace all listeners. Every listener asks the checkers in ``auth`` after its methods.
        ``admin`` replaces the endpoint of the API; an empty one is none. Relative paths begin at ``cwd``.
        ``allow_anonymous`` admits clients without authentication through every
        listener. Without it, a listener open to other machines is refused unless it has ``allow_anonymous`` itself.
        Raises ConfigError.
        """
        command_line = _CommandLine()
        said = {"--data-dir": data_dir, "--storage": storage}
        overridden = self.overridden | {option for option, value in said.items() if value is not None}
        changed = attrs.evolve(self, overridden=overridden)
        if data_dir is not None and command_line.allows(FolderPath(), data_dir, "--data-dir"):
            changed = attrs.evolve(changed, node=attrs.evolve(changed.node, data_dir=os.path.abspath(cwd / data_dir)))
            if changed.url_by_default:
                changed = command_line.with_url(changed, "", cwd, "--data-dir")
        if storage is not None and command_line.allows(StoreURL(), storage, "--storage"):
            changed = command_line.with_url(changed, storage, cwd, "--storage")
        if admin is not None and command_line.allows(AdminEndpoint(), admin, "--admin"):
            changed = attrs.evolve(changed, admin=attrs.evolve(changed.admin, endpoint=admin))
            command_line.problems += [
                ConfigProblem(_COMMAND_LINE.name, None, "--admin", problem.message)
                for problem in admin_problems(changed.admin)
            ]
        endpoints = [endpoint for endpoint in listen if command_line.allows(EndpointString(), endpoint, "--listen")]
        if endpoints:
            names = [f"listen-{number}" for number in range(1, len(endpoints) + 1)] if len(listen) > 1 else ["default"]
            listeners = {
                name: ListenerConfig(endpoint=endpoint) for name, endpoint in zip(names, endpoints, strict=True)
            }
            changed = attrs.evolve(changed, listeners=listeners, source=_COMMAND_LINE)
            command_line.problems += [changed._problem(problem) for problem in shared_endpoints(listeners)]
        if auth:
            changed = changed._with_checkers(auth)
        if endpoints or auth:
            found = plaintext_problems(changed.listeners, changed.authentication)
            command_line.problems += map(changed._problem, found)
        if allow_anonymous:
            opened = {name: attrs.evolve(each, allow_anonymous=True) for name, each in changed.listeners.items()}
            changed = attrs.evolve(changed, listeners=opened)
        if not (listen and not endpoints):
            command_line.problems += exposed_without_authentication(changed)
        command_line.problems += cluster_without_postgres(changed)
        if command_line.problems:
            raise ConfigError(command_line.problems)
        return changed

    def _with_checkers(self, descriptions: Sequence[str]) -> Config:
        """Return this configuration with checkers of twisted.cred as further methods of every listener."""
        checkers = {f"{_AUTH} {number}": CredConfig(checker=each) for number, each in enumerate(descriptions, 1)}
        listeners = {
            name: each if each.authentication is None
            else attrs.evolve(each, authentication=(*each.authentication, *checkers))
            for name, each in self.listeners.items()
        }  # fmt: skip
        methods = {**self.authentication.methods, **checkers}
        return attrs.evolve(
            self, listeners=listeners, authentication=attrs.evolve(self.authentication, methods=methods)
        )

    def method_problem(self, name: str, key: str, message: str) -> ConfigProblem:
        """Return the problem of an authentication method's option, or of the option of the command line for it."""
        if name.startswith(_AUTH):
            return ConfigProblem(_COMMAND_LINE.name, None, _AUTH, message)
        return self.source.problem(("authentication", name, key), message)

    def _problem(self, problem: KeyProblem) -> ConfigProblem:
        """Return the problem of a listener, named after the option ``--listen`` if the listener comes from it."""
        if self.source is _COMMAND_LINE:
            return ConfigProblem(self.source.name, None, "--listen", problem.message)
        return self.source.problem(problem.path, problem.message)


class _CommandLine:
    """Reads options of the command line, and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[ConfigProblem] = []

    def allows(self, kind: Kind, value: str, key: str) -> bool:
        try:
            kind.read(value)
        except InvalidValue as invalid:
            self._reject(key, str(invalid))
            return False
        return True

    def with_url(self, config: Config, url: str, cwd: Path, key: str) -> Config:
        try:
            resolved = resolved_url(url, cwd, config.data_dir)
        except InvalidValue as invalid:
            self._reject(key, str(invalid))
            return config
        return attrs.evolve(config, storage=attrs.evolve(config.storage, url=resolved), url_by_default=not url)

    def _reject(self, key: str, message: str) -> None:
        self.problems.append(ConfigProblem(_COMMAND_LINE.name, None, key, message))


def load(path: Path | str, allow_anonymous: bool = False, folder: Path | None = None) -> Config:
    """Return the configuration in a file. Raises ConfigError with all its problems.

    Relative paths begin at ``folder`` (default: that of the file).

    Without authentication, a listener open to other machines is refused unless it has ``allow_anonymous``, or the
    argument ``allow_anonymous`` is true.
    """
    values, source = toml_file.read(Path(path))
    config = _configured(values, source, Path(path).parent if folder is None else folder, allow_anonymous)
    return attrs.evolve(config, file=Path(os.path.abspath(path)))


def default(folder: Path | None = None) -> Config:
    """Return the configuration without a file. Relative paths begin at ``folder`` (default: the current one).

    Raises ConfigError if the paths are unusable.
    """
    return _configured({}, _DEFAULTS, folder if folder is not None else Path(), allow_anonymous=False)


def exposed_without_authentication(config: Config) -> list[ConfigProblem]:
    """Return a problem for each listener that admits other machines without authentication and without permission.

    If authentication is configured, there are none.
    """
    if config.authentication.is_configured:
        return []
    return [config._problem(problem) for problem in exposed(config.listeners)]


def cluster_without_postgres(config: Config) -> list[ConfigProblem]:
    """Return the problem of a member of a cluster whose database is an SQLite file."""
    found = cluster_on_sqlite(config.cluster, config.storage.url)
    return [config.source.problem(problem.path, problem.message) for problem in found]


def exposure_problems(config: Config) -> list[ConfigProblem]:
    """Return the problems that open a broker to strangers. A start and a reload refuse them."""
    found = [*shared_endpoints(config.listeners), *plaintext_problems(config.listeners, config.authentication)]
    admin = [config.source.problem(problem.path, problem.message) for problem in admin_problems(config.admin)]
    return [*map(config._problem, found), *admin, *exposed_without_authentication(config)]


def _configured(values: Mapping[str, object], source: ConfigOrigin, folder: Path, allow_anonymous: bool) -> Config:
    reader = Reader(Config)
    config = reader.section(Config, values, ())
    # A table of [authentication] that is rejected would have been the authentication that is missing.
    rejected = any(problem.path[:1] == ("authentication",) for problem in reader.problems)
    for problem in [
        *unknown_zones(config.listeners, config.zones),
        *shared_endpoints(config.listeners),
        *authentication_problems(config.listeners, config.authentication),
        *plaintext_problems(config.listeners, config.authentication),
        *admin_problems(config.admin),
        *unknown_client_listener(config.admin, config.listeners or DEFAULT_LISTENERS),
        *repeated_hooks(config.hooks),
        *async_in_cluster(config.cluster, config.storage),
        *(() if allow_anonymous or rejected or config.authentication.is_configured else exposed(config.listeners)),
    ]:
        reader.add(problem)
    config = attrs.evolve(
        config,
        listeners=config.listeners or DEFAULT_LISTENERS,
        source=source,
        url_by_default=not config.storage.url,
        ignored=tuple(source.problem(each.path, each.message) for each in reader.ignored),
    )
    try:
        config = attrs.evolve(config, folder=Path(os.path.abspath(folder)))
        url = resolved_url(config.storage.url, config.folder, config.data_dir)
        config = attrs.evolve(config, storage=attrs.evolve(config.storage, url=url))
    except InvalidValue as invalid:
        reader.reject(("storage", "url"), str(invalid))
    except FileNotFoundError:
        reader.reject((), "the current folder, at which relative paths begin, does not exist any more")
    if reader.problems:
        raise ConfigError(source.problem(problem.path, problem.message) for problem in reader.problems)
    return config


# The files that a configuration names, for whatever they are read.


#: a value that changes when the file changes
FileState = object


def file_states(config: Config, environment: Mapping[str, str]) -> Mapping[Path, FileState]:
    """Return each file that the configuration names, in the order of the reference, with its state. Links are followed.

    The configuration file itself is none of them: its differences are compared. The ``environment`` names the folder of
    credentials.
    """
    return {path: _state(path) for path in _files(config, config, environment)}


def _files(section: Section, config: Config, environment: Mapping[str, str]) -> Iterator[Path]:
    for key, entry in described(type(section)).items():
        value = getattr(section, key)
        if isinstance(entry, Option):
            if isinstance(entry.kind, FilePath) and value:
                yield config.absolute(value)
            for secret in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(secret, Secret):
                    yield from _secret_files(secret, config, environment)
        elif entry.form is Form.TABLE and value is not None:
            yield from _files(value, config, environment)
        elif entry.form is Form.NAMED:
            for table in value.values():
                yield from _files(table, config, environment)
    named = variants_of(type(section))
    for variant in getattr(section, named[0]).values() if named is not None else ():
        yield from _files(variant, config, environment)


def _secret_files(secret: Secret, config: Config, environment: Mapping[str, str]) -> Iterator[Path]:
    if secret.place == "file":
        yield config.absolute(secret.name)
    elif secret.place == "credential" and "CREDENTIALS_DIRECTORY" in environment:
        yield Path(environment["CREDENTIALS_DIRECTORY"]) / secret.name


def _state(path: Path) -> FileState:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
