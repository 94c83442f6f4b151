"""The archive of ``emqx ctl data export``: users and rules of EMQX's built-in database.

How it works. The users stand in the table ``emqx_authn_mnesia``, each below the group of its authenticator:
``mqtt:global``, or a listener such as ``tcp:default``. How their passwords are hashed stands in ``cluster.hocon``, for
each authenticator. The hashes are copied in forms that Holdfast verifies (:mod:`holdfast.identity.hashes`); a plain
password is hashed anew, unless the present password file has a hash of it, so a second run makes the same files.

The rules stand in ``emqx_acl``: those of a Client Identifier, of a User Name, and of everybody. EMQX asks them in this
order, and the first one that matches decides; so they become rules in the same order. Superusers come before all.
Without a match, ``authorization.no_match`` decides; but where rules were left out that may deny, nothing is allowed in
their place.

Two things differ. A rule may be limited to some QoS, or to messages with or without RETAIN: where Holdfast has no
equal, a rule that allows is left out, and a rule that denies becomes wider. And EMQX compares the text of a Topic
Filter with its rules, while Holdfast judges the topics (``subscribe_partially``), as for mosquitto's dynamic security.
"""

from __future__ import annotations

import binascii
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from holdfast.config.toml import ConfigError, ConfigProblem, display_name
from holdfast.core.terminal import counted
from holdfast.identity.hashes import HashParameters, new_hash, verify
from holdfast.identity.rules import PLACEHOLDER
from holdfast.moving.files import Table, toml_text
from holdfast.moving.hocon import BadHocon, read_hocon
from holdfast.moving.mosquitto_mapping import CONFIG, REPORT, RULES, Move
from holdfast.moving.report import Report
from holdfast.moving.rules import (
    EVERYTHING,
    PUBLISH,
    SUBSCRIBE,
    MovedRule,
    NoTopic,
    RuleBook,
    Subject,
    name_fault,
    rule_topic,
)
from holdfast.moving.users import Users, unusable_file
from holdfast.retained.formats.emqx_archive import Member, members, records
from holdfast.retained.formats.erlang_terms import BadTerm, Term
from holdfast.retained.formats.file_entry import UnreadableFile

PASSWORDS = "passwords"
_CLUSTER = "cluster.hocon"
_USERS, _RULES = "mnesia/emqx_authn_mnesia", "mnesia/emqx_acl"
_RETAINED = "mnesia/emqx_retainer_message"
#: Other tables whose records have no equal here, with the remedy.
_OTHERS = {
    "mnesia/emqx_authn_mnesia_ns": "users of a namespace are left out: add them with holdfast passwd add",
    "mnesia/emqx_authn_scram_mnesia": "SCRAM users are left out: add them with holdfast scram add",
    "mnesia/emqx_psk": "there is no TLS with pre-shared keys: give the clients certificates or passwords",
    "mnesia/emqx_banned": "bans are left out: add them with holdfast ban",
    "mnesia/emqx_app": "API keys are left out: make new ones with holdfast api-key",
    "mnesia/emqx_admin": "users of the dashboard are left out: see admin.operators",
}
_LONGEST_CONFIG = 16 << 20
_GLOBAL = "mqtt:global"
#: EMQX's own defaults of an authenticator.
_DEFAULT = {"name": "sha256", "salt_position": "prefix"}
_DIGESTS = {"md5": "md5", "sha": "sha1", "sha256": "sha256", "sha512": "sha512"}
_MACS = {"sha": "sha1", "sha224": "sha224", "sha256": "sha256", "sha384": "sha384", "sha512": "sha512"}
_POSITIONS = {"prefix": "prefix", "suffix": "suffix", "disable": "none"}
_PLACEHOLDERS = {"${clientid}": "%c", "${username}": "%u"}
_ACTIONS = {"publish": PUBLISH, "subscribe": SUBSCRIBE, "all": (*PUBLISH, *SUBSCRIBE)}
_EVERY_QOS = [0, 1, 2]
_RECORD, _RULE = "a record", "a rule"
#: EMQX's kinds of subjects: everybody, a User Name, a Client Identifier.
_USER, _CLIENT = 1, 2


@define
class _Found:
    """What the archive has."""

    config: Mapping[str, Any] = field(factory=dict)
    users: list[Term] = field(factory=list)
    rules: list[Term] = field(factory=list)
    others: Counter[str] = field(factory=Counter)


