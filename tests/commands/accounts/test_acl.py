"""``holdfast acl explain`` and ``check-config`` with rules: the answers, the lines and the exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.commands import main

RULES = """\
[[rule]]
topics = ["plant/+/secret"]
action = "all"
allow = false

[[rule]]
users = ["alice"]
groups = ["sensors"]
topics = ["plant/%u/#"]
action = ["publish", "retain"]
allow = true

[[rule]]
users = ["dashboard"]
topics = ["plant/#"]
action = ["subscribe"]
allow = true
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    path = tmp_path / "h.toml"
    path.write_text(
        '[authentication]\nscram_file = "users"\n[authorization]\nsources = ["rules"]\n'
        '[authorization.rules]\ntype = "file"\npath = "rules.toml"\n'
    )
    users = tmp_path / "users"
    users.write_text("")
    users.chmod(0o600)
    return path


def explain(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["acl", "explain", *arguments, "--config", str(config)])


def test_the_rule_that_decides_is_named_with_its_line(config: Path) -> None:
    result = explain(config, "alice", "retain", "plant/alice/t")
    rules = config.with_name("rules.toml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "alice retain plant/alice/t: allowed",
        f"  publish plant/alice/t: allowed by {rules}:6: allow publish, retain on plant/%u/# for users alice, groups"
        " sensors",
        f"  retain plant/alice/t: allowed by {rules}:6: allow publish, retain on plant/%u/# for users alice, groups"
        " sensors",
    ]


def test_what_no_rule_allows_is_denied(config: Path) -> None:
    result = explain(config, "alice", "clear", "plant/alice/t")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[2] == "  clear plant/alice/t: denied by default: no rule matches"


def test_a_filter_is_refused_by_the_rule_that_denies_one_of_its_topics(config: Path) -> None:
    result = explain(config, "dashboard", "subscribe", "plant/#", "--json")
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert (answer["allowed"], answer["filtered"]) == (False, False)
    denied, _ = (reason for reason in answer["reasons"] if not reason["allowed"])
    assert denied["topic"] == "plant/any-other-name/secret"
    assert denied["origin"] == f"{config.with_name('rules.toml')}:1"
    assert explain(config, "dashboard", "subscribe", "$share/g/plant/x").exit_code == 0
    assert explain(config, "dashboard", "subscribe", "$queue/plant/x").exit_code == 0


def test_groups_addresses_and_guests_can_be_given(config: Path) -> None:
    assert explain(config, "s1", "publish", "plant/s1/t").exit_code == 3
    assert explain(config, "s1", "publish", "plant/s1/t", "--group", "sensors", "--address", "192.0.2.1").exit_code == 0
    assert explain(config, "$guest", "publish", "plant/s1/t", "--client", "alice").exit_code == 3


def test_a_topic_that_is_none_is_a_failure(config: Path) -> None:
    result = explain(config, "alice", "publish", "plant/+")
    assert (result.exit_code, result.stderr) == (1, "plant/+: a Topic Name contains no wildcard characters\n")


def test_check_config_checks_the_rules(config: Path) -> None:
    rules = config.with_name("rules.toml")
    assert CliRunner().invoke(main, ["check-config", str(config)]).exit_code == 0
    rules.write_text('[[rule]]\nuser = ["alice"]\ntopics = ["a"]\naction = ["publish"]\nallow = true\n')
    result = CliRunner().invoke(main, ["check-config", str(config)])
    assert (result.exit_code, result.stderr) == (3, f"{rules}:2: rule.user: unknown key; did you mean rule.users?\n")
    rules.unlink()
    result = CliRunner().invoke(main, ["check-config", str(config)])
    assert (result.exit_code, result.stderr) == (
        3,
        f"{config}:7: authorization.rules.path: {rules}: there is no such file\n",
    )


def test_nobody_else_publishes_to_the_topics_of_the_broker(config: Path) -> None:
    """A rule cannot allow it."""
    config.with_name("rules.toml").write_text('[[rule]]\ntopics = ["$SYS/#"]\naction = "all"\nallow = true\n')
    result = explain(config, "alice", "publish", "$SYS/broker/x")
    assert result.exit_code == 3
    assert result.stdout == "alice publish $SYS/broker/x: denied: only the broker publishes to its own topics\n"
    assert explain(config, "alice", "publish", "$replay/end").exit_code == 3


def test_every_client_may_have_the_markers_of_its_own_replays(config: Path) -> None:
    """A rule cannot deny it."""
    config.with_name("rules.toml").write_text('[[rule]]\ntopics = ["$replay/#"]\naction = "all"\nallow = false\n')
    for action in ("subscribe", "receive"):
        assert explain(config, "alice", action, "$replay/end").exit_code == 0
    assert explain(config, "alice", "subscribe", "$replay/#").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alice", "publish", "a", "--listener", "defalt"), "no listener is named defalt; there are default"),
        (("alice", "publish", "a", "--address", "host"), "host is no IP address"),
        (("alice", "publish", "a" * 70_000), "the topic has more than 65535 bytes"),
        (("alice", "publish", "a/#"), "a/#: a Topic Name contains no wildcard characters"),
        (("alice", "subscribe", "a/#/b"), "a/#/b: '#' stands alone"),
        (("alice", "subscribe", "$share/g"), "$share/g: a shared subscription is"),
    ],
)
def test_what_no_client_can_have_is_refused(config: Path, arguments: tuple[str, ...], message: str) -> None:
    result = explain(config, *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(message)


def test_rules_that_do_not_count_are_told(config: Path) -> None:
    rule = '[[rule]]\ntopics = ["#"]\naction = "all"\nallow = false\nlisteners = ["default"]\n'
    config.with_name("rules.toml").write_text(rule + RULES)
    assert "do not count without --listener" in explain(config, "alice", "publish", "plant/alice/x").stdout
    result = explain(config, "alice", "publish", "plant/alice/x", "--listener", "default")
    assert result.exit_code == 3
    assert "do not count" not in result.stdout


@pytest.mark.parametrize(
    ("command", "status"),
    [(["check-config"], 3), (["acl", "explain", "alice", "publish", "a", "--config"], 1)],
    ids=["check-config", "explain"],
)
def test_a_listener_that_does_not_exist_is_a_problem(config: Path, command: list[str], status: int) -> None:
    """A rule that denies would deny nothing."""
    rules = config.with_name("rules.toml")
    rules.write_text(RULES.replace("allow = false", 'allow = false\nlisteners = ["defalt"]'))
    result = CliRunner().invoke(main, [*command, str(config)])
    assert result.exit_code == status
    assert f'{rules}:1: rule.listeners: no listener is named "defalt"' in result.stderr
    assert 'did you mean "default"?' in result.stderr
