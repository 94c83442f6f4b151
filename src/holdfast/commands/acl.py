"""``holdfast acl``: explain the permissions of clients, and change the rules in the database."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.commands import database_rules
from holdfast.commands.common import Failed, broker_options, json_option, load_config, show, show_json
from holdfast.core.terminal import ExitStatus

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.identity.explaining import Explanation
    from holdfast.identity.interfaces import Principal
    from holdfast.identity.rules import Action, Rule

#: in bytes [MQTT5-4.7.3-3]
_LONGEST_TOPIC = 65_535
_ACTIONS = ("publish", "retain", "clear", "subscribe", "receive")


@click.group()
def acl() -> None:
    """Explain permissions, and change the rules in the database.

    The broker uses the rules in the database if [authorization] names a source with type = "database". Changes work
    with a running broker, at once, and without one.
    """


for _command in (database_rules.add, database_rules.list_rules, database_rules.move, database_rules.remove):
    acl.add_command(_command)


@acl.command()
@click.argument("user")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("topic")
@click.option("--client", default="", help="The Client Identifier.")
@click.option(
    "--group", "groups", multiple=True, help="A group besides those in the rules, as from a token. Repeatable."
)
@click.option("--address", default="", help='The address of the client; "unix" for a UNIX domain socket.')
@click.option("--listener", default="", help="The name of the client's listener.")
@broker_options
@json_option
def explain(
    user: str,
    action: str,
    topic: str,
    client: str,
    groups: tuple[str, ...],
    address: str,
    listener: str,
    config: Path | None,
    data_dir: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Tell whether USER may do ACTION with TOPIC.

    The answer names the rule that decides. USER $guest is a client without a User Name. For subscribe, TOPIC is a Topic
    Filter. The command reads the present files, users and rules: a running broker may still have the rules of its last
    reload.

    The exit status is 0 if it is allowed, also in part, and 3 if it is denied.
    """
    from holdfast.identity.interfaces import Grant, Principal
    from holdfast.identity.rules import GUEST

    loaded = load_config(config, data_dir, storage)
    username = None if user == GUEST else user
    principal = Principal(client, username, frozenset(groups), listener, address)
    explanation = _explanation(loaded, principal, action, topic)
    if as_json:
        show_json(
            {
                "allowed": explanation.grant is not Grant.REFUSED,
                "filtered": explanation.grant is Grant.FILTERED,
                "summary": explanation.summary,
                "reasons": [
                    {
                        "action": reason.permission.word,
                        "topic": reason.topic,
                        "allowed": reason.decision.allow,
                        "origin": reason.origin,
                        "rule": str(reason.decision.rule) if reason.decision.rule else None,
                    }
                    for reason in explanation.reasons
                ],
            }
        )
    else:
        show(f"{user} {action} {topic}: {explanation.summary}")
        for reason in explanation.reasons:
            show(f"  {reason}")
    raise SystemExit(ExitStatus.FOUND if explanation.grant is Grant.REFUSED else ExitStatus.DONE)


def _explanation(config: Config, principal: Principal, action: str, topic: str) -> Explanation:
    from attrs import evolve

    from holdfast.core.topics import ASKED, is_granted_to_all, is_of_broker, split_shared, without_queue
    from holdfast.identity.authorizer import Authorizer
    from holdfast.identity.explaining import Explanation, explain, explain_subscribe
    from holdfast.identity.interfaces import Grant
    from holdfast.identity.rule_sources import authorizer_of, read_sources
    from holdfast.identity.rules import Action

    wanted = Action[action.upper()]
    if wanted is Action.SUBSCRIBE and config.mqtt.queue_subscription:
        topic = without_queue(topic)
    _check(config, principal, wanted, topic)
    if wanted is Action.PUBLISH and topic in ASKED:
        return Explanation(Grant.GRANTED, "allowed: the answer tells only what the client may subscribe to", ())
    if wanted not in (Action.SUBSCRIBE, Action.RECEIVE) and is_of_broker(topic):
        return Explanation(Grant.REFUSED, "denied: only the broker publishes to its own topics", ())
    if wanted in (Action.SUBSCRIBE, Action.RECEIVE) and is_granted_to_all(topic):
        return Explanation(Grant.GRANTED, "allowed: every client gets the markers of its own replays there", ())
    sources = read_sources(config)
    rules, groups = _in_database(config, principal.username)
    principal = evolve(principal, groups=principal.groups | groups)
    authorizer = authorizer_of(config, sources, rules)
    if not isinstance(authorizer, Authorizer):
        return Explanation(Grant.GRANTED, "allowed: neither authentication nor authorization is configured", ())
    permissions = authorizer.permissions_of(principal)
    if wanted is Action.SUBSCRIBE:
        explanation = explain_subscribe(
            authorizer.rules,
            permissions,
            split_shared(topic)[1],
            partially=config.authorization.subscribe_partially,
        )
    else:
        explanation = explain(permissions, wanted, topic)
    conditions = [rule.conditions for rule in authorizer.rules.rules]
    missing = {
        "--client": not principal.client_id and any(each.clients for each in conditions),
        "--listener": not principal.listener and any(each.listeners for each in conditions),
        "--address": not principal.address and any(each.addresses for each in conditions),
    }
    left_out = [option for option, is_missing in missing.items() if is_missing]
    if left_out:
        note = f"; rules limited to some clients, listeners or addresses do not count without {', '.join(left_out)}"
        explanation = evolve(explanation, summary=explanation.summary + note)
    return explanation


def _check(config: Config, principal: Principal, action: Action, topic: str) -> None:
    """Raise Failed for a listener, an address or a topic that no client of this broker can have."""
    from holdfast.core.topics import (
        InvalidTopicFilter,
        InvalidTopicName,
        check_topic_filter,
        check_topic_name,
        split_shared,
    )
    from holdfast.identity.rules import UNIX, Action

    if principal.listener and principal.listener not in config.listeners:
        raise Failed(f"no listener is named {principal.listener}; there are {', '.join(config.listeners)}")
    if principal.address not in ("", UNIX):
        try:
            ip_address(principal.address)
        except ValueError:
            raise Failed(f'{principal.address} is no IP address; allowed: an IP address, or "unix"') from None
    if len(topic.encode(errors="surrogateescape")) > _LONGEST_TOPIC:
        raise Failed(f"the topic has more than {_LONGEST_TOPIC} bytes")
    levels = config.mqtt.max_topic_levels
    try:
        if action is Action.SUBSCRIBE:
            check_topic_filter(split_shared(topic)[1], levels)
        else:
            check_topic_name(topic, levels)
    except (InvalidTopicFilter, InvalidTopicName) as invalid:
        raise Failed(f"{topic}: {invalid}") from None


def _in_database(config: Config, username: str | None) -> tuple[tuple[Rule, ...], frozenset[str]]:
    """Return the rules and the groups of a user in the database, as far as the configuration uses them."""
    rules: tuple[Rule, ...] = ()
    groups: frozenset[str] = frozenset()
    if not (config.authorization.has_database or config.authentication.database_users):
        return rules, groups
    from holdfast.commands.opening import access_to
    from holdfast.commands.user import RULES_PATH, USERS_PATH, pages
    from holdfast.identity.database_rules import stored_rule

    with access_to(config) as access:
        if config.authorization.has_database:
            rules = tuple(stored_rule(one.pop("number"), one).rule for one in pages(access, RULES_PATH))
        if config.authentication.database_users and username is not None:
            found = access.call("GET", USERS_PATH, {"user_id": username})["data"]
            groups = frozenset(group for one in found for group in one["groups"])
    return rules, groups
