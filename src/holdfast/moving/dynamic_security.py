"""mosquitto's dynamic-security.json: its clients, groups and roles as users and rules with the same verdicts.

How it works. mosquitto asks, for each of four questions, the client's own roles and then those of its groups, higher
priorities first and equal ones by name; in a role, the ACLs with higher priorities first. The first ACL that matches
decides, and without any, ``defaultACLAccess`` does. So all roles of a client form one list, and clients with the same
list share its rules:

    publishClientSend     publish, retain and clear
    publishClientReceive  receive: denies deliveries. Holdfast delivers what may be subscribed and is not denied.
    subscribePattern      subscribe
    subscribeLiteral      subscribe, before the patterns of its role
    unsubscribe...        nothing: every client may end its subscriptions

The verdict about each topic is the same: may it be published, subscribed, received. Topic Filters with wildcards differ
in one way. mosquitto compares the text of the filter with its ACLs, and so grants ``a/#`` although a pattern denies
``a/b``. Holdfast grants ``a/#`` too (``subscribe_partially``), and keeps the messages of ``a/b`` from the client. A
literal with a wildcard is a rule about all topics that it matches, after all others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from holdfast.config.toml import ConfigError, ConfigProblem, display_name
from holdfast.core.terminal import counted
from holdfast.identity.rules import GUEST
from holdfast.moving.report import Report
from holdfast.moving.rules import (
    EVERYTHING,
    PUBLISH,
    RECEIVE,
    SUBSCRIBE,
    MovedRule,
    NoTopic,
    RuleBook,
    Subject,
    name_fault,
    rule_topic,
)
from holdfast.moving.users import Users, text_at

_SEND, _RECEIVE = "publishclientsend", "publishclientreceive"
_LITERAL, _PATTERN = "subscribeliteral", "subscribepattern"
_UNSUBSCRIBE = ("unsubscribeliteral", "unsubscribepattern")
#: topics of mosquitto's own commands
_CONTROL = "$CONTROL"
_WITHOUT_PRIORITY = -1


@frozen
class Acl:
    """One ACL of a role. ``kind`` is in small letters: mosquitto takes any."""

    kind: str
    topic: str
    allow: bool
    priority: int


@frozen
class Role:
    """A role with its ACLs, those of higher priorities first."""

    name: str
    acls: tuple[Acl, ...]
    takes_wildcards: bool = True

    def of(self, kind: str) -> list[Acl]:
        """Return the ACLs of one kind."""
        return [acl for acl in self.acls if acl.kind == kind]


@frozen
class Client:
    """A user. ``roles`` are all that count, in the order in which mosquitto asks them."""

    name: str
    stored: str
    client_id: str
    disabled: bool
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    has_own_roles: bool


@define
class DynamicSecurity:
    """The content of a dynamic-security.json. ``guest_roles`` are those of the anonymous group; None without one."""

    name: str
    roles: dict[str, Role] = field(factory=dict)
    clients: dict[str, Client] = field(factory=dict)
    guest_roles: tuple[str, ...] = ()
    default_send: bool = False
    default_receive: bool = False
    default_subscribe: bool = False
    default_unsubscribe: bool = False


def read_dynamic_security(path: Path, origin: str) -> DynamicSecurity:
    """Return the content of a file that the line ``origin`` names. Raises ConfigError.

    Elements that mosquitto skips are skipped: those without a name, and those of another form.
    """
    name = display_name(path)
    text = text_at(path, origin, "config_file")
    try:
        tree = json.loads(text) if text.strip() else {}
        json.dumps(tree, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _problem(name, error.lineno, f"this is no JSON: {error.msg}; restore the file from a backup") from None
    except UnicodeEncodeError:
        raise _problem(name, None, "a text in it is no UTF-8; restore the file from a backup") from None
    except RecursionError:
        raise _problem(name, None, "this JSON is nested too deeply; restore the file from a backup") from None
    if not isinstance(tree, dict):
        raise _problem(
            name, None, "this is no JSON object; name the config_file of mosquitto's dynamic security plugin"
        )
    found = DynamicSecurity(name)
    defaults = tree.get("defaultACLAccess")
    if isinstance(defaults, dict):
        found.default_send = defaults.get("publishClientSend") is True
        found.default_receive = defaults.get("publishClientReceive") is True
        found.default_subscribe = defaults.get("subscribe") is True
        found.default_unsubscribe = defaults.get("unsubscribe") is True
    for role in _named(tree, "roles", "rolename"):
        acls = [acl for acl in map(_acl, _objects(role, "acls")) if acl is not None]
        ordered = tuple(sorted(acls, key=lambda acl: -acl.priority))
        takes_wildcards = role.get("allowwildcardsubs") is not False
        found.roles.setdefault(role["rolename"], Role(role["rolename"], ordered, takes_wildcards))
    memberships: dict[str, list[tuple[int, str]]] = {}
    group_roles: dict[str, tuple[str, ...]] = {}
    for group in _named(tree, "groups", "groupname"):
        if group["groupname"] in group_roles:
            continue
        group_roles[group["groupname"]] = _role_names(group, found.roles)
        for member in _named(group, "clients", "username"):
            memberships.setdefault(member["username"], []).append((_priority(member), group["groupname"]))
    for client in _named(tree, "clients", "username"):
        if client["username"] not in found.clients:
            joined = memberships.get(client["username"], [])
            found.clients[client["username"]] = _client(client, joined, group_roles, found.roles)
    anonymous = tree.get("anonymousGroup")
    if isinstance(anonymous, str):
        found.guest_roles = group_roles.get(anonymous, ())
    return found


def _problem(name: str, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, line, "", message)])


def _objects(tree: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    elements = tree.get(key)
    if isinstance(elements, list):
        yield from (element for element in elements if isinstance(element, dict))


def _named(tree: Mapping[str, Any], key: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list that have a name."""
    for element in _objects(tree, key):
        if isinstance(element.get(name), str) and element[name]:
            yield element


