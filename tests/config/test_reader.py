"""Every class of mistake in a valid TOML file: its line, its key, and its message."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.config import Config, ConfigError, load
from holdfast.config.options import described
from holdfast.config.reader import Reader
from tests.config.conftest import Problems


@pytest.mark.parametrize(
    ("text", "line", "key", "message"),
    [
        # values
        ("[node]\n\nid = 256", 3, "node.id", "found 256; allowed: an integer from 1 to 255"),
        ('[mqtt]\nmax_inflight = "5"', 2, "mqtt.max_inflight", 'found "5"; allowed: an integer from 1 to 65535'),
        ("mqtt.max_qos_allowed = 3", 1, "mqtt.max_qos_allowed", "found 3; allowed: 0, 1 or 2"),
        ("[mqtt]\nmax_packet_size = 1", 2, "mqtt.max_packet_size", "found 1; allowed: a size"),
        ("[mqtt]\nidle_timeout = 15", 2, "mqtt.idle_timeout", "found 15; allowed: a duration with its unit"),
        ("[mqtt]\nkeepalive_multiplier = nan", 2, "mqtt.keepalive_multiplier", "found nan; allowed: a number from 1.0"),
        ("[mqtt]\nidle_timeout = 1979-05-27", 2, "mqtt.idle_timeout", "found 1979-05-27; allowed"),
        ('[storage]\ndurability = "none"', 2, "storage.durability", 'found "none"; allowed: "full", "process" or'),
        ('[node]\ndata_dir = ""', 2, "node.data_dir", 'found ""; allowed: the path of a folder'),
        ('[node]\ndata_dir = "~/data"', 2, "node.data_dir", "~, which is not expanded"),
        (
            "retainer = { flow_control = { batch_read_number = -1 } }",
            1,
            "retainer.flow_control.batch_read_number",
            "found -1",
        ),
        ('[zones.z.mqtt]\nmax_inflight = "x"', 2, "zones.z.mqtt.max_inflight", 'found "x"; allowed: an integer'),
        ('[listeners.a]\npath = "/m"', 2, "listeners.a.path", 'write transport = "websocket", or remove path'),
        (
            '[listeners.a]\norigins = ["*"]',
            2,
            "listeners.a.origins",
            'write transport = "websocket", or remove origins',
        ),
        ('[listeners.a]\npath = "mqtt"', 2, "listeners.a.path", 'a path that begins with "/"'),
        ('[listeners.a]\npath = "/a?b"', 2, "listeners.a.path", 'a path that begins with "/"'),
        ('[listeners.a]\norigins = "*"', 2, "listeners.a.origins", "a list of origins"),
        ('[listeners.a]\norigins = ["a.example"]', 2, "listeners.a.origins", 'found "a.example" in the list'),
        ('[listeners.a]\norigins = ["https://a.example/"]', 2, "listeners.a.origins", "without a path"),
        ('[listeners.a]\norigins = ["https://*.example"]', 2, "listeners.a.origins", "without a path"),
        ('[listeners.a]\norigins = ["null"]', 2, "listeners.a.origins", 'found "null" in the list'),
        ("[listeners.a]\norigins = [1]", 2, "listeners.a.origins", "found 1 in the list"),
        ('[listeners.a]\ntransport = "ws"', 2, "listeners.a.transport", 'found "ws"; allowed: "mqtt" or "websocket"'),
        ('[listeners.a]\nendpoint = "ssl:1"', 2, "listeners.a.endpoint", 'found "ssl:1"; allowed: a Twisted server'),
        # tables
        ("node = 5", 1, "node", "found 5; allowed: a table, [node]"),
        ("[[mqtt]]\nmax_inflight = 1", 1, "mqtt", "found an array; allowed: a table, [mqtt]"),
        ("[[listeners]]", 1, "listeners", "found an array; allowed: tables with a name, [listeners.NAME]"),
        ('listeners.a = "tcp:1"', 1, "listeners.a", 'found "tcp:1"; allowed: a table, [listeners.a]'),
        ("zones.a.mqtt = true", 1, "zones.a.mqtt", "found true; allowed: a table, [zones.a.mqtt]"),
        ("\n[retainer]\nflow_control = 1", 3, "retainer.flow_control", "found 1; allowed: a table"),
        ('[listeners."a b"]', 1, 'listeners."a b"', "not a name; allowed: names of 1 to 64 letters"),
        ('[zones.""]', 1, 'zones.""', "not a name"),
        # unknown keys
        (
            "furniture = 1",
            1,
            "furniture",
            "unknown key; known here: admin, alarms, audit, authentication, authorization, bridges, cluster,",
        ),
        ("[nodes]", 1, "nodes", "unknown key; did you mean node?"),
        ("[mqtt]\nmax_paket_size = 1", 2, "mqtt.max_paket_size", "unknown key; did you mean mqtt.max_packet_size?"),
        ("max_packet_size = 1", 1, "max_packet_size", "unknown key; did you mean mqtt.max_packet_size?"),
        ("[retainer]\nbatch_read_number = 1", 2, "retainer.batch_read_number", "mean retainer.flow_control.batch_read"),
        ("[mqtt]\nenable = true", 2, "mqtt.enable", "did you mean failed_logins.enable or force_shutdown.enable or"),
        ("[node]\nendpoint = 1", 2, "node.endpoint", "unknown key; did you mean listeners.NAME.endpoint or admin"),
        ("[zones.z.mqtt]\nmax_qos = 1", 2, "zones.z.mqtt.max_qos", "unknown key; did you mean zones.z.mqtt.max_"),
        ("[zones.z.storage]", 1, "zones.z.storage", "unknown key; did you mean storage?"),
        (
            "[zones.z.retainer]\nmax_payload_size = 1",
            2,
            "zones.z.retainer.max_payload_size",
            "retainer.max_payload_size",
        ),
        ('[retainer]\non_limit = "evict"', 2, "retainer.on_limit", 'found "evict"; allowed: "reject", "deliver_only",'),
        (
            '[retainer]\nmax_publish_rate = "0/s"',
            2,
            "retainer.max_publish_rate",
            'found "0/s"; allowed: "infinity", or a number of 1 or more',
        ),
        (
            "[retainer]\nmax_publish_rate = 5",
            2,
            "retainer.max_publish_rate",
            'found 5; allowed: "infinity", or a number',
        ),
        (
            '[retainer.topic_quotas.a]\ntopic_filter = "a/#/b"',
            *(
                2,
                "retainer.topic_quotas.a.topic_filter",
                "found \"a/#/b\": '#' stands alone in the last level;",
            ),
        ),
        (
            '[retainer.topic_quotas.a]\ntopic_filter = "$share/g/a"',
            *(2, "retainer.topic_quotas.a.topic_filter", 'found "$share/g/a"; allowed: a Topic Filter, not of'),
        ),
        ("[retainer]\nclient_quota = 1", 2, "retainer.client_quota", "found 1; allowed: a table"),
        (
            '[retainer]\nmsg_expiry_interval_override = "never"',
            *(2, "retainer.msg_expiry_interval_override", 'or "disabled"'),
        ),
        ('["a.b"]', 1, '"a.b"', "unknown key"),
        ('"a\\nb" = 1', 1, '"a\\nb"', "unknown key"),
        # EMQX's
        ('[retainer]\ndelivery_rate = "0/s"', 2, "retainer.delivery_rate", 'found "0/s"; allowed: "infinity", or a'),
        (
            '[retainer]\ndelivery_rate = "1/s"\ndeliver_rate = "2/s"',
            *(3, "retainer.deliver_rate", "another name of delivery_rate, which has another value here; allowed"),
        ),
        ("[mqtt]\nstrict_mode = true", 2, "mqtt.strict_mode", "known to EMQX, not supported here (yet)"),
        ("[zones.z.mqtt]\nmqueue_priorities = 1", 2, "zones.z.mqtt.mqueue_priorities", "known to EMQX"),
        ("[zones.z.stats]\nenable = true", 1, "zones.z.stats", "known to EMQX"),
        (
            '[authentication]\nscram_file = "~/users"',
            *(2, "authentication.scram_file", "found a path that begins with ~, which is not expanded"),
        ),
        ("[authentication]\nscram_file = 1", 2, "authentication.scram_file", "found 1; allowed: the path of a file"),
        ("[[authentication]]", 1, "authentication", "found an array; allowed: a table, [authentication]"),
        ('[listeners.a]\nbind = "1883"', 2, "listeners.a.bind", "known to EMQX"),
        ("[listeners.tcp.default]\nbind = 1883", 1, "listeners.tcp.default", "EMQX's listeners.TYPE.NAME is not"),
        # several keys together
        ('[listeners.a]\nzone = "x"', 2, "listeners.a.zone", 'no zone is named "x"; there are no zones'),
        (
            '[zones.sensors]\n[zones.b]\n[listeners.a]\nzone = "sensor"',
            *(4, "listeners.a.zone", 'no zone is named "sensor"; did you mean "sensors"?'),
        ),
        (
            '[zones.k]\n[zones.b]\n[listeners.a]\nzone = "sensor"',
            *(4, "listeners.a.zone", 'no zone is named "sensor"; zones: "b", "k"'),
        ),
        (
            "[listeners.a]\n[listeners.b]",
            *(2, "listeners.b.endpoint", 'listeners.a listens on "tcp:1883:interface=127.0.0.1" already'),
        ),
        (
            '[storage]\ndurability = "process"\nflush_interval = "2s"',
            *(3, "storage.flush_interval", 'only with storage.durability = "async"; found "process"'),
        ),
        (
            "[retainer.flow_control]\nbatch_read_number = 10\nbatch_deliver_number = 11",
            *(3, "retainer.flow_control.batch_deliver_number", "batch_deliver_number is 11 and batch_read_number 10;"),
        ),
        (
            "[retainer.flow_control]\nbatch_deliver_number = 1001",
            *(
                2,
                "retainer.flow_control.batch_deliver_number",
                "batch_deliver_number is 1001 and batch_read_number 1000",
            ),
        ),
        (
            '[listeners.field]\nendpoint = "tcp:1884"',
            *(2, "listeners.field.endpoint", "listener field listens beyond this machine"),
        ),
    ],
)
def test_a_mistake_has_its_line_key_and_message(
    problems_of: Callable[..., Problems], text: str, line: int, key: str, message: str
) -> None:
    [(found_line, found_key, found_message)] = problems_of(text)
    assert (found_line, found_key) == (line, key)
    assert message in found_message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql+psycopg://u:secret@h", "found no name of a database after the host"),
        ("postgresql+psycopg://u:secret@h:x/d", "found a URL whose host or port cannot be read"),
        ("postgresql+psycopg://u:p@secret:word@h/d", "in a password, write %40"),
        ("postgresql://u:secret@h", "found no name of a database after the host"),
        ("postgresql+asyncpg://u:secret@h/d", "for Postgres write postgresql+psycopg://..."),
        ("mysql://u:secret@h/d", "found the scheme mysql://; allowed: sqlite:///relative/path"),
        ("sqlite+pysqlite:///secret.db", "found the scheme sqlite+pysqlite://; allowed: "),
        ("secret.db", "found no scheme such as sqlite://; allowed: "),
        ("sqlite://", "found no path of a file"),
        ("sqlite:///", "found no path of a file"),
        ("sqlite://secret.db", "found no path of a file"),
        ("sqlite:///:memory:", "found no path of a file"),
        ("sqlite:///secret/", "found no path of a file"),
        ("sqlite:///secret.db?mode=ro", "found a ? in the path"),
    ],
)
def test_other_databases_are_refused_without_showing_a_password(
    problems_of: Callable[..., Problems], url: str, message: str
) -> None:
    [(line, key, found)] = problems_of(f'[storage]\nurl = "{url}"')
    assert (line, key) == (2, "storage.url")
    assert message in found
    assert "secret" not in found


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_ways_to_write_postgres_mean_the_same(
    write: Callable[[str], Path], tmp_path: Path, scheme: str
) -> None:
    """In the file and on the command line: the broker and the pipeline know the database by one URL."""
    known = "postgresql+psycopg://u@h/d"
    config = load(write(f'[storage]\nurl = "{scheme}://u@h/d"\n'), allow_anonymous=True)
    assert config.storage.url == known
    given = config.override([], None, f"{scheme}://u@h/d", True, tmp_path)
    assert given.storage.url == known


def test_an_open_listener_is_a_problem_unless_it_is_permitted(
    problems_of: Callable[..., Problems], write: Callable[[str], Path]
) -> None:
    text = '[listeners.field]\nendpoint = "tcp:1884"\n'
    [(line, key, message)] = problems_of(text)
    assert (line, key) == (2, "listeners.field.endpoint")
    assert (
        "add a table [authentication.NAME], or set listeners.field.allow_anonymous = true, or bind 127.0.0.1" in message
    )
    assert not load(write(text), allow_anonymous=True).listeners["field"].allow_anonymous
    assert load(write(f"{text}allow_anonymous = true\n")).listeners["field"].allow_anonymous


def test_with_authentication_an_open_listener_is_no_problem(
    problems_of: Callable[..., Problems], write: Callable[[str], Path], tmp_path: Path
) -> None:
    """If the file of users is rejected, that is the only problem."""
    text = '[listeners.field]\nendpoint = "tcp:1884"\n[authentication]\n'
    config = load(write(f'{text}scram_file = "users"\n'))
    assert not config.listeners["field"].allow_anonymous
    assert not config.override(["tcp:1885"], None, None, False, tmp_path).listeners["default"].allow_anonymous
    [(line, key, message)] = problems_of(f'{text}scram_file = "~/users"\n')
    assert (line, key) == (4, "authentication.scram_file")
    assert "begins with ~" in message
    [(line, key, _)] = problems_of(f'{text}scram_file = ""\n')
    assert (line, key) == (2, "listeners.field.endpoint")


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(problems_of: Callable[..., Problems]) -> None:
    found = problems_of(
        """colour = 1
