"""Calls about the configuration: show its values, and replace its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.arguments import (
    ANYTHING,
    BOOLEAN,
    FLAG,
    STRING,
    array,
    check_fields,
    nullable,
    object_of,
    record,
    request,
)
from holdfast.admin.call import Answer, Call, Refusals, RefusedCall, Scope, Via, answer, bad_request
from holdfast.admin.routing import Content, Route, routes_of
from holdfast.config.options import TakesEffect
from holdfast.config.toml import ConfigProblem
from holdfast.core.terminal import counted
from holdfast.scheduling.waiting import as_deferred

CONFIGS_PATH = "/api/v5/configs"

_MOST_BYTES = 1 << 20
_EXAMPLE = '{"toml": "[mqtt]\\nmax_inflight = 100\\n", "dry_run": true}'
_CONFIGS = record(
    {
        "file": nullable(STRING),
        "writable": BOOLEAN,
        "values": array(
            record({"key": STRING, "value": ANYTHING, "secret": BOOLEAN, "takes_effect": STRING, "differs": BOOLEAN})
        ),
        "problems": array(ANYTHING),
    }
)
_OUTCOME = record({"dry_run": BOOLEAN, "changed": ANYTHING, "restart": ANYTHING, "warnings": ANYTHING})


class Outcome(Protocol):
    """The outcome of a reload, or of a tried one."""

    @property
    def problems(self) -> Sequence[ConfigProblem]:
        """The problems that prevented every change."""

    @property
    def not_plain(self) -> list[str]:
        """The keys of options that may name a file, a server or a secret."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the answer."""


class NotWritable(Exception):
    """The configuration cannot be written. The text says why."""


_REFUSALS: Refusals = {NotWritable: lambda error: RefusedCall(http.CONFLICT, "NOT_WRITABLE", str(error))}


class IConfigs(Protocol):
    """The configuration of the broker. Raises NotWritable if the file cannot be written."""

    @property
    def file(self) -> str | None:
        """The configuration file."""

    @property
    def writable(self) -> bool:
        """Whether the operator permits to write it."""

    def values(self) -> Iterable[tuple[str, object, TakesEffect, bool]]:
        """Return each option: its key, its value, when a change takes effect, and whether it is secret."""

    def differing(self) -> Deferred[tuple[frozenset[str], Sequence[ConfigProblem]]]:
        """Fire with the keys that have another value in the file now, and the problems of the file."""

    def text(self) -> Deferred[bytes]:
        """Fire with the content of the file."""

    def put(self, text: bytes, by: str, dry_run: bool) -> Deferred[Any]:
        """Replace the file and reload; with ``dry_run``, only find the differences. Fires with an Outcome."""