def move_emqx(path: Path, present: Mapping[str, str]) -> Move:
    """Return Holdfast's files for an archive. Raises ConfigError if it cannot be read.

    ``present`` are the hashes by user that the folder for the files has already.
    """
    found = _read(path)
    report = Report(f"From EMQX to Holdfast: {display_name(path)}")
    move = Move(report)
    users = Users()
    superusers = _users(found, users, present, report)
    book = _rules(found, superusers, report)
    tables = [
        Table(("node",), {"data_dir": "data"}),
        Table(("listeners", "default"), {"endpoint": "tcp:1883:interface=127.0.0.1"}),
    ]
    move.files[PASSWORDS] = users.text()
    tables.append(Table(("authentication", PASSWORDS), {"type": "file", "path": PASSWORDS}))
    report.taken(_USERS, counted(len(users.hashes), "user"), f"authentication.{PASSWORDS}")
    move.files[RULES] = book.text([f"Made from {display_name(path)} by holdfast migrate emqx."])
    tables.append(Table(("authorization",), {"sources": ["rules"], "subscribe_partially": True}))
    tables.append(Table(("authorization", "rules"), {"type": "file", "path": RULES}))
    report.taken(_RULES, counted(len(book.rules), "rule"), "authorization.rules")
    _tell_others(found, path, report)
    heading = [f"Made by holdfast migrate emqx: see {REPORT}."]
    move.files = {CONFIG: toml_text(heading, tables), **move.files, REPORT: report.markdown()}
    return move


# Reading the archive.


def _read(path: Path) -> _Found:
    found = _Found()
    tables = {_USERS: found.users, _RULES: found.rules}
    known = False
    try:
        for member in members(path):
            known = known or member.name in ("META.hocon", _CLUSTER) or member.name.startswith("mnesia/")
            if member.name == _CLUSTER:
                found.config = _config(path, member)
            elif member.name in tables:
                for number, record in records(member):
                    if isinstance(record, BadTerm):
                        raise _problem(path, f"{member.name}, record {number}: {record}; export the data again")
                    tables[member.name].append(record)
            elif member.name in _OTHERS or member.name == _RETAINED:
                found.others[member.name] += sum(1 for _ in records(member))
    except UnreadableFile as error:
        raise _problem(path, str(error)) from None
    except OSError as error:
        raise unusable_file(path, display_name(path), "ARCHIVE", error.strerror or str(error)) from None
    if not known:
        raise _problem(path, "this archive is not one of emqx ctl data export: it has no META.hocon and no mnesia/")
    return found


def _config(path: Path, member: Member) -> dict[str, Any]:
    if member.size > _LONGEST_CONFIG:
        raise _problem(path, f"{_CLUSTER}: has {member.size} bytes; at most {_LONGEST_CONFIG} are read")
    try:
        return read_hocon(member.read(member.size).decode())
    except (BadHocon, UnicodeDecodeError) as error:
        raise _problem(path, f"{_CLUSTER}: {error}; export the data again") from None


def _problem(path: Path, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(display_name(path), None, "", message)])


def _listed(value: Any) -> list[dict[str, Any]]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


# Users.


def _users(found: _Found, users: Users, present: Mapping[str, str], report: Report) -> list[str]:
    """Take the users, and return the superusers among them."""
    algorithms = dict(_authenticators(found.config, report))
    superusers = []
    guessed = set()
    for record in found.users:
        match record:
            case (_, (bytes(group), bytes(name)), bytes(digest), bytes(salt), superuser):
                pass
            case _:
                report.missing(_USERS, "a record", "is of another form than those of EMQX 5, and left out")
                continue
        chain = group.decode(errors="replace")
        username = name.decode(errors="replace")
        algorithm = algorithms.get(chain)
        if algorithm is None and chain not in guessed:
            guessed.add(chain)
            advice = f"{_CLUSTER} does not tell the algorithm; EMQX's default was taken, sha256 with the salt before it"
            report.missing(_USERS, f"authenticator {chain}", advice)
        if algorithm is not None and algorithm.get("user_id_type") == "clientid":
            advice = "left out: it logs in with its Client Identifier; give it a User Name with holdfast passwd add"
            report.missing(_USERS, f"user {username}", advice)
            continue
        try:
            stored = _hash_of(algorithm or _DEFAULT, digest, salt, present.get(username))
        except ValueError as error:
            advice = f"left out: {error}; set a new password with holdfast passwd add"
            report.missing(_USERS, f"user {username}", advice)
            continue
        if not users.add(username, stored, _USERS, report):
            continue
        if chain != _GLOBAL:
            advice = "may log in through every listener: to divide users, write a chain of checkers by hand"
            report.missing(_USERS, f"user {username} of {chain}", advice)
        if superuser == "true":
            superusers.append(username)
    return superusers


