"""The file of ``run``: jobs by name, each a command with its options, as the arguments of that command.

    [defaults]
    config = "/etc/holdfast.toml"

    [jobs.sync]
    to = "lake"

    [jobs.page]
    command = "report"
    out = "report.html"

Click itself parses the arguments, so each option has the name, the type and the error of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from holdfast.config import toml as toml_file
from holdfast.config.toml import ConfigError, ConfigOrigin, ConfigProblem
from holdfast_pipeline.errors import WrongUsage, text_of

#: Keys of a job that are no options of its command.
_OWN = ("command", "on_failure")
_ON_FAILURE = ("stop", "continue")
#: Commands that are no jobs: the file has one Spark process and is not run by itself, and a sample is written once.
_NO_JOBS = ("run", "sample", "server")


@frozen
class Job:
    """A job: the ``context`` holds its parsed options. ``stops`` tells whether its failure ends the run."""

    name: str
    command: click.Command
    arguments: tuple[str, ...]
    stops: bool


def read_jobs(path: Path, commands: click.Group, context: click.Context) -> tuple[Job, ...]:
    """Read a file of jobs, and check all their options. Raises :class:`WrongUsage` with file, line and key."""
    try:
        content, origin = toml_file.read(path)
    except ConfigError as error:
        raise WrongUsage(text_of(error.problems)) from error
    reader = _Reader(origin, commands, context)
    found = reader.jobs(content)
    if reader.problems:
        raise WrongUsage(text_of(reader.problems))
    return found


class _Reader:
    def __init__(self, origin: ConfigOrigin, commands: click.Group, context: click.Context) -> None:
        self.problems: list[ConfigProblem] = []
        self._origin = origin
        self._commands = commands
        self._context = context

    def jobs(self, content: Mapping[str, Any]) -> tuple[Job, ...]:
        for key in content.keys() - {"defaults", "jobs"}:
            self._note((key,), "is no table of this file; allowed: [defaults] and [jobs.NAME]")
        defaults, jobs = content.get("defaults", {}), content.get("jobs", {})
        if not isinstance(defaults, dict) or not isinstance(jobs, dict) or not jobs:
            self._note(("jobs",), "there is no job; write one as [jobs.NAME]")
            return ()
        unused = dict(defaults)
        found = [self._job(name, table, defaults, unused) for name, table in jobs.items()]
        for key in unused:
            self._note(("defaults", key), "no command of this file has this option")
        return tuple(each for each in found if each is not None)

    def _job(self, name: str, table: Any, defaults: Mapping[str, Any], unused: dict[str, Any]) -> Job | None:
        if not isinstance(table, dict):
            self._note(("jobs", name), "is no table; write [jobs.NAME]")
            return None
        command = table.get("command", name)
        names = [each for each in self._commands.list_commands(self._context) if each not in _NO_JOBS]
        if command not in names:
            at = ("jobs", name, "command") if "command" in table else ("jobs", name)
            self._note(at, f"{command!r} is no command; allowed: {', '.join(names)}")
            return None
        on_failure = table.get("on_failure", _ON_FAILURE[0])
        if on_failure not in _ON_FAILURE:
            self._note(("jobs", name, "on_failure"), f"is {on_failure!r}; allowed: stop, continue")
        chosen = self._commands.get_command(self._context, command)
        assert chosen is not None
        known = {_key(each): each for each in chosen.params if _key(each) != "json"}
        options: list[str] = []
        arguments: list[str] = []
        places: dict[click.Parameter | None, tuple[str, ...]] = {}
        given = {key: value for key, value in defaults.items() if key.replace("-", "_") in known}
        for key in given:
            unused.pop(key, None)
        for key, value in {**given, **table}.items():
            if key in _OWN:
                continue
            at = ("jobs", name, key) if key in table else ("defaults", key)
            parameter = known.get(key.replace("-", "_"))
            if parameter is None:
                self._note(at, f"{command} has no such option; it has: {', '.join(sorted(known))}")
                continue
            places[parameter] = at
            written = self._written(at, parameter, value)
            (arguments if isinstance(parameter, click.Argument) else options).extend(written)
        line = (*options, "--", *arguments) if arguments else tuple(options)
        if not self.problems:
            self._check(("jobs", name), places, chosen, line)
        return Job(name, chosen, line, on_failure == "stop")

    def _written(self, at: tuple[str, ...], parameter: click.Parameter, value: Any) -> Sequence[str]:
        """Return the value of an option as arguments."""
        if isinstance(parameter, click.Option) and parameter.is_flag:
            if not isinstance(value, bool):
                self._note(at, f"is {value!r}; allowed: true, false")
            return [parameter.opts[-1]] if value is True else []
        values = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not (parameter.multiple or parameter.nargs != 1):
            self._note(at, "takes one value, not a list")
        if any(isinstance(each, bool) or not isinstance(each, str | int | float) for each in values):
            self._note(at, f"is {value!r}; allowed: a text or a number" + (", or a list" if parameter.multiple else ""))
            return []
        if isinstance(parameter, click.Argument):
            return [str(each) for each in values]
        return [f"{parameter.opts[-1]}={each}" for each in values]

    def _check(
        self,
        job: tuple[str, ...],
        places: Mapping[click.Parameter | None, tuple[str, ...]],
        command: click.Command,
        line: Sequence[str],
    ) -> None:
        """Let the command read its line. Note a mistake at the key of its option, or at the job."""
        try:
            command.make_context(command.name, list(line), parent=self._context).close()
        except click.UsageError as error:
            wrong = error.param if isinstance(error, click.BadParameter) else None
            self._note(places.get(wrong, job), error.format_message())

    def _note(self, at: tuple[str, ...], message: str) -> None:
        self.problems.append(self._origin.problem(at, message))


def _key(parameter: click.Parameter) -> str:
    """Return an option's key: its long name with underscores."""
    if isinstance(parameter, click.Argument):
        return str(parameter.name)
    return parameter.opts[-1].lstrip("-").replace("-", "_")
