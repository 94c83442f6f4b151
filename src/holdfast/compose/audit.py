"""Builds the audit log, and what tells it of denials and operators' actions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from twisted.internet.interfaces import IReactorTime

from holdfast.admin.apis import Witness
from holdfast.admin.calls import Answer, Call
from holdfast.audit.audit import CONNECTED, DENIED, DISCONNECTED, KINDS, OPERATED, Audit, IAudit, NoAudit
from holdfast.audit.sinks import FileSink, JournalSink, Sink
from holdfast.auth.denials import Denied
from holdfast.auth.interfaces import Principal
from holdfast.config import Config, ConfigError, ConfigProblem


def compose_audit(config: Config, *, clock: IReactorTime, now: Callable[[], int]) -> Audit | NoAudit:
    """Return the audit log."""
    section = config.audit
    sinks: list[Sink] = []
    if section.file:
        sinks.append(FileSink(Path(os.path.abspath(config.folder / section.file))))
    if section.journal:
        sinks.append(JournalSink())
    if not sinks:
        return NoAudit()
    kinds = KINDS if section.connections else set(KINDS) - {CONNECTED, DISCONNECTED}
    return Audit(sinks, clock=clock, now=now, kinds=kinds, most=section.max_lines)


def open_audit(audit: Audit | NoAudit, config: Config) -> None:
    """Open the audit log. Raises ConfigError."""
    try:
        audit.open()
    except OSError as error:
        file = "holdfast.toml" if config.file is None else str(config.file)
        place = "the audit log" if error.filename is None else os.fsdecode(error.filename)
        message = f"{place} cannot be opened: {error.strerror or error}"
        raise ConfigError([ConfigProblem(file, None, "audit", message)]) from None


def denials_of(audit: IAudit) -> Denied:
    """Return the function that tells the audit log of denied actions."""

    def denied(principal: Principal, action: str, topic: str) -> None:
        fields = {"action": action, "address": principal.address, "listener": principal.listener}
        group = principal.client_id if principal.username is None else f"user {principal.username}"
        audit.tell(DENIED, group, fields, user=principal.username, client_id=principal.client_id, topic=topic)

    return denied


def witness_of(audit: IAudit) -> Witness:
    """Return the function that tells the audit log of operators' changes."""

    def witness(call: Call, answer: Answer) -> None:
        fields = {"operator": call.operator.name, "uid": call.operator.uid, "method": call.method, "path": call.path,
                  "status": answer.status, "arguments": dict(call.arguments) or None, **answer.note}  # fmt: skip
        audit.tell(OPERATED, call.operator.name, fields)

    return witness
