"""The plugin of ``twistd holdfast``: its options, and the service that twistd runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from twisted.python import usage

from holdfast.config import Config, ConfigError, default, load
from holdfast.version import version

if TYPE_CHECKING:
    from twisted.application.service import IService
    from twisted.python.failure import Failure


class Options(usage.Options):
    """The options of the broker, for ``twistd holdfast`` and ``holdfast run``."""

    synopsis = "[options]"
    longdesc = "An MQTT 3.1.1 and 5.0 broker whose retained messages live in a database."
    optParameters = [
        ["config", "c", None, "The configuration file (TOML). Without it: loopback only, data in ./data."],
        ["data-dir", "d", None, "The folder of the database and its lock; overrides node.data_dir."],
        [
            "storage",
            "s",
            None,
            "The database, sqlite:////path or postgresql+psycopg://...; overrides storage.url.",
        ],
        ["admin", None, None, "The Twisted endpoint of the API, '' for none; overrides admin.endpoint."],
    ]
    optFlags = [
        ["allow-anonymous", None, "Let everyone connect, also from other machines."],
        ["no-wait", None, "End with status 1 if the database or an address is not there yet, instead of waiting."],
    ]
    config: Config
    #: the options of twistd
    parent: usage.Options | None = None

    def __init__(self) -> None:
        usage.Options.__init__(self)
        self.listen: list[str] = []
        self.auth: list[str] = []

    def opt_listen(self, endpoint: str) -> None:
        """Listen on this Twisted endpoint, such as tcp:1883:interface=127.0.0.1 (port 0: a free one).

        May be given several times; replaces all listeners of the file.
        """
        self.listen.append(endpoint)

    opt_l = opt_listen

    def opt_auth(self, description: str) -> None:
        """Verify passwords by this checker of twisted.cred, such as file:/path, after the methods of the file.

        May be given several times. Other users of this machine can read it, so write no password here.
        """
        self.auth.append(description)

    def opt_help_auth(self) -> NoReturn:
        """List the types of checkers for --auth, and exit."""
        from holdfast.identity.cred_checkers import show_types

        show_types()

    def opt_help_auth_type(self, name: str) -> NoReturn:
        """Describe one type of checkers for --auth, and exit."""
        from holdfast.identity.cred_checkers import show_type

        show_type(name)

    def opt_version(self) -> NoReturn:
        """Show the version and exit."""
        print(f"holdfast {version()}")
        raise SystemExit(0)

    def postOptions(self) -> None:
        """Read the configuration. If it has problems, print them all on stderr and end with status 1."""
        try:
            self._folder = Path.cwd()
        except FileNotFoundError:  # it was removed; whatever needs it is a problem of the configuration
            self._folder = Path()
        try:
            self.config = self._configured(Path(self["config"]) if self["config"] else None)
        except ConfigError as error:
            _end(error)

    def read(self, file: Path | None = None) -> Config:
        """Return the configuration that a start with these options would have now. Raises ConfigError.

        ``file`` stands in for the configuration file, and its relative paths begin where those of that file do.
        """
        return self._configured(self._folder / self["config"] if self["config"] else None, file)

    def _configured(self, file: Path | None, instead: Path | None = None) -> Config:
        if file is None:
            config = default(self._folder)
        else:
            config = load(instead or file, allow_anonymous=True, folder=file.parent)
        return config.override(
            listen=self.listen,
            data_dir=self["data-dir"],
            storage=self["storage"],
            allow_anonymous=bool(self["allow-anonymous"]),
            cwd=self._folder,
            auth=self.auth,
            admin=self["admin"],
        )


def makeService(options: Options) -> IService:
    """Return the broker for twistd, and set up the process for it."""
    # Here, so that the help of the options needs no broker.
    from twisted.internet import reactor

    from holdfast.broker.compose import compose_broker
    from holdfast.broker.process import (
        announce,
        end_on_signals,
        end_start_on_sigterm,
        explain_keys,
        give_steady_clock,
        go_on_after_hangup,
        make_room_for_files,
        raise_open_files,
        tune_interpreter,
    )
    from holdfast.scheduling.reactor import FreedMemory, be_patient
    from holdfast.watch.log_output import log_observer

    end_start_on_sigterm()
    tune_interpreter(reactor)
    go_on_after_hangup(reactor, lambda signal: broker.reload(signal).addErrback(_is_logged))
    clock = give_steady_clock(reactor)
    be_patient(reactor)
    reactor.callWhenRunning(FreedMemory(reactor).start)
    open_files = raise_open_files(reactor)
    make_room_for_files(open_files)
    try:
        broker = compose_broker(
            options.config,
            reactor=reactor,
            now=clock.now,
            announce=announce,
            open_files=open_files,
            environment=os.environ,
            read=options.read,
            waits=not options["no-wait"],
            clock=clock,
        )
    except ConfigError as error:
        _end(error)
    twistd = options.parent
    if twistd is not None:
        broker.log_observer = log_observer(options.config.log.formatter, options.config.log.level, twistd, reactor)
    # Before the broker's own call, which announces that it is ready: a signal after that line ends with status 0.
    reactor.callWhenRunning(end_on_signals, reactor)
    reactor.callWhenRunning(explain_keys, reactor)
    return broker


def _is_logged(_failure: Failure) -> None:
    """Do nothing: a reload logs its own failures."""


def _end(error: ConfigError) -> NoReturn:
    """Print all problems on stderr, and end the process with status 1."""
    for problem in error.problems:
        print(problem, file=sys.__stderr__)
    raise SystemExit(1) from None


__all__ = ["Options", "makeService"]
