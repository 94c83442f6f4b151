"""What a reload has done, as JSON and as lines for the log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from holdfast.config.differences import Difference
from holdfast.config.effects import TakesEffect
from holdfast.config.problems import ConfigProblem


@frozen(kw_only=True)
class Outcome:
    """What a reload has done. With ``problems``, nothing was changed.

    ``changed`` is in effect, ``restart`` needs a restart; both are without values that may be secret. ``files`` were
    read again because they have changed. ``revoked`` counts the clients and subscriptions that have ended. ``warnings``
    tell what is protected no longer.
    """

    changed: Sequence[Difference] = ()
    restart: Sequence[Difference] = ()
    files: Sequence[str] = ()
    problems: Sequence[ConfigProblem] = ()
    #: settings that were changed through the API, and are those of the file again
    reset: Sequence[str] = ()
    revoked: Mapping[str, int] = field(factory=dict)
    warnings: Sequence[str] = ()

    @property
    def not_plain(self) -> list[str]:
        """The keys of options that may name a file, a server or a secret."""
        return [each.key for each in (*self.changed, *self.restart) if not each.is_plain]

    def as_json(self) -> dict[str, Any]:
        """Return the outcome for the API."""
        return {
            "changed": [{**_values(each), "takes_effect": each.takes_effect.value} for each in self.changed],
            "restart": [_values(each) for each in self.restart],
            "files": list(self.files),
            "reset": list(self.reset),
            "problems": [str(problem) for problem in self.problems],
            "revoked": dict(self.revoked),
            "warnings": list(self.warnings),
        }


def lines(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that tell an outcome, given as JSON."""
    yield from content["problems"]
    if content["problems"]:
        yield "nothing was changed"
        return
    for each in content["changed"]:
        later = f" ({each['takes_effect']})" if each["takes_effect"] == TakesEffect.CONNECTING.value else ""
        yield f"{each['key']}: {_change(each)}{later}"
    for file in content["files"]:
        yield f"{file}: read again"
    for name in content["reset"]:
        yield f"retainer.{name}: the value of the API has ended, that of the file is in effect"
    for each in content["restart"]:
        yield f"{each['key']}: {_change(each)} needs a restart of the broker"
    for name, count in content["revoked"].items():
        if count:
            yield f"{count} {name} ended"
    for warning in content["warnings"]:
        yield f"warning: {warning}"
    if not any(content[name] for name in ("changed", "files", "reset", "restart")):
        yield "nothing has changed"


def _values(difference: Difference) -> dict[str, Any]:
    return {"key": difference.key, "old": difference.old, "new": difference.new}


def _change(values: Mapping[str, Any]) -> str:
    old, new = values["old"], values["new"]
    if old is None and new is None:
        return "changed"
    if old is None:
        return f"added ({_text(new)})"
    if new is None:
        return f"removed (was {_text(old)})"
    return f"{_text(old)} -> {_text(new)}"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
