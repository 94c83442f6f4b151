"""TLS of the listeners from their options, and the change to new certificates while connections stay."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen
from OpenSSL import SSL
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.config import Config, ConfigError
from holdfast.config.sections.listeners import WEBSOCKET
from holdfast.config.sections.tls import CertificateConfig, TLSConfig
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.fair_line import GoOn, Turns
from holdfast.transports.layers import Layer
from holdfast.transports.tls import TLSLayer
from holdfast.transports.tls_contexts import Contexts, UnusableTLS, build
from holdfast.transports.tls_files import KeyPair, TLSSettings

# From the options of the listeners to their TLS.


#: the protocol that a client may ask for by ALPN
HTTP = b"http/1.1"


def load_all(config: Config, now: float) -> Mapping[str, Loaded]:
    """Read the files of all listeners with TLS, and of the API. ``now`` is in seconds since the epoch.

    Raises ConfigError with all problems, each with the key that names the file.
    """
    loaded, problems = {}, []
    for name, tls, protocol in _tables(config):
        try:
            loaded[name] = load(settings_of(tls, config.folder, protocol), now)
        except UnusableTLS as unusable:
            problems += [
                config.source.problem((*table_of(name), *problem.option.split(".")), problem.message)
                for problem in unusable.problems
            ]
    if problems:
        raise ConfigError(problems)
    return loaded


def check_files(config: Config, now: float) -> None:
    """Judge the files of all listeners with TLS. Raises ConfigError, also for what a broker starts with: expired
    certificates, and keys that others can read.
    """
    problems = [
        config.source.problem((*table_of(name), *problem.option.split(".")), problem.message)
        for name, loaded in load_all(config, now).items()
        for problem in (*loaded.contexts.warnings, *loaded.contexts.expired(now))
    ]
    if problems:
        raise ConfigError(problems)


def _tables(config: Config) -> Iterator[tuple[str, TLSConfig, bytes]]:
    """Yield the name of each listener with TLS, its options, and the protocol inside."""
    for name, listener in config.listeners.items():
        if listener.tls is not None:
            yield name, listener.tls, HTTP if listener.transport == WEBSOCKET else b"mqtt"
    if config.admin.tls is not None and config.admin.endpoint:
        yield ADMIN, config.admin.tls, HTTP


def settings_of(options: TLSConfig, folder: Path, protocol: bytes) -> TLSSettings:
    """Return the settings of one listener. Relative paths begin at ``folder``."""
    asks = options.client != "none"
    certificates: dict[str, CertificateConfig] = {"": options}
    certificates.update((f"certificates.{name}", each) for name, each in options.certificates.items())
    return TLSSettings(
        pairs=tuple(
            KeyPair(
                table,
                folder / each.certificate,
                folder / (each.key or each.certificate),
                folder / each.key_password_file if each.key_password_file else None,
            )
            for table, each in certificates.items()
        ),
        minimum=options.minimum,
        client_ca=folder / options.client_ca if asks else None,
        client_required=options.client == "required",
        crl=folder / options.crl if asks and options.crl else None,
        protocol=protocol,
    )


# TLS of one listener: its present contexts, and the change to new ones while connections stay.


#: days before the end of a certificate from which on the log warns
WARNING_DAYS = 21

#: stands for the API among the listeners; no listener can have this name
ADMIN = "(admin)"

_FileStates = Mapping[Path, object]


def table_of(listener: str) -> tuple[str, ...]:
    """Return the key of the table with the options of a listener's TLS."""
    return ("admin", "tls") if listener == ADMIN else ("listeners", listener, "tls")


@frozen
class Loaded:
    """Contexts that were built from files, and the state of the files before they were read."""

    settings: TLSSettings
    contexts: Contexts
    files: _FileStates


def load(settings: TLSSettings, now: float) -> Loaded:
    """Build the contexts of a listener. ``now`` is in seconds since the epoch. Raises UnusableTLS."""
    files = states_of(settings)
    return Loaded(settings, build(settings, now), files)


def states_of(settings: TLSSettings) -> _FileStates:
    """Return for each file a value that changes when the file changes; links are followed."""
    return {path: _state(path) for path in settings.files}


