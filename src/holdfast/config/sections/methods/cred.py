"""``[authentication.NAME]`` with ``type = "cred"``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from attrs import frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Text


@frozen
class CredConfig(Section):
    """User Name and Password are verified by a checker of twisted.cred, one of Twisted's or of a plugin."""

    checker: str = option(
        Text(allowed='the description of a checker, as "TYPE:ARGUMENTS"'),
        "",
        help="Description of the checker. twistd holdfast --help-auth lists the types that are installed. A relative"
        " path begins at the folder that the broker is started in.",
        effect="Another checker verifies the passwords.",
        example="file:/etc/holdfast/cred.passwd",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Return the problem of a missing checker."""
        if not self.checker:
            yield "checker", 'is missing; for example: checker = "file:/etc/holdfast/cred.passwd"', ("checker",)