[node]
id = 0
[listeners.a]
endpoint = "tcp:1"
zone = "x"
[mqtt]
max_paket_size = 1
max_inflight = 0
[storage]
url = "x"
flush_interval = "2s"
"""
    )
    assert [(line, key) for line, key, _ in found] == [
        (1, "colour"),
        (3, "node.id"),
        (5, "listeners.a.endpoint"),
        (6, "listeners.a.zone"),
        (8, "mqtt.max_paket_size"),
        (9, "mqtt.max_inflight"),
        (11, "storage.url"),
        (12, "storage.flush_interval"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[listeners.a]\nendpoint = "ssl:1"\n[listeners.b]',
        '[listeners.a]\nendpoint = "tcp:1"\nallow_anonymous = "yes"',
        "[listeners]\na = 1\n[listeners.b]",
        '[storage]\ndurability = "fsync"\nflush_interval = "2s"',
        "[retainer.flow_control]\nbatch_read_number = -1\nbatch_deliver_number = 5000",
    ],
)
def test_a_value_that_was_refused_causes_no_second_problem(problems_of: Callable[..., Problems], text: str) -> None:
    assert len(problems_of(text)) == 1


def test_unsupported_keys_of_emqx_are_not_keys_of_holdfast() -> None:
    """A newly supported key must leave the table."""
    for name, entry in described(Config).items():
        reader = Reader(Config)
        keys = described(entry.section) if hasattr(entry, "section") else {}
        named = name in ("listeners", "zones")
        document = {name: {"x": dict.fromkeys(keys, None)} if named else dict.fromkeys(keys, None)}
        reader.section(Config, document, ())
        assert keys
        assert not [problem for problem in reader.problems if "EMQX" in problem.message]


keys = st.text(max_size=8) | st.sampled_from(
    sorted(
        {"tcp", "a", *described(Config)}.union(
            *(described(entry.section) for entry in described(Config).values() if hasattr(entry, "section"))
        )
    )
)
values = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates() | st.times() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keys, values, max_size=8))
def test_any_mapping_is_read_or_has_problems(document: dict[str, object]) -> None:
    reader = Reader(Config)
    config = reader.section(Config, document, ())
    assert isinstance(config, Config)
    assert all(problem.message and "\n" not in problem.message for problem in reader.problems)
    if set(document) - set(described(Config)):
        assert reader.problems


fragments = st.sampled_from(
    [
        *(
            "[mqtt]\n",
            "[[mqtt]]\n",
            "[listeners.a]\n",
            "[zones.a.mqtt]\n",
            "[storage]\n",
            "node.id = ",
            "max_inflight = ",
        ),
        *(
            'endpoint = "tcp:1"\n',
            "url = 'x'\n",
            "{ ",
            "}",
            "[",
            "]",
            ",",
            "=",
            '"""',
            "'''",
            '"',
            "'",
            "\\",
            "#",
            "\n",
        ),
        *("\r\n", "\x00", "1", "true", "1979-05-27", "inf", ".", "a", "\ufeff", "\u2028"),
    ]
)