def _state(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError as error:
        return error.errno
    return status.st_mtime_ns, status.st_size, status.st_ino


class ListenerTLS:
    """The TLS of one listener. ``now`` returns seconds since the epoch."""

    _log = Logger()

    def __init__(self, listener: str, loaded: Loaded, turns: Turns[GoOn], now: Callable[[], float]) -> None:
        self.listener = listener
        self.loaded = loaded
        self._turns = turns
        self._now = now

    @property
    def is_admin(self) -> bool:
        """Whether this is the TLS of the API."""
        return self.listener == ADMIN

    def new_connection(self) -> SSL.Connection:
        """Return OpenSSL's part of a new connection, made from the present contexts."""
        return self.loaded.contexts.connection()

    def new_layer(self) -> Layer:
        """Return the layer of a new connection."""
        return TLSLayer(self.new_connection, self._turns)

    def use(self, loaded: Loaded) -> None:
        """Use these contexts for all connections from now on. Open connections keep theirs."""
        self.loaded = loaded

    def take(self, loaded: Loaded) -> None:
        """Use these contexts, and tell them."""
        self.use(loaded)
        self.tell()

    def tell(self) -> None:
        """Log the certificates and their days, and the warnings about their files."""
        for key in self.loaded.contexts.keys:
            self._log.info(
                "listener {listener}: TLS with {file} for {names}, {days} days left",
                listener=self.listener,
                file=str(key.pair.certificate),
                names=", ".join(key.names) or "no name",
                days=int(key.days_left(self._now())),
            )
        for warning in self.loaded.contexts.warnings:
            self._warn(warning.option, warning.message)
        self.warn_of_ends()

    def warn_of_ends(self) -> None:
        """Warn of certificates that expire soon, or have expired."""
        for key in self.loaded.contexts.keys:
            days = key.days_left(self._now())
            if 0 < days <= WARNING_DAYS:
                self._warn(key.pair.option("certificate"), f"{key.pair.certificate} expires in {days:.0f} days")
        for problem in self.loaded.contexts.expired(self._now()):
            self._warn(problem.option, problem.message)

    def _warn(self, option: str, message: str) -> None:
        self._log.warn(
            "{table}.{option}: {message}", table=".".join(table_of(self.listener)), option=option, message=message
        )


# Changed certificates take effect while the broker runs: all of them together, or none.
#
# A file is looked at every ``INTERVAL`` seconds. A change is taken when two looks in a row have found the same new
# state, so that files in the middle of a renewal, where key and certificate differ, are left alone. Files are read in a
# thread. A state that cannot be used is told once; the broker goes on with what it has.
#
# Unchanged files are read again each day, too: new contexts have new keys for the tickets of resumed sessions.


#: seconds between two looks at the files
INTERVAL = 10.0
_DAY = 86400.0

#: runs a function, in a thread or at once, and returns its result
Run = Callable[[Callable[[], list[Loaded]]], Deferred[list[Loaded]]]


class CertificateReloads(Service):
    """Reloads the certificates of all listeners. ``now`` returns seconds since the epoch."""

    _log = Logger()

    def __init__(
        self, listeners: Sequence[ListenerTLS], *, clock: IReactorTime, now: Callable[[], float], run: Run
    ) -> None:
        self._listeners = tuple(listeners)
        self._now = now
        self._run = run
        self._seen: object = None  #: the changed state at the last look
        self._failed: object = None  #: the changed state that could not be used
        self._is_over = False
        self._looks = PeriodicJob(self._look, name="looking at certificates", interval=INTERVAL, clock=clock)
        self._days = PeriodicJob(self._renew, name="renewing the contexts of TLS", interval=_DAY, clock=clock)

    def startService(self) -> None:
        """Tell what is loaded, and look at the files from now on."""
        Service.startService(self)
        for listener in self._listeners:
            listener.tell()
        self._looks.start(INTERVAL)
        self._days.start(_DAY)

    def stopService(self) -> None:
        """Look no longer."""
        Service.stopService(self)
        self._is_over = True  # a reading under way changes nothing any more
        self._looks.stop()
        self._days.stop()

    def reload(self) -> Deferred[list[str]]:
        """Read all files now. Fires with the problems; with any, nothing has changed."""
        return self._read(ListenerTLS.take)

    def _read(self, hand_over: Callable[[ListenerTLS, Loaded], None]) -> Deferred[list[str]]:
        settings = [listener.loaded.settings for listener in self._listeners]

        def build() -> list[Loaded]:
            loaded, problems = [], []
            for listener, each in zip(self._listeners, settings, strict=True):
                try:
                    loaded.append(load(each, self._now()))
                except UnusableTLS as unusable:
                    problems += [f"{'.'.join(table_of(listener.listener))}.{one.option}: {one.message}"
                                 for one in unusable.problems]  # fmt: skip
            if problems:
                raise _Unusable(problems)
            return loaded

        def take(loaded: list[Loaded]) -> list[str]:
            if self._is_over:
                return []
            for listener, each in zip(self._listeners, loaded, strict=True):
                hand_over(listener, each)
            return []

        def refused(failure: Failure) -> list[str]:
            failure.trap(_Unusable)
            assert isinstance(failure.value, _Unusable)
            problems = failure.value.problems
            for problem in problems:
                self._log.error("the certificates stay as they are: {problem}", problem=problem)
            return problems

        return self._run(build).addCallbacks(take, refused)

    def _look(self) -> Deferred[list[str]]:
        present = [states_of(listener.loaded.settings) for listener in self._listeners]
        before, self._seen = self._seen, present
        if present in ([listener.loaded.files for listener in self._listeners], self._failed) or present != before:
            return succeed([])

        def told(problems: list[str]) -> list[str]:
            self._failed = present if problems else None
            return problems

        return self.reload().addCallback(told)

    def _renew(self) -> Deferred[None]:
        """Build all contexts anew, and tell what expires soon."""

        def warn(_: list[str]) -> None:
            for listener in self._listeners:
                listener.warn_of_ends()

        return self._read(ListenerTLS.use).addCallback(warn)


class _Unusable(Exception):
    """Some files cannot be used: has the ``problems`` as texts."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
