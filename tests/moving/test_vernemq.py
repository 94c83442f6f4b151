"""VerneMQ's files become users and rules with the same verdicts."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from holdfast.identity.authorizer import Permissions
from holdfast.identity.hashes import read, verify
from holdfast.identity.rule_files import read_rules
from holdfast.identity.rules import Action, Identity, Ruleset
from holdfast.moving.mosquitto_mapping import CONFIG, RULES
from holdfast.moving.report import Outcome
from holdfast.moving.vernemq import move_vernemq

ACL = """# comment
topic read weather/#
topic write inbox
user ann
topic own/ann/#
topic read  plant/+/t
pattern write sensors/%u/%c
pattern read %m/a
topic %u/x
user bob
topic readwrite a
"""


def permissions(folder: Path, user: str | None, client_id: str = "c") -> Permissions:
    (folder / "vmq.acl").write_text(ACL)
    (folder / RULES).write_text(move_vernemq(None, folder / "vmq.acl").files[RULES])
    return Permissions(Ruleset(read_rules(folder / RULES)), Identity(user, client_id))


def test_lines_before_the_first_user_are_for_everyone(tmp_path: Path) -> None:
    for user in (None, "ann", "bob"):
        found = permissions(tmp_path, user)
        assert found.allows(Action.SUBSCRIBE, "weather/now")
        assert not found.allows(Action.PUBLISH, "weather/now")
        assert found.allows(Action.RETAIN, "inbox")
        assert not found.allows(Action.SUBSCRIBE, "inbox")


def test_lines_of_users_and_patterns(tmp_path: Path) -> None:
    ann, bob = permissions(tmp_path, "ann"), permissions(tmp_path, "bob", "d")
    assert ann.allows(Action.PUBLISH, "own/ann/x")
    assert ann.allows(Action.SUBSCRIBE, "own/ann/x")
    assert not bob.allows(Action.PUBLISH, "own/ann/x")
    assert ann.allows(Action.SUBSCRIBE, "plant/7/t")
    assert ann.allows(Action.PUBLISH, "sensors/ann/c")
    assert bob.allows(Action.PUBLISH, "sensors/bob/d")
    assert not bob.allows(Action.PUBLISH, "sensors/ann/c")
    assert not bob.allows(Action.PUBLISH, "a")
    assert bob.allows(Action.PUBLISH, "readwrite a")  # as VerneMQ reads this line


def test_what_rules_cannot_hold_is_reported(tmp_path: Path) -> None:
    (tmp_path / "vmq.acl").write_text(ACL)
    found = move_vernemq(None, tmp_path / "vmq.acl").report.of(Outcome.MISSING)
    assert {"pattern %m/a", "topic %u/x", "users of the ACL file", "vernemq.conf"} == {each.setting for each in found}


def test_passwords_are_verified(tmp_path: Path) -> None:
    salt = b"saltsaltsalt"
    digest = hashlib.sha512(b"secret" + salt).digest()
    line = f"ann:$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"
    (tmp_path / "vmq.passwd").write_text(line)
    move = move_vernemq(tmp_path / "vmq.passwd", None)
    (tmp_path / "passwords").write_text(move.files["passwords"])
    (tmp_path / "passwords").chmod(0o600)
    users, _ = read(tmp_path / "passwords")
    assert verify(users["ann"], b"secret")
    assert not verify(users["ann"], b"wrong")
    assert 'path = "passwords"' in move.files[CONFIG]
