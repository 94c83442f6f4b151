"""Calls about the configuration: values are shown without secrets, and a file is replaced whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred

from holdfast.admin.api.configs import CONFIGS_PATH, ConfigCalls
from holdfast.admin.call import Answer, Call, Caller, Scope, Via
from holdfast.admin.routing import RoutingTable
from holdfast.broker.admin import Configs
from holdfast.broker.reloading import Change, ConfigFile, Reloads
from holdfast.config import Config, ConfigError, default, load
from tests.storage.doubles import result_of

ALICE = Caller("alice", 1000, frozenset({Scope.ADMIN}))
OVER_HTTP, IN_CONTROL = (evolve(ALICE, via=via) for via in (Via.KEY, Via.CONTROL))
OLD = "[mqtt]\nmax_inflight = 10\n"
NEW = "[mqtt]\nmax_inflight = 20\n"


def _nothing() -> None:
    """Do nothing."""


class Desk:
    """The calls about a configuration in a file, which nothing but its reader looks at."""

    def __init__(self, folder: Path, text: str | None = OLD) -> None:
        self.file = folder / "holdfast.toml"
        self.busy_port = False
        if text is not None:
            self.file.write_text(text)
            self.file.chmod(0o640)

        def read(file: Path | None = None) -> Config:
            return default(folder) if text is None else load(file or self.file, allow_anonymous=True, folder=folder)

        def run(function: Any) -> Deferred[Any]:
            return maybeDeferred(function)

        def revoke(_old: Config, _new: Config) -> Deferred[Mapping[str, int]]:
            return maybeDeferred(dict)

        self.reloads = Reloads(
            read(), read=read, parts=[self._part], revoke=revoke, run=run, environment={}, files={},
            told=lambda _begins: None,
        )  # fmt: skip
        configs = Configs(self.reloads, ConfigFile(self.reloads, read, run), read, run)
        self.notes: list[Any] = []
        routes = ConfigCalls(configs).routes
        self.table = RoutingTable(routes, lambda _call, told: self.notes.append(told.note))

    def _part(self, _running: Config, config: Config) -> Change:
        def begin() -> None:
            if self.busy_port:
                raise ConfigError([config.source.problem(("listeners",), "the port is in use")])

        return Change(begin=begin, commit=_nothing, abandon=_nothing)

    def call(self, method: str, path: str = "", body: object = None, caller: Caller = ALICE) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        found: Answer = result_of(self.table.answer(Call(method, CONFIGS_PATH + path, {}, data, caller)))
        return found.status, json.loads(found.body)

    def names(self) -> set[str]:
        return {each.name for each in self.file.parent.iterdir()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_all_values_are_shown_and_where_the_file_has_others(desk: Desk) -> None:
    desk.file.write_text(NEW)
    status, content = desk.call("GET")
    assert status == 200
    values = {each["key"]: each for each in content["values"]}
    assert values["mqtt.max_inflight"] == {
        "key": "mqtt.max_inflight", "value": 10, "secret": False, "differs": True,
        "takes_effect": "at a reload, for clients that connect from then on",
    }  # fmt: skip
    assert not values["mqtt.max_qos_allowed"]["differs"]
    assert (values["storage.url"]["value"], values["storage.url"]["secret"]) == (None, True)
    assert (content["file"], content["writable"], content["problems"]) == (str(desk.file), True, [])


def test_a_broken_file_is_told_beside_the_values(desk: Desk) -> None:
    desk.file.write_text("[mqtt]\nmax_inflight = -1\n")
    _, content = desk.call("GET")
    assert [(each["line"], each["key"]) for each in content["problems"]] == [(2, "mqtt.max_inflight")]


def test_a_dry_run_tells_the_differences_and_writes_nothing(desk: Desk) -> None:
    status, content = desk.call("PUT", body={"toml": NEW, "dry_run": True})
    assert (status, content["dry_run"]) == (200, True)
    assert [(each["key"], each["old"], each["new"]) for each in content["changed"]] == [("mqtt.max_inflight", 10, 20)]
    assert desk.file.read_text() == OLD
    assert desk.names() == {"holdfast.toml"}
    assert desk.reloads.config.mqtt.max_inflight == 10


def test_a_new_file_takes_effect_and_the_old_one_is_kept_beside_it(desk: Desk) -> None:
    """The mode stays, also that of the copy: there may be secrets in it."""
    status, content = desk.call("PUT", body={"toml": NEW})
    assert (status, content["changed"][0]["key"]) == (200, "mqtt.max_inflight")
    assert desk.file.read_text() == NEW
    backup = desk.file.with_name("holdfast.toml.bak")
    assert backup.read_text() == OLD
    assert {each.stat().st_mode & 0o777 for each in (desk.file, backup)} == {0o640}
    assert desk.names() == {"holdfast.toml", "holdfast.toml.bak"}
    assert desk.reloads.config.mqtt.max_inflight == 20
    assert desk.notes == [{"dry_run": False, "changed": ["mqtt.max_inflight"]}]
    assert desk.call("GET", "/toml") == (200, {"file": str(desk.file), "toml": NEW})


@pytest.mark.parametrize("dry_run", [True, False])
def test_problems_are_told_with_line_and_key_and_nothing_is_changed(desk: Desk, dry_run: bool) -> None:
    wrong = "[mqtt]\nmax_inflight = -1\ncolour = 'red'\n"
    status, content = desk.call("PUT", body={"toml": wrong, "dry_run": dry_run})
    assert (status, content["code"], content["field"]) == (400, "UPDATE_FAILED", "toml")
    assert [(each["file"], each["line"], each["key"]) for each in content["problems"]] == [
        (str(desk.file), 2, "mqtt.max_inflight"), (str(desk.file), 3, "mqtt.colour"),
    ]  # fmt: skip
    assert "allowed" in content["problems"][0]["message"]
    assert desk.file.read_text() == OLD
    assert desk.names() == {"holdfast.toml"}


def test_the_old_file_comes_back_if_the_reload_fails(desk: Desk) -> None:
    """Some problems show only when the new configuration is put into effect, such as a port in use."""
    desk.busy_port = True
    status, content = desk.call("PUT", body={"toml": NEW})
    assert (status, content["problems"][0]["message"]) == (400, "the port is in use")
    assert desk.file.read_text() == OLD
    assert desk.file.stat().st_mode & 0o777 == 0o640
    assert desk.reloads.config.mqtt.max_inflight == 10


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text(OLD)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "holdfast.toml").symlink_to(real)
    desk = Desk(tmp_path / "links", text=None)
    desk = Desk(tmp_path / "links")
    status, content = desk.call("PUT", body={"toml": NEW}, caller=OVER_HTTP)
    assert status == 200
    # The relative paths begin at the folder of the link, before and after.
    assert ([each["key"] for each in content["changed"]], content["restart"]) == (["mqtt.max_inflight"], [])
    assert desk.file.is_symlink()
    assert real.read_text() == NEW


def test_an_operator_can_forbid_it(tmp_path: Path) -> None:
    """The file is neither shown nor replaced then."""
    desk = Desk(tmp_path, "[admin]\nconfig_writable = false\n")
    for method, path, body in (("PUT", "", {"toml": NEW}), ("GET", "/toml", None)):
        status, content = desk.call(method, path, body)
        assert status == 403
        assert "config_writable" in content["message"]
    assert desk.call("GET")[1]["writable"] is False


def test_without_a_file_there_is_nothing_to_replace(tmp_path: Path) -> None:
    desk = Desk(tmp_path, text=None)
    status, content = desk.call("PUT", body={"toml": NEW})
    assert (status, content["code"]) == (409, "NOT_WRITABLE")
    assert "--config" in content["message"]
    assert desk.names() == set()


@pytest.mark.parametrize(
    "body", [{}, {"toml": 1}, {"toml": "", "dry_run": 1}, {"toml": "\ud800"}, {"toml": "", "x": 1},
             {"toml": "#" * ((1 << 20) + 1)}]
)  # fmt: skip
def test_a_bad_body_is_refused(desk: Desk, body: Any) -> None:
    assert desk.call("PUT", body=body)[0] == 400
    assert desk.file.read_text() == OLD


STEALS = """
[authentication.mine]
type = "http"
url = "https://192.0.2.1/login"
secret_headers = { X-File = "file:secret" }
"""


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (OLD, OLD + STEALS, ["authentication.mine.type"]),
        (STEALS, STEALS.replace("192.0.2.1", "192.0.2.2"), ["authentication.mine.url"]),
        (STEALS, STEALS.replace("file:secret", "file:other"), ["authentication.mine.secret_headers"]),
        (OLD, OLD + '[audit]\nfile = "here"\n', ["audit.file"]),
        (OLD, OLD + '[storage]\nurl = "sqlite:///other.db"\n', ["storage.url"]),
        (OLD, OLD + '[listeners.more]\nendpoint = "tcp:18888"\n', ["listeners.more", "listeners.default"]),
        (OLD, OLD + '[[authorization.sources]]\ntype = "file"\npath = "rules.toml"\n', None),
    ],
)
def test_over_http_no_option_changes_that_may_name_a_file_a_server_or_a_secret(
    tmp_path: Path, old: str, new: str, keys: list[str] | None, dry_run: bool
) -> None:
    """Else the scope admin could have the broker send any of its files anywhere. The control socket may."""
    for name in ("secret", "other"):
        (tmp_path / name).write_text("secret")
        (tmp_path / name).chmod(0o600)
    desk = Desk(tmp_path, old)
    status, content = desk.call("PUT", body={"toml": new, "dry_run": dry_run}, caller=OVER_HTTP)
    if keys is None:
        assert status >= 400
    else:
        assert (status, content["keys"]) == (403, keys)
        assert desk.call("PUT", body={"toml": new, "dry_run": dry_run}, caller=IN_CONTROL)[0] == 200
    assert (desk.file.read_text() == old) is (keys is None or dry_run)


def test_over_http_plain_options_change(desk: Desk) -> None:
    new = (
        NEW
        + """
        [retainer]
        msg_expiry_interval = "1d"
        [retainer.topic_quotas.one]
        topic_filter = "a/#"
        max_retained_messages = 5
        [[retainer.policies]]
        filter = "b/#"
    """
    )
    status, content = desk.call("PUT", body={"toml": new}, caller=OVER_HTTP)
    assert (status, content.get("problems")) == (200, [])
    assert desk.file.read_text() == new