@given(st.lists(fragments | st.text(max_size=3), max_size=25).map("".join))
@example("a=" + "[" * 2000)
@example("a." * 2000 + "a=1")
@example("a=0x" + "f" * 10000)
@example("[node]\nid=0x" + "f" * 10000)
def test_any_text_is_a_configuration_or_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        config = load(path)
    except ConfigError as error:
        problems = error.problems
    else:
        assert tomllib.loads(text.removeprefix("\ufeff")) is not None
        assert config.listeners
        return
    lines = text.count("\n") + 1
    assert problems
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in problems)
    assert all("\n" not in str(problem) for problem in problems)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_configuration_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.toml"
    path.write_bytes(content)
    try:
        config = load(path)
    except ConfigError as error:
        problems = error.problems
    else:
        assert config.listeners
        return
    assert problems


@pytest.mark.parametrize(
    ("text", "line", "key", "instead"),
    [
        ('[retainer]\n[retainer.backend]\ntype = "built_in_database"', 2, "retainer.backend", "storage.url"),
        ("[retainer]\nexternal_backends = true", 2, "retainer.external_backends", "storage.url"),
        ('[force_shutdown]\nmax_heap_size = "32MB"', 2, "force_shutdown.max_heap_size", "force_shutdown.max_bytes"),
        (
            '[zones.z.force_shutdown]\nmax_heap_size = "32MB"',
            *(2, "zones.z.force_shutdown.max_heap_size", "force_shutdown.max_bytes"),
        ),
        ("[zones.z.force_gc]\ncount = 1", 1, "zones.z.force_gc", "limits.memory"),
        ("[listeners.a]\nacceptors = 16", 2, "listeners.a.acceptors", "one process"),
        ('[node]\ncookie = "x"', 2, "node.cookie", "Erlang"),
    ],
)
def test_a_key_of_emqx_that_needs_no_counterpart_is_ignored_with_a_warning(
    tmp_path: Path, text: str, line: int, key: str, instead: str
) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    [warning] = load(file).ignored
    assert (warning.line, warning.key) == (line, key)
    assert warning.message.startswith("known to EMQX, ignored here: ")
    assert instead in warning.message
