"""A mosquitto.conf is read as mosquitto reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.toml import ConfigError, FileUnreadable
from holdfast.moving.keywords import ALIASES, KEYWORDS, Scope
from holdfast.moving.mosquitto_conf import MosquittoConf, read_conf

#: keywords of ``src/conf.c`` in mosquitto 2.0 and 2.1, without the prefixes of plugin options
OF_MOSQUITTO = """
    accept_protocol_versions acl_file address addresses allow_anonymous allow_duplicate_messages
    allow_zero_length_clientid auth_plugin auth_plugin_deny_special_chars auto_id_prefix autosave_interval
    autosave_on_changes bind_address bind_interface bridge_alpn bridge_attempt_unsubscribe bridge_bind_address
    bridge_cafile bridge_capath bridge_certfile bridge_ciphers bridge_ciphers_tls1.3 bridge_identity bridge_insecure
    bridge_keyfile bridge_max_packet_size bridge_max_topic_alias bridge_outgoing_retain bridge_protocol_version
    bridge_psk bridge_receive_maximum bridge_reload_type bridge_require_ocsp bridge_session_expiry_interval
    bridge_tcp_keepalive bridge_tcp_user_timeout bridge_tls_use_os_certs bridge_tls_version cafile capath certfile
    check_retain_source ciphers ciphers_tls1.3 cleansession clientid clientid_prefixes connection connection_messages
    crlfile dhparamfile disable_client_cert_date_checks enable_control_api enable_proxy_protocol global_max_clients
    global_max_connections global_plugin http_dir idle_timeout include_dir keepalive_interval keyfile listener
    listener_allow_anonymous listener_auto_id_prefix local_cleansession local_clientid local_password local_username
    log_dest log_facility log_timestamp log_timestamp_format log_type max_connections max_inflight_bytes
    max_inflight_messages max_keepalive max_packet_size max_qos max_queued_bytes max_queued_messages max_topic_alias
    max_topic_alias_broker maximum_qos memory_limit message_size_limit mount_point notification_topic notifications
    notifications_local_only packet_buffer_size password password_file per_listener_settings persistence
    persistence_file persistence_location persistent_client_expiration pid_file plugin plugin_load plugin_use port
    protocol proxy_protocol_v2_require_tls psk_file psk_hint queue_qos0_messages remote_clientid remote_password
    remote_username require_certificate restart_timeout retain_available retain_expiry_interval retained_persistence
    retry_interval round_robin set_tcp_nodelay socket_domain start_type store_clean_interval sys_interval threshold
    tls_engine tls_engine_kpass_sha1 tls_keyform tls_version topic try_private upgrade_outgoing_qos
    use_identity_as_username use_subject_as_username use_username_as_clientid user username websockets_headers_size
    websockets_log_level websockets_origin
"""


def conf(folder: Path, text: str, **included: str) -> MosquittoConf:
    """Read a file, with files in the folder conf.d beside it."""
    (folder / "conf.d").mkdir(exist_ok=True)
    for name, content in included.items():
        (folder / "conf.d" / f"{name}.conf").write_text(content)
    path = folder / "mosquitto.conf"
    path.write_text(text)
    return read_conf(path)


def problems(folder: Path, text: str, **included: str) -> list[tuple[int | None, str, str]]:
    """Return the problems of a file: line, keyword and message."""
    with pytest.raises(ConfigError) as raised:
        conf(folder, text, **included)
    return [(each.line, each.key, each.message) for each in raised.value.problems]


def test_every_keyword_of_mosquitto_is_known() -> None:
    known = {*KEYWORDS, *ALIASES}
    assert known == set(OF_MOSQUITTO.split())
    assert set(ALIASES.values()) <= set(KEYWORDS)


def test_settings_belong_to_the_last_listener_only_after_per_listener_settings(tmp_path: Path) -> None:
    found = conf(tmp_path, "listener 1883\npassword_file a\nlistener 1884\npassword_file b\n")
    assert found.settings["password_file"].value == "b"
    assert [listener.settings for listener in found.listeners] == [{}, {}]
    found = conf(
        tmp_path, "per_listener_settings true\nlistener 1883\npassword_file a\nlistener 1884\npassword_file b\n"
    )
    assert [listener.settings["password_file"].value for listener in found.listeners] == ["a", "b"]
    assert "password_file" not in found.settings


def test_per_listener_settings_after_settings_about_access_is_refused(tmp_path: Path) -> None:
    [(line, keyword, message)] = problems(tmp_path, "listener 1883\nacl_file a\nper_listener_settings true\n")
    assert (line, keyword) == (3, "per_listener_settings")
    assert "move it to the beginning" in message


def test_included_files_come_in_the_order_of_mosquitto_and_the_last_one_counts(tmp_path: Path) -> None:
    """Capital letters come before small ones, letter by letter: see include_dir in mosquitto's man page."""
    names = ("a", "B", "b", "01", "10", "2")
    found = conf(
        tmp_path,
        f"include_dir {tmp_path}/conf.d\nuser main\n",
        **{name: f"listener 100{i}" for i, name in enumerate(names)},
    )
    assert [listener.port for listener in found.listeners] == [1003, 1004, 1005, 1000, 1001, 1002]
    (tmp_path / "conf.d" / "z.txt").write_text("nonsense")
    (tmp_path / "conf.d" / ".conf").write_text("nonsense")
    assert found.settings["user"].value == "main"