class ConfigCalls:
    """Shows and replaces the configuration."""

    def __init__(self, configs: IConfigs) -> None:
        self._configs = configs
        self.routes = routes_of(self)

    @Route(
        method="GET",
        path=CONFIGS_PATH,
        scope=Scope.READ,
        summary="Show the value of each option, and that in the file if it differs; secrets are hidden",
        answers={200: Content(_CONFIGS, "the values")},
    )
    @as_deferred
    async def show(self, _call: Call) -> Answer:
        """Show all values."""
        differing, problems = await self._configs.differing()
        values = [
            {"key": key, "value": value, "secret": secret, "takes_effect": effect.value, "differs": key in differing}
            for key, value, effect, secret in self._configs.values()
        ]
        return answer(
            {
                "file": self._configs.file,
                "writable": self._configs.writable and self._configs.file is not None,
                "values": values,
                "problems": _shown(problems),
            }
        )

    @Route(
        method="GET",
        path=f"{CONFIGS_PATH}/toml",
        scope=Scope.ADMIN,
        summary="Show the text of the configuration file with its secrets",
        answers={200: Content(record({"file": STRING, "toml": STRING}), "the text")},
        refusals=_REFUSALS,
    )
    @as_deferred
    async def text(self, _call: Call) -> Answer:
        """Show the file."""
        self._check_permitted()
        text = await self._configs.text()
        return answer({"file": self._configs.file, "toml": text.decode(errors="replace")})

    @Route(
        method="PUT",
        path=CONFIGS_PATH,
        scope=Scope.ADMIN,
        summary="Replace the configuration file and reload it; with dry_run, only list the differences",
        body=Content(
            request({"toml": STRING, "dry_run": FLAG}, required=("toml",)),
            "the whole new text",
            most_bytes=4 * _MOST_BYTES,
        ),
        answers={200: Content(_OUTCOME, "what was changed, or would be")},
        refusals=_REFUSALS,
        finishes=True,
    )
    @as_deferred
    async def put(self, call: Call) -> Answer:
        """Replace the file."""
        self._check_permitted()
        fields = object_of(call, _EXAMPLE)
        check_fields(fields, ("toml", "dry_run"))
        toml, dry_run = fields.get("toml"), fields.get("dry_run", False)
        if not isinstance(toml, str):
            raise bad_request("toml is the whole text of the configuration file", "toml", "text in TOML")
        if not isinstance(dry_run, bool):
            raise bad_request("dry_run is true or false", "dry_run", "true or false")
        try:
            text = toml.encode()
        except UnicodeEncodeError:
            raise bad_request("toml is not Unicode text: it has a lone surrogate", "toml", "text in TOML") from None
        if len(text) > _MOST_BYTES:
            raise bad_request(f"toml has more than {_MOST_BYTES} bytes", "toml", f"at most {_MOST_BYTES} bytes")
        if call.caller.via is not Via.CONTROL:
            await self._check_plain(text, call)
        outcome: Outcome = await self._configs.put(text, str(call.caller), dry_run)
        content = {**outcome.as_json(), "dry_run": dry_run, "problems": _shown(outcome.problems)}
        note = {"dry_run": dry_run, "changed": [each["key"] for each in content["changed"]]}
        if not outcome.problems:
            return answer(content, note=note)
        refused = RefusedCall(
            http.BAD_REQUEST,
            "UPDATE_FAILED",
            f"nothing was changed: {counted(len(outcome.problems), 'problem')}",
            field="toml",
            more=content,
        )
        return evolve(refused.answer(), note={"dry_run": dry_run, "problems": len(outcome.problems)})

    async def _check_plain(self, text: bytes, call: Call) -> None:
        """Refuse options with which a caller from elsewhere could send files of this machine to a server of its own."""
        tried: Outcome = await self._configs.put(text, str(call.caller), True)
        if tried.not_plain:
            keys = ", ".join(tried.not_plain)
            raise RefusedCall(
                http.FORBIDDEN,
                "FORBIDDEN",
                f"options that may name files, servers or secrets are changed on the broker's machine only: {keys}",
                field="toml",
                more={"keys": tried.not_plain},
            )

    def _check_permitted(self) -> None:
        if not self._configs.writable:
            raise RefusedCall(
                http.FORBIDDEN, "FORBIDDEN", "the configuration does not permit it: admin.config_writable is false"
            )


def _shown(problems: Sequence[ConfigProblem]) -> list[dict[str, Any]]:
    return [{"file": each.file, "line": each.line, "key": each.key, "message": each.message} for each in problems]


# The call that reloads the configuration: ``POST /api/v5/reload``.


RELOAD_PATH = "/api/v5/reload"
_RELOAD_OUTCOME = record(
    {"changed": array({"type": "object"}), "files": ANYTHING, "problems": array(ANYTHING), "warnings": ANYTHING}
)


class ReloadOutcome(Protocol):
    """The outcome of a reload."""

    def as_json(self) -> dict[str, Any]:
        """Return it for the answer."""


class ReloadAPI:
    """Reloads the configuration. ``reload`` takes the name of the operator."""

    def __init__(self, reload: Callable[[str], Deferred[Any]]) -> None:
        self._reload = reload
        self.routes = routes_of(self)

    @Route(
        method="POST",
        path=RELOAD_PATH,
        scope=Scope.ADMIN,
        summary="Reload the configuration; if it has problems, change nothing",
        answers={200: Content(_RELOAD_OUTCOME, "what was changed")},
        finishes=True,
    )
    def reload(self, call: Call) -> Deferred[Answer]:
        """Answer with the changes, or refuse with the problems if nothing was changed."""
        return self._reload(str(call.caller)).addCallbacks(_done, _failed)


def _done(outcome: ReloadOutcome) -> Answer:
    content = outcome.as_json()
    problems = len(content["problems"])
    note: Mapping[str, object] = {
        "changed": [each["key"] for each in content["changed"]],
        "files": content["files"],
        "problems": problems,
        **({"warnings": content["warnings"]} if content["warnings"] else {}),
    }
    if not problems:
        return answer(content, note=note)
    refused = RefusedCall(
        http.BAD_REQUEST, "UPDATE_FAILED", f"nothing was changed: {counted(problems, 'problem')}", more=content
    ).answer()
    return evolve(refused, note=note)


def _failed(failure: Failure) -> Answer:
    failure.trap(Exception)
    return RefusedCall(
        http.INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "the reload has failed or the broker stops; see its log"
    ).answer()