def _authenticators(config: Mapping[str, Any], report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the built-in authenticators by their group, and report all others."""
    chains = [(_GLOBAL, config.get("authentication"))]
    listeners = config.get("listeners")
    for kind, named in listeners.items() if isinstance(listeners, dict) else ():
        for name, listener in named.items() if isinstance(named, dict) else ():
            if isinstance(listener, dict):
                chains.append((f"{kind}:{name}", listener.get("authentication")))
    for chain, listed in chains:
        for each in _listed(listed):
            backend, mechanism = str(each.get("backend", "")), str(each.get("mechanism", ""))
            if backend != "built_in_database" or mechanism != "password_based":
                setting = f"authentication of {chain}: {mechanism} {backend}".rstrip()
                report.missing(_CLUSTER, setting, "is left out: see docs/operator/authentication.md for its equal")
                continue
            algorithm = each.get("password_hash_algorithm")
            given = algorithm if isinstance(algorithm, dict) else {}
            yield chain, {**_DEFAULT, **given, "user_id_type": each.get("user_id_type", "username")}


def _hash_of(algorithm: Mapping[str, Any], stored: bytes, salt: bytes, present: str | None) -> str:
    """Return the hash of a user in a form of ours. Raises ValueError."""
    name, position = str(algorithm.get("name")), str(algorithm.get("salt_position", "disable"))
    if name == "bcrypt":
        return stored.decode("ascii", errors="replace")
    if name == "plain":
        password = stored.removeprefix(salt) if position == "prefix" else stored.removesuffix(salt)
        if present is not None and verify(present, password):
            return present
        return new_hash(password, HashParameters())
    try:
        digest = b64encode(binascii.unhexlify(stored)).decode()
    except (binascii.Error, ValueError):
        raise ValueError("its hash is not in hexadecimal digits") from None
    encoded = b64encode(salt).decode()
    if name == "pbkdf2":
        mac, iterations = str(algorithm.get("mac_fun")), str(algorithm.get("iterations"))
        if mac in _MACS:
            return f"$pbkdf2-{_MACS[mac]}${iterations}${encoded}${digest}"
        raise ValueError(f"PBKDF2 with {mac} is not verified here")
    if name not in _DIGESTS or position not in _POSITIONS:
        raise ValueError(f"its password is hashed with {name}, salt {position}, which is not verified here")
    place = _POSITIONS[position] if salt else "none"
    return f"$emqx-{_DIGESTS[name]}-{place}${encoded if place != 'none' else ''}${digest}"


# Rules.


def _rules(found: _Found, superusers: list[str], report: Report) -> RuleBook:
    book = RuleBook()
    usable = [name for name in superusers if not name_fault(name)]
    for name in superusers:
        if name not in usable:
            report.missing(_USERS, f"superuser {name}", "rules cannot name it; add a rule for it by hand")
    if usable:
        book.add(MovedRule(Subject(users=tuple(usable)), True, _ACTIONS["all"], EVERYTHING, "superusers"))
    for subject, rule in _ordered(found.rules, report):
        for moved in _moved(subject, rule, report):
            book.add(moved)
    settings = found.config.get("authorization")
    settings = settings if isinstance(settings, dict) else {}
    unknown = sum(each.setting in (_RECORD, _RULE) for each in report.entries if each.origin == _RULES)
    for source in _listed(settings.get("sources", [])):
        kind = str(source.get("type"))
        if kind != "built_in_database":
            is_off = source.get("enable") == "false"
            off = "; it was switched off" if is_off else ""
            report.missing(_CLUSTER, f"authorization.sources: {kind}", f"is left out: write its rules by hand{off}")
            unknown += not is_off
    no_match = str(settings.get("no_match", "allow"))
    if no_match == "allow" and unknown:
        advice = (
            "left out, since rules that may deny were left out: allow at the end of rules.toml what is to be allowed"
        )
        report.missing(_CLUSTER, "authorization.no_match = allow", advice)
    elif no_match == "allow":
        book.add(MovedRule(Subject(), True, _ACTIONS["all"], ("#",), "authorization.no_match = allow"))
        report.taken(_CLUSTER, "authorization.no_match = allow", "the last rule: everything that no rule denies")
    else:
        report.same(_CLUSTER, f"authorization.no_match = {no_match}", "what no rule allows is denied")
    return book


def _ordered(listed: list[Term], report: Report) -> Iterator[tuple[Subject, Term]]:
    """Yield the rules in EMQX's order: of Client Identifiers, of User Names, of everybody."""
    kinds: dict[int, list[tuple[Subject, Term]]] = {_CLIENT: [], _USER: [], 0: []}
    for record in listed:
        match record:
            case (_, 0, list(rules)):
                kinds[0] += [(Subject(), rule) for rule in rules]
            case (_, ((1 | 2) as kind, bytes(who)), list(rules)):
                name = who.decode(errors="replace")
                if fault := name_fault(name):
                    report.missing(_RULES, f"rules of {name}", f"left out, since rules cannot name it: {fault}")
                    continue
                subject = Subject(users=(name,)) if kind == _USER else Subject(clients=(name,))
                kinds[kind] += [(subject, rule) for rule in rules]
            case _:
                report.missing(_RULES, _RECORD, "is of another form than those of EMQX 5, and left out")
    for rules in kinds.values():
        yield from rules


def _moved(subject: Subject, rule: Term, report: Report) -> Iterator[MovedRule]:
    """Yield the rule that says the same, or none with an entry in the report."""
    match rule:
        case (str(permission), (str(kind), list(options)), topic) if kind in _ACTIONS:
            limits = {each[0]: each[1] for each in options if isinstance(each, tuple) and len(each) == 2}
        case (str(permission), str(kind), topic) if kind in _ACTIONS:
            limits = {}
        case _:
            report.missing(_RULES, _RULE, "is of another form than those of EMQX 5, and left out")
            return
    allow = permission == "allow"
    literal = isinstance(topic, tuple) and len(topic) == 2 and topic[0] == "eq"
    text = topic[1] if literal else topic
    if not isinstance(text, bytes):
        report.missing(_RULES, _RULE, "its topic is of another form than those of EMQX 5; it is left out")
        return
    name = text.decode(errors="replace")
    setting = f"{permission} {kind} {'eq ' if literal else ''}{name}"
    actions = _limited(_ACTIONS[kind], kind, limits, allow, setting, report)
    if literal and not allow and ("+" in name or "#" in name):
        advice = "left out: it denies this very Topic Filter; here such a subscriber gets what it may subscribe to"
        report.missing(_RULES, setting, advice)
        return
    levels = name.split("/")
    try:
        if any(PLACEHOLDER.fullmatch(level) for level in levels):
            if allow:
                raise NoTopic("EMQX takes %u, %c and %g as they are, and rules do not")
            levels = ["+" if PLACEHOLDER.fullmatch(level) else level for level in levels]
        found, remark = rule_topic("/".join(_PLACEHOLDERS.get(level, level) for level in levels), allow)
    except NoTopic as invalid:
        report.missing(_RULES, setting, f"left out: {invalid}")
        return
    if remark:
        report.missing(_RULES, setting, remark)
    if actions:
        yield MovedRule(subject, allow, actions, (found,))


def _limited(
    actions: tuple[str, ...], kind: str, limits: Mapping[str, Any], allow: bool, setting: str, report: Report
) -> tuple[str, ...]:
    """Return the actions of a rule that is limited to some QoS or to one RETAIN; none if it has no equal."""
    if sorted(limits.get("qos") or _EVERY_QOS) != _EVERY_QOS:
        advice = "left out: rules do not look at the QoS" if allow else "denied with every QoS, which is wider"
        report.missing(_RULES, f"{setting}, qos {limits['qos']}", advice)
        if allow:
            return ()
    retain = str(limits.get("retain", "all"))
    if retain == "all" or kind == "subscribe":
        return actions
    others = tuple(each for each in actions if each not in PUBLISH)
    if retain == "true":
        if not allow:
            return ("retain", "clear", *others)
        report.missing(_RULES, f"{setting}, retain true", "left out: who may set RETAIN may publish without it, too")
        return others
    if allow:
        return ("publish", *others)
    report.missing(_RULES, f"{setting}, retain false", "denied with RETAIN as well, which is wider")
    return actions


def _tell_others(found: _Found, path: Path, report: Report) -> None:
    for name, advice in _OTHERS.items():
        if found.others[name]:
            report.missing(name, counted(found.others[name], "record"), advice)
    if found.others[_RETAINED]:
        advice = f"import them with: holdfast retainer import {display_name(path)}"
        report.missing(_RETAINED, counted(found.others[_RETAINED], "retained message"), advice)
    for key in found.config:
        if key not in ("authentication", "authorization"):
            advice = "is not read: the listener is on this machine only; write what you need by hand"
            report.missing(_CLUSTER, key, advice)
