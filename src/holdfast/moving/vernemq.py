"""VerneMQ's vmq.passwd and vmq.acl: users, and rules with the same verdicts.

How it works. The passwords are hashed as by mosquitto 1.x (``$6$SALT$HASH``). The ACL file looks like that of mosquitto
and means something else: lines before the first ``user`` are for all clients, not for guests; a SUBSCRIBE is judged by
``read``, and deliveries are not; there is no ``deny``, so the order of the lines does not matter.
"""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from holdfast.config.toml import display_name
from holdfast.core.terminal import counted
from holdfast.identity.rules import PLACEHOLDER
from holdfast.moving.files import Table, toml_text
from holdfast.moving.mosquitto_mapping import CONFIG, REPORT, RULES, Move
from holdfast.moving.report import Report
from holdfast.moving.rules import PUBLISH, SUBSCRIBE, MovedRule, NoTopic, RuleBook, Subject, name_fault, rule_topic
from holdfast.moving.users import read_hashes, text_at

_PASSWORDS = "passwords"
_ACCESS = {"read": SUBSCRIBE, "write": PUBLISH}
_MOUNT_POINT = "%m"


def move_vernemq(passwords: Path | None, acl: Path | None) -> Move:
    """Return Holdfast's files for those of VerneMQ. Raises ConfigError for files that cannot be read or understood."""
    report = Report("From VerneMQ to Holdfast")
    move = Move(report)
    tables = [
        Table(("node",), {"data_dir": "data"}),
        Table(("listeners", "default"), {"endpoint": "tcp:1883:interface=127.0.0.1"}),
    ]
    if passwords is not None:
        name = display_name(passwords)
        users = read_hashes(passwords, name, "--passwd", report)
        move.files[_PASSWORDS] = users.text()
        tables.append(Table(("authentication", _PASSWORDS), {"type": "file", "path": _PASSWORDS}))
        report.taken(name, counted(len(users.hashes), "user"), f"authentication.{_PASSWORDS}, a copy")
    if acl is not None:
        book = _rules(acl, report)
        move.files[RULES] = book.text([f"Made from {display_name(acl)} by holdfast migrate vernemq."])
        tables.append(Table(("authorization",), {"sources": ["rules"]}))
        tables.append(Table(("authorization", "rules"), {"type": "file", "path": RULES}))
        report.taken(display_name(acl), counted(len(book.rules), "rule"), "authorization.rules")
        if passwords is None:
            advice = "no password is asked, so no User Name is proven, and the rules of users are for nobody"
            report.missing(display_name(acl), "users of the ACL file", advice)
    report.missing(
        "",
        "vernemq.conf",
        "is not read: the listener is on this machine only; write your listeners, TLS and allow_anonymous by hand",
    )
    heading = [f"Made by holdfast migrate vernemq: see {REPORT}."]
    move.files = {CONFIG: toml_text(heading, tables), **move.files, REPORT: report.markdown()}
    return move


def _rules(path: Path, report: Report) -> RuleBook:
    name = display_name(path)
    book = RuleBook()
    subject: Subject | None = Subject()
    for number, text in enumerate(text_at(path, name, "--acl").split("\n"), 1):
        line = text.rstrip("\r")
        origin = f"{name}:{number}"
        word, _, rest = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if word == "user":
            subject = _user(rest.strip(" \t"), origin, report)
        elif word in ("topic", "pattern"):
            access, _, topic = rest.partition(" ")
            actions = _ACCESS.get(access) if topic else None
            found = (topic if actions is not None else rest).strip(" \t")
            rule = _rule(found, actions or (*PUBLISH, *SUBSCRIBE), origin, report, is_pattern=word == "pattern")
            if rule is not None and (word == "pattern" or subject is not None):
                book.add(rule if word == "pattern" else evolve(rule, subject=subject or Subject()))
        else:
            advice = "left out: allowed are user, topic, pattern and a space; VerneMQ stops at such a line"
            report.missing(origin, word, advice)
    return book


def _user(name: str, origin: str, report: Report) -> Subject | None:
    """Return the subject of a user's lines; None if rules cannot name the user."""
    fault = name_fault(name)
    if fault:
        report.missing(origin, f"user {name}", f"left out with its topics, since rules cannot name it: {fault}")
        return None
    return Subject(users=(name,))


def _rule(topic: str, actions: tuple[str, ...], origin: str, report: Report, *, is_pattern: bool) -> MovedRule | None:
    if is_pattern and _MOUNT_POINT in topic.split("/"):
        report.missing(origin, f"pattern {topic}", "left out: there are no mount points; write the rule with its topic")
        return None
    if not is_pattern and any(PLACEHOLDER.fullmatch(level) for level in topic.split("/")):
        advice = "left out: in a topic line VerneMQ takes these characters as they are, and rules do not"
        report.missing(origin, f"topic {topic}", advice)
        return None
    try:
        found, _ = rule_topic(topic, allow=True)
    except NoTopic as invalid:
        report.missing(origin, f"topic {topic}", f"left out: {invalid}")
        return None
    return MovedRule(Subject(), True, actions, (found,), "")