def _priority(element: Mapping[str, Any], default: int = _WITHOUT_PRIORITY) -> int:
    value = element.get("priority")
    return int(value) if isinstance(value, int | float) and abs(value) < 1 << 31 else default


def _acl(element: Mapping[str, Any]) -> Acl | None:
    kind, topic = element.get("acltype"), element.get("topic")
    if not isinstance(kind, str) or not isinstance(topic, str):
        return None
    return Acl(kind.lower(), topic, element.get("allow") is True, _priority(element, 0))


def _role_names(element: Mapping[str, Any], roles: Mapping[str, Role]) -> tuple[str, ...]:
    """Return the names of the known roles of a client or a group, in mosquitto's order."""
    found = [(-_priority(role), role["rolename"].encode()) for role in _named(element, "roles", "rolename")]
    known = {name.decode(): None for _, name in sorted(found) if name.decode() in roles}
    return tuple(known)


def _client(
    element: Mapping[str, Any],
    joined: Iterable[tuple[int, str]],
    group_roles: Mapping[str, tuple[str, ...]],
    roles: Mapping[str, Role],
) -> Client:
    own = _role_names(element, roles)
    ordered = sorted(set(joined), key=lambda each: (-each[0], each[1].encode()))
    groups = tuple(dict.fromkeys(name for _, name in ordered))
    all_roles = dict.fromkeys([*own, *(role for name in groups for role in group_roles[name])])
    client_id = element.get("clientid")
    return Client(
        name=element["username"],
        stored=_stored(element),
        client_id=client_id if isinstance(client_id, str) else "",
        disabled=element.get("disabled") is True,
        roles=tuple(all_roles),
        groups=groups,
        has_own_roles=bool(own),
    )


def _stored(element: Mapping[str, Any]) -> str:
    """Return the hash of a client as mosquitto's password file has it; empty without one."""
    encoded = element.get("encoded_password")
    if isinstance(encoded, str):
        return encoded
    salt, password, iterations = element.get("salt"), element.get("password"), element.get("iterations")
    if (
        isinstance(salt, str)
        and isinstance(password, str)
        and isinstance(iterations, int | float)
        and 1 <= iterations < 1 << 31
    ):
        return f"$7${int(iterations)}${salt}${password}"
    return ""


# From roles to users and rules.


def users_of(found: DynamicSecurity, report: Report) -> Users:
    """Return the users who can log in."""
    users = Users()
    for client in found.clients.values():
        if client.disabled:
            advice = "left out, since it is disabled; add it with holdfast passwd add when it may log in again"
            report.missing(found.name, f"client {client.name}", advice)
        elif not client.stored:
            advice = "left out, since it has no password; add it with holdfast passwd add"
            report.missing(found.name, f"client {client.name}", advice)
        else:
            users.add(client.name, client.stored, found.name, report)
    return users


