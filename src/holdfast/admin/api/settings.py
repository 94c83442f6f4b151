"""The retainer's configuration while the broker runs: its present values, and changes to some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import Logger
from twisted.web import http

from holdfast.admin.api.settings_view import CHANGEABLE, UNTIL_RESTART, options_of, shown
from holdfast.admin.call import RefusedCall
from holdfast.config.reader import Reader
from holdfast.config.sections.retainer import RetainerConfig
from holdfast.core.strict_json import BadJSON, read_json
from holdfast.retained.fields import ascii_only


class Settings:
    """The present configuration of ``[retainer]``. ``apply`` puts a changed configuration into effect at once.

    The file belongs to the operator, so changes never touch it. ``apply`` is None in a command without a broker.
    """

    _log = Logger()

    def __init__(self, config: RetainerConfig, apply: Callable[[RetainerConfig], None] | None) -> None:
        self._config = self._file = config
        self._apply = apply

    @property
    def config(self) -> RetainerConfig:
        """The present configuration."""
        return self._config

    def shown(self) -> dict[str, Any]:
        """Return the present values, and the keys whose values differ from the file."""
        now, file = shown(self._config), shown(self._file)
        return {
            **now,
            UNTIL_RESTART: [name for name, value in options_of(now) if value != dict(options_of(file))[name]],
        }

    def replace(self, config: RetainerConfig) -> list[str]:
        """Use the configuration of the file, which was read again. Returns the keys that were changed through the API.

        Their changes have ended.
        """
        changed: list[str] = self.shown()[UNTIL_RESTART]
        self._config = self._file = config
        if self._apply is not None:
            self._apply(self._config)
        return changed

    def change(self, body: bytes) -> dict[str, Any]:
        """Change the keys of ``[retainer]`` that the body, a JSON object, contains; other keys keep their values.

        Raises :class:`RefusedCall` with all problems; then nothing is changed.
        """
        if self._apply is None:
            raise _refused(["no broker runs: change its configuration file"])
        before = shown(self._config)
        given = _given(body)
        reader = Reader(RetainerConfig)
        config = reader.section(RetainerConfig, _merged(before, given), ())
        problems = [f"retainer.{'.'.join(one.path)}: {one.message}" for one in reader.problems]
        if problems:
            raise _refused(problems)
        after = shown(config)
        changed = [(name, value) for name, value in options_of(after) if value != dict(options_of(before)).get(name)]
        fixed = [name for name, _ in changed if name.split(".")[0] not in CHANGEABLE]
        fixed += [name for name in dict(options_of(before)) if name not in dict(options_of(after))]
        if fixed:
            raise _refused(
                [
                    f"retainer.{name}: cannot be changed by this call; change it in the configuration file, then reload"
                    " or restart the broker"
                    for name in fixed
                ]
            )
        self._apply(config)
        self._config = config
        for name, value in changed:
            self._log.info("retainer.{name} is {value} until the broker ends", name=name, value=json.dumps(value))
        return self.shown()


def _given(body: bytes) -> dict[str, Any]:
    try:
        given = read_json(body)
    except BadJSON as error:
        raise _refused([str(error)]) from None
    if not isinstance(given, dict):
        raise _refused(["this is not a JSON object with keys of [retainer]"])
    given.pop(UNTIL_RESTART, None)
    return given


def _merged(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values, overridden by the given ones, table by table."""
    merged = dict(known)
    for name, value in given.items():
        before = known.get(name)
        nested = isinstance(before, dict) and isinstance(value, dict)
        merged[name] = _merged(before, value) if nested else value  # type: ignore[arg-type]  # nested: both are
    return merged


def _refused(problems: list[str]) -> RefusedCall:
    return RefusedCall(http.BAD_REQUEST, "UPDATE_FAILED", ascii_only("; ".join(problems)))
