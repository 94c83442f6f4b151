"""Builds the audit log, and the functions that report denials and operators' actions to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from twisted.internet.interfaces import IReactorTime
from twisted.web import http

from holdfast.admin.call import Answer, Call
from holdfast.admin.jobs import Job, note_of
from holdfast.admin.routing import UNANSWERED, Witness
from holdfast.broker.reloading import Change
from holdfast.config import Config, ConfigError, ConfigProblem
from holdfast.config.sections.watching import AuditConfig
from holdfast.identity.interfaces import OnDenied, Principal
from holdfast.watch.audit import (
    CONNECTED,
    DENIED,
    DISCONNECTED,
    KINDS,
    LONGEST,
    OPERATED,
    Audit,
    FileSink,
    IAudit,
    JournalSink,
    Sink,
)

#: characters of the longest path, where each byte of a name may take three
_LONGEST_PATH = 3 * LONGEST


def compose_audit(config: Config, *, clock: IReactorTime, now: Callable[[], int]) -> Audit:
    """Return the audit log with sinks that are not open yet. Without sinks it writes nothing."""
    section = config.audit
    return Audit(_sinks(config), clock=clock, now=now, kinds=_kinds(section))


def open_audit(audit: Audit, config: Config) -> None:
    """Open the audit log. Raises ConfigError."""
    _opened(audit, config)


def prepare_audit(audit: Audit, running: Config, config: Config) -> Change:
    """Open the sinks of another configuration. Raises ConfigError."""
    if running.audit == config.audit:
        return Change()
    sinks: list[Sink] = []

    def abandon() -> None:
        for sink in sinks:
            sink.close()

    try:
        for sink in _sinks(config):
            _opened(sink, config)
            sinks.append(sink)
    except ConfigError:
        abandon()
        raise
    commit = partial(audit.change, sinks, _kinds(config.audit))
    return Change(commit=commit, abandon=abandon)


def _sinks(config: Config) -> list[Sink]:
    sinks: list[Sink] = []
    if config.audit.file:
        sinks.append(FileSink(Path(os.path.abspath(config.folder / config.audit.file))))
    if config.audit.journal:
        sinks.append(JournalSink())
    return sinks


def _kinds(section: AuditConfig) -> Collection[str]:
    return KINDS if section.connections else set(KINDS) - {CONNECTED, DISCONNECTED}


def _opened(opens: Audit | Sink, config: Config) -> None:
    try:
        opens.open()
    except OSError as error:
        file = "holdfast.toml" if config.file is None else str(config.file)
        place = "the audit log" if error.filename is None else os.fsdecode(error.filename)
        message = f"{place} cannot be opened: {error.strerror or error}"
        raise ConfigError([ConfigProblem(file, None, "audit", message)]) from None


def denials_of(audit: IAudit) -> OnDenied:
    """Return the function that tells the audit log of denied actions."""

    def denied(principal: Principal, action: str, topic: str) -> None:
        fields = {"action": action, "address": principal.address, "listener": principal.listener}
        group = principal.client_id if principal.username is None else f"user {principal.username}"
        audit.tell(DENIED, group, fields, user=principal.username, client_id=principal.client_id, topic=topic)

    return denied


def witness_of(audit: IAudit) -> Witness:
    """Return the function that tells the audit log of operators' changes, and of refused ones.

    A refused call has changed nothing. So a key that may only read cannot fill the disk with refusals.
    """

    def witness(call: Call, answer: Answer) -> None:
        fields = {"operator": call.caller.name, "uid": call.caller.uid, "method": call.method,
                  "path": call.path[:_LONGEST_PATH], "status": answer.status,
                  "arguments": _cut(dict(call.arguments)) or None, **_cut(answer.note)}  # fmt: skip
        refused = http.BAD_REQUEST <= answer.status < UNANSWERED
        audit.tell(OPERATED, call.caller.name if refused else None, fields)

    return witness


def end_of_jobs_of(audit: IAudit) -> Callable[[Job], None]:
    """Return the function that tells the audit log of the end of each job."""

    def ended(job: Job) -> None:
        audit.tell(OPERATED, None, _cut({"operator": job.by, "about": job.about, **note_of(job)}))

    return ended


def _cut(fields: Mapping[str, object]) -> dict[str, object]:
    """Return fields whose texts have a bounded length."""
    return {name: value[:LONGEST] if isinstance(value, str) else value for name, value in fields.items()}