def rules_of(found: DynamicSecurity, report: Report, listeners: tuple[str, ...] = ()) -> RuleBook:
    """Return the rules of all clients, limited to some listeners; without any, for all."""
    book = RuleBook()
    topics = _Topics(found.name, report)
    sharing: dict[tuple[tuple[str, ...], str], list[Client]] = {}
    for client in found.clients.values():
        if client.disabled:
            continue
        fault = name_fault(client.name) or (name_fault(client.client_id) if client.client_id else "")
        if fault:
            advice = f"has no rules, which cannot name it: {fault}; give it another name"
            report.missing(found.name, f"client {client.name}", advice)
            continue
        sharing.setdefault((client.roles, client.client_id), []).append(client)
    for (roles, client_id), clients in sharing.items():
        clients_ids = (client_id,) if client_id else ()
        names = tuple(client.name for client in clients)
        if len(clients) > 1 and not client_id:
            group = _group_name(clients, book)
            book.groups[group] = list(names)
            subject = Subject(groups=(group,), listeners=listeners)
        else:
            subject = Subject(users=names, clients=clients_ids, listeners=listeners)
        if client_id:
            advice = "its rules are for its Client Identifier; it may log in with others, and may do nothing then"
            report.taken(found.name, f"clientid of client {names[0]}", advice)
        _add_rules(book, subject, [found.roles[name] for name in roles], found, topics)
    guests = Subject(users=(GUEST,), listeners=listeners)
    _add_rules(book, guests, [found.roles[name] for name in found.guest_roles], found, topics)
    report.taken(
        found.name,
        f"{counted(len(found.clients), 'client')}, {counted(len(found.roles), 'role')}",
        f"{counted(len(book.rules), 'rule')} with the same verdict about each topic; # is granted, and filtered",
    )
    if not found.default_unsubscribe or any(role.of(kind) for role in found.roles.values() for kind in _UNSUBSCRIBE):
        report.missing(found.name, "unsubscribe", "every client may end its own subscriptions; nothing is to be done")
    for role in found.roles.values():
        if not role.takes_wildcards:
            advice = "its users may subscribe with wildcards: set mqtt.wildcard_subscription = false in a zone"
            report.missing(found.name, f"allowwildcardsubs false of role {role.name}", advice)
    return book


def _group_name(clients: list[Client], book: RuleBook) -> str:
    """Return a name for the clients with the same roles: that of their group, where they have just one."""
    first = clients[0]
    if all(client.groups == first.groups and not client.has_own_roles for client in clients) and len(first.groups) == 1:
        name = first.groups[0]
    else:
        name = " and ".join(first.roles) or "without roles"
    if name_fault(name):
        name = "roles"
    unique, number = name, 2
    while unique in book.groups:
        unique, number = f"{name} {number}", number + 1
    return unique


class _Topics:
    """Topics for rules. Each one that rules cannot hold goes into the report once."""

    def __init__(self, origin: str, report: Report) -> None:
        self._origin = origin
        self._report = report
        self._told: set[tuple[str, Acl]] = set()

    def of(self, role: Role, acl: Acl) -> str | None:
        """Return the Topic Filter for the rule of an ACL; None for no rule."""
        told = f"{acl.kind} {acl.topic} ({'allow' if acl.allow else 'deny'}) of role {role.name}"
        if acl.topic == _CONTROL or acl.topic.startswith(f"{_CONTROL}/"):
            self._tell(role, acl, told, "left out: operators use holdfast user, holdfast acl and the API")
            return None
        try:
            topic, remark = rule_topic(acl.topic, acl.allow)
        except NoTopic as invalid:
            self._tell(role, acl, told, f"left out: {invalid}")
            return None
        if remark:
            self._tell(role, acl, told, remark)
        return topic

    def literal(self, role: Role, acl: Acl) -> str | None:
        """Return the Topic Filter for a literal with wildcards, if it allows; one that denies has no equal."""
        told = f"{acl.kind} {acl.topic} of role {role.name}"
        if not acl.allow:
            advice = "a SUBSCRIBE to exactly this filter is granted as far as its topics are; deny topics by rules"
            self._tell(role, acl, told, advice)
            return None
        self._tell(role, acl, told, "each topic that it matches may be subscribed by its own name, too")
        return self.of(role, acl)

    def _tell(self, role: Role, acl: Acl, setting: str, remark: str) -> None:
        if (role.name, acl) not in self._told:
            self._told.add((role.name, acl))
            self._report.missing(self._origin, setting, remark)


def _add_rules(book: RuleBook, subject: Subject, roles: list[Role], found: DynamicSecurity, topics: _Topics) -> None:
    """Add the rules of one list of roles, question by question, each with its default at the end."""

    def add(role: Role, acl: Acl, actions: tuple[str, ...], topic: str | None) -> None:
        if topic is not None:
            book.add(MovedRule(subject, acl.allow, actions, (topic,), f"role {role.name}"))

    for role in roles:
        for acl in role.of(_SEND):
            add(role, acl, PUBLISH, topics.of(role, acl))
    if found.default_send:
        book.add(MovedRule(subject, True, PUBLISH, EVERYTHING[:1], "defaultACLAccess"))
    late = []
    for role in roles:
        for acl in {acl.topic: acl for acl in role.of(_LITERAL)}.values():
            if "+" in acl.topic or "#" in acl.topic:
                late.append((role, acl))
            else:
                add(role, acl, SUBSCRIBE, topics.of(role, acl))
        for acl in role.of(_PATTERN):
            add(role, acl, SUBSCRIBE, topics.of(role, acl))
    for role, acl in late:
        add(role, acl, SUBSCRIBE, topics.literal(role, acl))
    if found.default_subscribe:
        book.add(MovedRule(subject, True, SUBSCRIBE, EVERYTHING, "defaultACLAccess"))
    for role in roles:
        for acl in role.of(_RECEIVE):
            add(role, acl, RECEIVE, topics.of(role, acl))
    if not found.default_receive:
        book.add(MovedRule(subject, False, RECEIVE, EVERYTHING, "defaultACLAccess"))
