"""EMQX's archive becomes users and rules with the same verdicts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from holdfast.commands import main
from holdfast.config.toml import ConfigError
from holdfast.identity.authorizer import Permissions
from holdfast.identity.hashes import read, verify
from holdfast.identity.rule_files import read_rules
from holdfast.identity.rules import Action, Identity, Ruleset
from holdfast.moving.emqx import PASSWORDS, move_emqx
from holdfast.moving.hocon import BadHocon, read_hocon
from holdfast.moving.mosquitto_mapping import RULES, Move
from holdfast.moving.report import Outcome
from holdfast.retained.formats.erlang_terms import Atom
from tests.erlang import archive, backup

#: Made by OTP's own ``mnesia``, ``disk_log`` and ``erl_tar``, with the records and the cluster.hocon of EMQX 5.8.
REAL = Path(__file__).parents[1] / "retained" / "formats" / "files" / "emqx-export-5.tar.gz"
CLOSED = "authorization {no_match = deny}\n"


def moved(folder: Path, config: str = "", users: Any = (), rules: Any = (), **more: bytes) -> Move:
    """Return what becomes of an archive with these records."""
    files = {
        "META.hocon": b"",
        "cluster.hocon": config.encode(),
        "mnesia/emqx_authn_mnesia": backup("emqx_authn_mnesia", *users),
        "mnesia/emqx_acl": backup("emqx_acl", *rules),
        **{f"mnesia/{name}": data for name, data in more.items()},
    }
    return move_emqx(archive(folder / "export.tar.gz", files), {})


def user(name: str, digest: bytes, salt: bytes = b"", group: str = "mqtt:global", superuser: bool = False) -> Any:
    flag = Atom("true" if superuser else "false")
    return Atom("emqx_authn_mnesia"), (group.encode(), name.encode()), digest, salt, flag


def rule(permission: str, kind: str, topic: Any, **limits: Any) -> Any:
    every: dict[str, Any] = {"qos": [0, 1, 2], "retain": Atom("all")}
    options = [(Atom(name), value) for name, value in {**every, **limits}.items()]
    return Atom(permission), (Atom(kind), options), topic


def hashes(folder: Path, move: Move) -> dict[str, str]:
    (folder / PASSWORDS).write_text(move.files[PASSWORDS])
    (folder / PASSWORDS).chmod(0o600)
    return read(folder / PASSWORDS)[0]


def permissions(folder: Path, move: Move, username: str | None, client_id: str = "c") -> Permissions:
    (folder / RULES).write_text(move.files[RULES])
    return Permissions(Ruleset(read_rules(folder / RULES)), Identity(username, client_id))


def left_out(move: Move) -> dict[str, str]:
    return {each.setting: each.remark for each in move.report.of(Outcome.MISSING)}


def test_an_archive_of_otp_becomes_users_and_rules(tmp_path: Path) -> None:
    """The acl.conf beside the built-in rules may deny, so nothing is allowed in its place."""
    move = move_emqx(REAL, {})
    found = hashes(tmp_path, move)
    assert {name: verify(found[name], word) for name, word in (("ada", b"lovelace"), ("bob", b"builder"))} == {
        "ada": True, "bob": True,
    }  # fmt: skip
    assert not verify(found["ada"], b"Lovelace")
    assert permissions(tmp_path, move, "root").allows(Action.SUBSCRIBE, "secret/a")
    ada = permissions(tmp_path, move, "ada")
    assert ada.allows(Action.PUBLISH, "sensors/c/t")
    assert not ada.allows(Action.PUBLISH, "sensors/d/t")
    assert not ada.allows(Action.SUBSCRIBE, "secret/a")
    assert ada.allows(Action.SUBSCRIBE, "public/a")
    assert permissions(tmp_path, move, None, "panel").allows(Action.SUBSCRIBE, "anything")
    told = left_out(move)
    assert told["allow publish eq a/+, qos [1]"] == "left out: rules do not look at the QoS"
    assert "rules that may deny were left out" in told["authorization.no_match = allow"]
    assert "holdfast retainer import" in told["3 retained messages"]


DIGESTS = {"md5": "md5", "sha": "sha1", "sha256": "sha256", "sha512": "sha512"}
MACS = {"sha": "sha1", "sha224": "sha224", "sha256": "sha256", "sha384": "sha384", "sha512": "sha512"}


@pytest.mark.parametrize("position", ["prefix", "suffix", "disable"])
@pytest.mark.parametrize("name", DIGESTS)
def test_a_digest_of_salt_and_password_is_verified(tmp_path: Path, name: str, position: str) -> None:
    salt = b"" if position == "disable" else b"5a17"
    data = b"secret" + salt if position == "suffix" else salt + b"secret"
    digest = hashlib.new(DIGESTS[name], data).hexdigest().encode()
    algorithm = f"password_hash_algorithm {{name = {name}, salt_position = {position}}}"
    config = f"authentication = [{{backend = built_in_database, mechanism = password_based, {algorithm}}}]"
    stored = hashes(tmp_path, moved(tmp_path, config, [user("ann", digest, salt)]))["ann"]
    assert verify(stored, b"secret")
    assert not verify(stored, b"secre")
    assert not verify(stored, b"5a17secret")


@pytest.mark.parametrize("mac", MACS)
def test_pbkdf2_is_verified(tmp_path: Path, mac: str) -> None:
    key = hashlib.pbkdf2_hmac(MACS[mac], b"secret", b"5a17", 100, 24).hex().encode()
    algorithm = f"{{name: pbkdf2, mac_fun: {mac}, iterations: 100, dk_length: 24}}"
    config = (
        "authentication {backend = built_in_database, mechanism = password_based, password_hash_algorithm = "
        f"{algorithm}}}"
    )
    stored = hashes(tmp_path, moved(tmp_path, config, [user("ann", key, b"5a17")]))["ann"]
    assert verify(stored, b"secret")
    assert not verify(stored, b"Secret")


def test_bcrypt_is_copied_and_a_plain_password_is_hashed_once(tmp_path: Path) -> None:
    def config(name: str) -> str:
        return (
            "authentication = [{backend = built_in_database, mechanism = password_based, "
            f"password_hash_algorithm = {{name = {name}}}}}]"
        )

    made = bcrypt.hashpw(b"secret", bcrypt.gensalt(4))
    assert hashes(tmp_path, moved(tmp_path, config("bcrypt"), [user("ann", made, made[:29])])) == {"ann": made.decode()}
    first = moved(tmp_path, config("plain"), [user("ann", b"secret")])
    present = hashes(tmp_path, first)
    assert verify(present["ann"], b"secret")
    assert "secret" not in "".join(first.files.values())
    assert move_emqx(tmp_path / "export.tar.gz", present).files == first.files


def test_users_that_cannot_be_taken_are_in_the_report(tmp_path: Path) -> None:
    config = """
    authentication = [
      {backend = built_in_database, mechanism = password_based, user_id_type = clientid}
      {backend = http, mechanism = password_based}
    ]
    listeners.tcp.odd.authentication = [
      {backend = built_in_database, mechanism = password_based, password_hash_algorithm {name = pbkdf2, mac_fun = md4}}
    ]
    """
    digest = hashlib.sha256(b"s").hexdigest().encode()
    users = [
        user("client", digest), user("md4", digest, b"s", "tcp:odd"), user("guessed", digest, b"", "ws:default"),
        user("hex", b"no hex", b"", "ws:default"), (Atom("emqx_authn_mnesia"), 5),
    ]  # fmt: skip
    move = moved(tmp_path, config, users, emqx_banned=backup("emqx_banned", (1,), (2,)))
    assert list(hashes(tmp_path, move)) == ["guessed"]
    told = left_out(move)
    assert "its Client Identifier" in told["user client"]
    assert "PBKDF2 with md4 is not verified here" in told["user md4"]
    assert "not in hexadecimal digits" in told["user hex"]
    assert "does not tell the algorithm" in told["authenticator ws:default"]
    assert "password_based http" in "".join(told)
    assert told["2 records"].startswith("bans are left out")
    assert "a record" in told


def test_rules_are_asked_in_the_order_of_emqx(tmp_path: Path) -> None:
    """Of the Client Identifier, of the User Name, of everybody; then no_match."""
    rules = [
        (Atom("emqx_acl"), 0, [rule("deny", "all", b"a/#"), (Atom("allow"), Atom("all"), b"b")]),
        (Atom("emqx_acl"), (1, b"ann"), [rule("allow", "publish", b"a/1"), rule("deny", "publish", b"b")]),
        (Atom("emqx_acl"), (2, b"c"), [rule("deny", "all", b"a/1"), rule("allow", "subscribe", b"own/${clientid}/+")]),
    ]
    closed, opened = moved(tmp_path, CLOSED, (), rules), moved(tmp_path, "", (), rules)
    assert permissions(tmp_path, closed, "ann", "d").allows(Action.PUBLISH, "a/1")
    assert not permissions(tmp_path, closed, "ann", "c").allows(Action.PUBLISH, "a/1")
    assert permissions(tmp_path, closed, None, "c").allows(Action.SUBSCRIBE, "own/c/x")
    assert not permissions(tmp_path, closed, None, "c").allows(Action.SUBSCRIBE, "own/d/x")
    assert not permissions(tmp_path, closed, "ann", "d").allows(Action.PUBLISH, "b")
    assert permissions(tmp_path, closed, "bob", "d").allows(Action.PUBLISH, "b")
    assert not permissions(tmp_path, closed, "bob", "d").allows(Action.PUBLISH, "other")
    assert permissions(tmp_path, opened, "bob", "d").allows(Action.PUBLISH, "other")
    assert not permissions(tmp_path, opened, "bob", "d").allows(Action.PUBLISH, "a/2")


@pytest.mark.parametrize(
    ("given", "allowed", "denied"),
    [
        (rule("allow", "publish", b"t", retain=Atom("false")), {Action.PUBLISH}, set()),
        (rule("allow", "publish", b"t", retain=Atom("true")), set(), set()),
        (rule("deny", "publish", b"t", retain=Atom("true")), set(), {Action.RETAIN, Action.CLEAR}),
        (
            rule("deny", "publish", b"t", retain=Atom("false")), set(),
            {Action.PUBLISH, Action.RETAIN, Action.CLEAR},
        ),
        (rule("allow", "subscribe", b"t", qos=[0]), set(), set()),
        (rule("deny", "subscribe", b"t", qos=[0]), set(), {Action.SUBSCRIBE}),
        (rule("deny", "subscribe", (Atom("eq"), b"#")), set(), set()),
        (rule("deny", "subscribe", (Atom("eq"), b"t")), set(), {Action.SUBSCRIBE}),
        (rule("allow", "subscribe", b"%u"), set(), set()),
        (rule("deny", "subscribe", b"%u"), set(), {Action.SUBSCRIBE}),
        (rule("deny", "subscribe", b"${cert_common_name}"), set(), {Action.SUBSCRIBE}),
    ],
)  # fmt: skip
def test_a_rule_with_limits_never_allows_more(
    tmp_path: Path, given: Any, allowed: set[Action], denied: set[Action]
) -> None:
    """A rule that allows becomes narrower, a rule that denies becomes wider, and the report tells it."""
    closed = permissions(tmp_path, moved(tmp_path, CLOSED, (), [(Atom("emqx_acl"), 0, [given])]), "ann")
    assert {each for each in Action if each is not Action.RECEIVE and closed.allows(each, "t")} == allowed
    opened = permissions(tmp_path, moved(tmp_path, "", (), [(Atom("emqx_acl"), 0, [given])]), "ann")
    assert {each for each in Action if each is not Action.RECEIVE and not opened.allows(each, "t")} == denied


def test_rules_of_an_unknown_form_leave_nothing_allowed(tmp_path: Path) -> None:
    move = moved(tmp_path, "", (), [(Atom("emqx_acl"), 0, [(Atom("deny"), 5, b"t")])])
    assert not permissions(tmp_path, move, "ann").allows(Action.PUBLISH, "t")
    assert "rules that may deny were left out" in left_out(move)["authorization.no_match = allow"]


def test_the_command_writes_once(tmp_path: Path) -> None:
    """A second run changes nothing, and a dry run writes nothing."""
    out = tmp_path / "out"
    run = CliRunner().invoke
    assert run(main, ["migrate", "emqx", str(REAL), "--out", str(out), "--dry-run"]).exit_code == 0
    assert not out.exists()
    assert "Written to" in run(main, ["migrate", "emqx", str(REAL), "--out", str(out)]).stdout
    assert (out / PASSWORDS).stat().st_mode & 0o777 == 0o600
    assert "is so already" in run(main, ["migrate", "emqx", str(REAL), "--out", str(out)]).stdout
    (tmp_path / "no").write_bytes(b"no")
    refused = run(main, ["migrate", "emqx", str(tmp_path / "no"), "--out", str(out)])
    assert (refused.exit_code, "this is not gzip" in refused.stderr) == (1, True)


def test_a_cluster_hocon_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster.hocon: line 2: a value is missing"):
        moved(tmp_path, "a = 1\nb = }")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("{a = 1, b : x y}", {"a": "1", "b": "x y"}),
        ("a { b = 1 }\na.c = 2 # comment", {"a": {"b": "1", "c": "2"}}),
        ('"k.1"."x" = "a\\"\\u0041\\n" // comment', {"k.1": {"x": 'a"A\n'}}),
        ('a = """one\n"two" """', {"a": 'one\n"two" '}),
        ("a = [1, [2], {b = 3}\n4]", {"a": ["1", ["2"], {"b": "3"}, "4"]}),
        ("a = 1\na = {b = 2}", {"a": {"b": "2"}}),
        ("url = http://x", {"url": "http:"}),
    ],
)
def test_hocon_is_read(text: str, expected: dict[str, Any]) -> None:
    assert read_hocon(text) == expected


@pytest.mark.parametrize(
    "text", ["a", "a =", "{", "a = [", 'a = "', "a = ]", "= 1", "a" * 9 + "{" * 100, "a=" + "[" * 99]
)
def test_what_is_no_hocon_has_a_line(text: str) -> None:
    with pytest.raises(BadHocon, match=r"^line 1: "):
        read_hocon(text)


@given(st.text(alphabet='ab.=:{}[],\n"# \\', max_size=60))
def test_any_text_is_hocon_or_has_a_reason(text: str) -> None:
    try:
        read_hocon(text)
    except BadHocon:
        return
