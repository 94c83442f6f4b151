"""The audit log with somebody who listens to its events, whatever of them is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.audit.audit import IAudit

#: takes the kind of an event, its fields, and its texts of clients
Listener = Callable[[str, Mapping[str, object], Mapping[str, str | None]], None]


class OverheardAudit:
    """Hands events on to an audit log, and to the ``listener`` while there is one."""

    def __init__(self, audit: IAudit) -> None:
        self.listener: Listener | None = None
        self._audit = audit

    def tell(self, kind: str, group: str | None, fields: Mapping[str, object], **texts: str | None) -> None:
        """Hand an event on."""
        self._audit.tell(kind, group, fields, **texts)
        if self.listener is not None:
            self.listener(kind, fields, texts)