def test_a_bridge_and_a_listener_end_with_their_file(tmp_path: Path) -> None:
    text = f"connection cloud\naddress a\nlistener 1883\ninclude_dir {tmp_path}/conf.d\ntopic #\nmax_connections 7\n"
    found = conf(tmp_path, text, x="max_qos 1\n")
    assert [str(line) for line in found.bridges[0].lines] == ["address a", "topic #"]
    first, default = found.listeners
    assert first.settings["max_connections"].value == 7
    assert default is found.default_listener
    assert default.settings["max_qos"].value == 1
    [(line, keyword, _)] = problems(tmp_path, text, x="topic a/#\n")
    assert (line, keyword) == (1, "topic")


def test_an_included_file_includes_none(tmp_path: Path) -> None:
    [(line, keyword, _)] = problems(tmp_path, f"include_dir {tmp_path}/conf.d\n", x="\ninclude_dir .\n")
    assert (line, keyword) == (2, "include_dir")


def test_without_listener_and_port_it_is_local(tmp_path: Path) -> None:
    assert conf(tmp_path, "max_connections 5\n").is_local_only
    assert not conf(tmp_path, "port 1884\n").is_local_only
    found = conf(tmp_path, "bind_address 192.0.2.1\n")
    assert not found.is_local_only
    assert [str(listener) for listener in found.listeners] == ["listener 1883 192.0.2.1"]


def test_plugins_have_their_options_and_listeners(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "plugin /lib/mosquitto_dynamic_security.so\nplugin_opt_config_file /a/b.json\n"
        "plugin_load acl /lib/mosquitto_acl_file.so\nplugin_opt_acl_file /a/acl\n"
        "listener 1883\nlistener 1884\nplugin_use acl\nauth_opt_secret hush\n",
    )
    dynamic, acl = found.plugins
    assert (dynamic.module, dynamic.listeners) == ("mosquitto_dynamic_security", None)
    assert dynamic.options["config_file"].value == "/a/b.json"
    assert acl.listeners == [found.listeners[1]]
    assert str(acl.options["secret"]) == "auth_opt_secret ***"


def test_unknown_keywords_are_kept_without_their_values(tmp_path: Path) -> None:
    found = conf(tmp_path, "listenr 1883 hush\n# a comment\n\n   \nPort 1883\n")
    assert [(each.keyword, each.origin.rpartition(":")[2]) for each in found.unknown] == [
        ("listenr", "1"),
        ("Port", "5"),
    ]
    assert "hush" not in str(found.unknown)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("allow_anonymous yes", "true or false"),
        ("listener", "a text after the keyword"),
        ("listener 70000", "an integer from 1 to 65535"),
        ("listener 0", "listener 0 PATH"),
        ("max_qos 3", "from 0 to 2"),
        ("max_keepalive 08", "from 0 to 65535"),
        (f"max_keepalive {'9' * 5000}", "from 0 to 65535"),
        ("protocol quic", "mqtt, websockets or http_api"),
        ("persistent_client_expiration 5", "14d"),
        ("plugin_use x", "plugin_load"),
        ("plugin_load x", "plugin_load NAME FILE"),
        ("plugin_opt_x 1", "plugin FILE"),
        ("plugin_opt_x", "a text after the keyword"),
        ("include_dir /does/not/exist", "a folder"),
        ("remote_password hush", "connection NAME"),
        ("log_type loud", "information"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place_and_what_is_allowed(tmp_path: Path, line: str, allowed: str) -> None:
    [(number, keyword, message)] = problems(tmp_path, f"\n{line}\n")
    assert (number, keyword) == (2, line.split(" ")[0])
    assert allowed in message
    assert "hush" not in message


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    assert [line for line, *_ in problems(tmp_path, "max_qos 9\nuser a\nlog_type x\nport 0\n")] == [1, 3, 4]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"nowhere\.conf"):
        read_conf(tmp_path / "nowhere.conf")


KEYS = st.sampled_from([*KEYWORDS, *ALIASES, "plugin_opt_x", "nonsense"])
VALUES = st.one_of(st.sampled_from(["true", "1", "0x7", "a b", "", "mqtt", "7 /a"]), st.text(max_size=9))


@given(lines=st.lists(st.tuples(KEYS, VALUES), max_size=9))
def test_any_lines_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.conf"
    text = "\n".join(f"{key} {value}" for key, value in lines if key != "include_dir")
    path.write_bytes(text.encode(errors="replace"))
    try:
        found = read_conf(path)
    except ConfigError:
        return
    assert len(found.files) == 1
    assert all(KEYWORDS[each].scope is not Scope.BRIDGE for each in found.settings)
