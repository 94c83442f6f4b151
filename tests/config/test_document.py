"""The whole configuration: defaults, zones, paths, and the options of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from holdfast.config import Config, ConfigError, ConfigProblem, default, exposed_without_authentication, load
from holdfast.config.differences import differences
from holdfast.config.sections.listeners import ListenerConfig
from holdfast.config.sections.mqtt import MQTTConfig
from holdfast.core.units import Rate
from holdfast.tap import Options


def test_without_a_file_it_listens_on_this_machine_only_and_stores_in_the_folder(tmp_path: Path) -> None:
    config = default(tmp_path)
    assert config.listeners == {"default": ListenerConfig("tcp:1883:interface=127.0.0.1", "mqtt", "", (), "")}
    assert config.data_dir == tmp_path / "data"
    assert config.storage.url == f"sqlite:///{tmp_path}/data/holdfast.db"
    assert exposed_without_authentication(config) == []


def test_without_a_file_paths_begin_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default() == default(tmp_path)


def test_an_empty_file_gives_the_defaults(write: Callable[[str], Path], tmp_path: Path) -> None:
    assert load(write("")) == default(tmp_path)
    assert load(str(write("[listeners]\n[zones]\n"))) == default(tmp_path)


def test_the_defaults_that_other_parts_and_documents_rely_on() -> None:
    """Users of EMQX and other modules expect these values, each in its unit."""
    config = default()
    assert (config.node.id, config.node.data_dir) == (1, "data")
    assert config.mqtt == MQTTConfig(
        max_packet_size=2112 << 10,
        max_topic_levels=128,
        max_qos_allowed=2,
        max_topic_alias=32,
        control_characters="refuse",
        retain_available=True,
        wildcard_subscription=True,
        shared_subscription=True,
        queue_subscription=True,
        subscription_identifiers=True,
        server_keepalive=None,
        max_keepalive=None,
        keepalive_multiplier=1.5,
        max_inflight=2000,
        max_inflight_bytes=1048576,
        max_awaiting_rel=1000,
        max_subscriptions=10_000,
        max_mqueue_len=100000,
        max_mqueue_bytes=64 * 1048576,
        mqueue_store_qos0=False,
        conflate_interval=0.0,
        conflate_filter="#",
        session_expiry_interval=7200.0,
        idle_timeout=15.0,
        upgrade_qos=False,
        ignore_loop_deliver=False,
    )
    assert (config.authentication.scram_file, config.authentication.methods) == ("", {})
    assert attrs.astuple(config.force_shutdown) == (True, "disconnect", 100000, 32 * 1048576)
    assert attrs.astuple(config.storage)[1:] == ("full", 1.0, "refuse")
    assert attrs.astuple(config.retainer) == (
        *("enabled", False, False, True, 0.0, None, True, False, 60.0, 50000, None, 0, 0, None, "reject"),
        *("wait", 86400.0, False, 30.0),
        *(None, (0, 0), {}, ()),
        *((1000, 0, None), (False, 7 * 86400.0, None), (7 * 86400.0, 10_000_000, 1 << 30, 16 << 20)),
        (True,),
    )
    assert config.sys_topics.sys_msg_interval == 10.0
    (listener,) = config.listeners.values()
    assert (listener.max_connections, listener.max_connections_per_address) == (None, None)
    assert (listener.max_conn_rate, listener.max_conn_rate_per_address) == (None, None)
    assert listener.max_half_open_per_address == 256


def test_every_section_is_read(write: Callable[[str], Path], tmp_path: Path) -> None:
    config = load(
        write("""
            node = { id = 255, data_dir = "/srv/holdfast" }
            mqtt.max_inflight = 1
            mqtt.max_subscriptions = 5
            mqtt.server_keepalive = "2m"
            mqtt.session_expiry_interval = "infinity"
            mqtt.subscription_identifiers = false
            force_shutdown.max_bytes = 0
            storage.durability = "async"
            storage.flush_interval = "250ms"
            [retainer]
            msg_expiry_interval = "1d12h"
            flow_control.batch_read_number = 0
            flow_control.batch_deliver_number = 0
            delivery_rate = "1000/s"
            flow_control.client_rate = "10/2s"
            [sys_topics]
            sys_msg_interval = "1m"
            [listeners.one]
            endpoint = 'tcp:1:interface=\\:\\:1'
        """)
    )
    assert (config.node.id, config.data_dir) == (255, Path("/srv/holdfast"))
    assert (config.mqtt.max_inflight, config.mqtt.max_subscriptions) == (1, 5)
    assert (config.mqtt.server_keepalive, config.mqtt.session_expiry_interval) == (120, None)
    assert config.mqtt.subscription_identifiers is False
    assert config.force_shutdown.max_bytes == 0
    assert (config.storage.durability, config.storage.flush_interval) == ("async", 0.25)
    assert config.storage.url == "sqlite:////srv/holdfast/holdfast.db"
    assert config.retainer.msg_expiry_interval == 129600
    assert config.sys_topics.sys_msg_interval == 60
    assert list(config.listeners) == ["one"]
    flow = config.retainer.flow_control
    assert (flow.read_rows, flow.deliver_rows) == (1000, 1000)
    assert config.retainer.delivery_rate == Rate(1000, 1)
    assert flow.client_rate == Rate(10, 2)


@pytest.mark.parametrize("key", ["deliver_rate", "flow_control.batch_deliver_limiter"])
def test_further_names_of_emqx_for_the_rate_of_all_replays_count_with_a_warning(
    write: Callable[[str], Path], key: str
) -> None:
    """Alone, or beside the same value under the name of the option."""
    for beside in ("", 'retainer.delivery_rate = "10/s"\n'):
        config = load(write(f'{beside}retainer.{key} = "10/s"\nretainer.flow_control.client_rate = "1/s"'))
        assert config.retainer.delivery_rate == Rate(10, 1)
        assert config.retainer.flow_control.client_rate == Rate(1, 1)
        assert [(each.key, "retainer.delivery_rate" in each.message) for each in config.ignored] == [
            (f"retainer.{key}", True)
        ]


@pytest.mark.parametrize("value", ["disabled", "0s"])
def test_the_broker_s_own_topics_can_be_switched_off(write: Callable[[str], Path], value: str) -> None:
    assert load(write(f'[sys_topics]\nsys_msg_interval = "{value}"\n')).sys_topics.sys_msg_interval == 0


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        default().mqtt.max_inflight = 5  # type: ignore[misc]


def test_a_zone_overrides_the_general_options_and_these_the_defaults(write: Callable[[str], Path]) -> None:
    config = load(
        write("""
            [mqtt]
            max_inflight = 5
            max_qos_allowed = 1
            [force_shutdown]
            max_bytes = "8MB"
            [zones.sensors.mqtt]
            max_qos_allowed = 0
            [zones.sensors.force_shutdown]
            enable = false
            [zones.empty]
            [zones.deep.mqtt]
            max_topic_levels = 200
            [listeners.field]
            zone = "sensors"
        """)
    )
    zone = config.zone(config.listeners["field"].zone)
    assert (zone.mqtt.max_qos_allowed, zone.mqtt.max_inflight, zone.mqtt.max_topic_levels) == (0, 5, 128)
    assert (zone.force_shutdown.enable, zone.force_shutdown.max_bytes) == (False, 8 * 1048576)
    assert config.zone("empty") == config.zone("")
    assert config.most_topic_levels == 200
    assert (config.zone("").mqtt, config.zone("").force_shutdown) == (config.mqtt, config.force_shutdown)
    with pytest.raises(KeyError):
        config.zone("elsewhere")


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("sqlite:///retained.db", "sqlite:///{folder}/retained.db"),
        ("sqlite:///../retained.db", "sqlite:///{parent}/retained.db"),
        ("sqlite:////var/lib/retained.db", "sqlite:////var/lib/retained.db"),
        ("", "sqlite:///{folder}/data/holdfast.db"),
    ],
)
def test_the_database_s_path_is_absolute(write: Callable[[str], Path], tmp_path: Path, url: str, resolved: str) -> None:
    config = load(write(f'[storage]\nurl = "{url}"\n'))
    assert config.storage.url == resolved.format(folder=tmp_path, parent=tmp_path.parent)


def test_paths_begin_at_the_folder_of_the_file_not_at_the_current_one(
    write: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[node]\ndata_dir = "kept"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(Path("../holdfast.toml")).data_dir == tmp_path / "kept"


@pytest.mark.parametrize(("name", "path"), [("users", "{folder}/users"), ("../u", "{parent}/u"), ("/etc/u", "/etc/u")])
def test_the_file_of_scram_users_begins_at_the_folder_of_the_configuration(
    write: Callable[[str], Path], tmp_path: Path, name: str, path: str
) -> None:
    config = load(write(f'[authentication]\nscram_file = "{name}"\n'))
    assert config.authentication.scram_files == (name,)
    expected = Path(path.format(folder=tmp_path, parent=tmp_path.parent))
    assert config.absolute(name) == expected
    assert config.override([], "/srv", None, False, Path("/elsewhere")).absolute(name) == expected


def test_a_deleted_current_folder_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the current folder"):
        default()


def test_a_folder_with_a_question_mark_cannot_hold_the_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"built-in defaults: storage.url: found a \? in the path"):
        default(tmp_path / "what?")


class TestOverride:
    """The command line overrides the file."""

    @pytest.fixture
    def config(self, write: Callable[[str], Path]) -> Config:
        return load(write('[listeners.open]\nendpoint = "tcp:1883"\n'), allow_anonymous=True)

    def test_nothing_given_changes_nothing(self, tmp_path: Path) -> None:
        config = default(tmp_path)
        assert config.override([], None, None, False, tmp_path / "elsewhere") == config

    def test_one_endpoint_replaces_all_listeners(self, config: Config, tmp_path: Path) -> None:
        changed = config.override(["tcp:0:interface=127.0.0.1"], None, None, False, tmp_path)
        assert changed.listeners == {"default": ListenerConfig("tcp:0:interface=127.0.0.1")}

    def test_several_endpoints_are_numbered_and_may_all_take_a_free_port(self, config: Config, tmp_path: Path) -> None:
        endpoint = "tcp:0:interface=127.0.0.1"
        changed = config.override([endpoint, "unix:/run/m", endpoint], None, None, False, tmp_path)
        assert {name: listener.endpoint for name, listener in changed.listeners.items()} == {
            "listen-1": endpoint,
            "listen-2": "unix:/run/m",
            "listen-3": endpoint,
        }

    def test_a_data_folder_is_relative_to_the_current_one_and_has_the_default_database(self, tmp_path: Path) -> None:
        changed = default(tmp_path).override([], "kept", None, False, tmp_path / "here")
        assert changed.data_dir == tmp_path / "here" / "kept"
        assert changed.storage.url == f"sqlite:///{tmp_path}/here/kept/holdfast.db"

    def test_a_data_folder_does_not_change_a_configured_database(
        self, write: Callable[[str], Path], tmp_path: Path
    ) -> None:
        config = load(write('[storage]\nurl = "sqlite:///data/holdfast.db"\n'))
        changed = config.override([], "/srv", None, False, tmp_path)
        assert changed.data_dir == Path("/srv")
        assert changed.storage.url == config.storage.url

    def test_a_database_is_relative_to_the_current_folder(self, tmp_path: Path) -> None:
        changed = default(tmp_path).override([], "/srv", "sqlite:///r.db", False, tmp_path / "here")
        assert changed.storage.url == f"sqlite:///{tmp_path}/here/r.db"
        assert changed.override([], "/other", None, False, tmp_path).storage.url == changed.storage.url

    def test_an_empty_database_is_the_default_one_in_the_data_folder(
        self, write: Callable[[str], Path], tmp_path: Path
    ) -> None:
        config = load(write('[storage]\nurl = "sqlite:////elsewhere.db"\n'))
        assert config.override([], None, "", False, tmp_path).storage.url == f"sqlite:///{tmp_path}/data/holdfast.db"

    def test_allowing_anonymous_clients_opens_every_listener(self, config: Config, tmp_path: Path) -> None:
        assert config.override([], None, None, True, tmp_path).listeners["open"].allow_anonymous
        assert config.override(["tcp:1883"], None, None, True, tmp_path).listeners["default"].allow_anonymous

    def test_an_open_listener_of_the_file_is_reported_with_its_line(self, config: Config, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            config.override([], None, None, False, tmp_path)
        [problem] = caught.value.problems
        assert (problem.file, problem.line) == (str(tmp_path / "holdfast.toml"), 2)
        assert problem.key == "listeners.open.endpoint"
        assert exposed_without_authentication(config) == [problem]

    def test_all_problems_of_the_command_line_at_once(self, config: Config, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            config.override(["ssl:1", "tcp:1883", "unix:/a", "unix:/a"], "~/x", "mysql://u:secret@h/d", False, tmp_path)
        problems = caught.value.problems
        assert {problem.file for problem in problems} == {"command line"}
        assert {problem.line for problem in problems} == {None}
        assert [problem.key for problem in problems] == ["--data-dir", "--listen", "--listen", "--listen", "--storage"]
        text = str(caught.value)
        assert 'command line: --listen: found "ssl:1"; allowed: ' in text
        assert "listens beyond this machine" in text
        assert "listens on" in text
        assert "secret" not in text

    def test_without_a_valid_endpoint_only_the_command_line_has_problems(self, config: Config, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            config.override([""], None, None, False, tmp_path)
        assert [problem.key for problem in caught.value.problems] == ["--listen"]

    @pytest.mark.parametrize(
        ("data_dir", "storage", "key"), [("a?b", None, "--data-dir"), (None, "sqlite:///r.db", "--storage")]
    )
    def test_a_path_that_a_url_cannot_have(
        self, tmp_path: Path, data_dir: str | None, storage: str | None, key: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            default(tmp_path).override([], data_dir, storage, False, tmp_path / "what?")
        assert [(problem.file, problem.key) for problem in caught.value.problems] == [("command line", key)]


def test_problems_are_in_the_order_of_the_file_one_on_a_line() -> None:
    error = ConfigError(
        [
            ConfigProblem("h.toml", 9, "b", "second"),
            ConfigProblem("h.toml", 10, "a", "third"),
            ConfigProblem("h.toml", 9, "a", "first"),
            ConfigProblem("h.toml", None, "", "whole"),
        ]
    )
    assert str(error).splitlines() == [
        "h.toml: whole",
        "h.toml:9: a: first",
        "h.toml:9: b: second",
        "h.toml:10: a: third",
    ]


def test_a_file_that_stands_in_for_the_configuration_has_the_same_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that is to replace one behind a link is checked beside that, in another folder."""
    for name in ("real", "links"):
        (tmp_path / name).mkdir()
    real = tmp_path / "real" / "holdfast.toml"
    real.write_text('[node]\ndata_dir = "data"\n')
    (tmp_path / "links" / "holdfast.toml").symlink_to(real)
    new = real.with_name("new")
    new.write_text('[node]\ndata_dir = "data"\n[mqtt]\nmax_inflight = 7\n')
    monkeypatch.chdir(tmp_path / "links")
    options = Options()
    options.parseOptions(["--config", "holdfast.toml"])  # type: ignore[no-untyped-call]
    assert [each.key for each in differences(options.config, options.read(new))] == ["mqtt.max_inflight"]
