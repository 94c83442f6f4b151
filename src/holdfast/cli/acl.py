"""``holdfast acl``: explain the permissions of clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.failures import Failed
from holdfast.cli.reporting import json_option, show, show_json
from holdfast.exit_status import ExitStatus

if TYPE_CHECKING:
    from holdfast.auth.interfaces import Principal
    from holdfast.authorization.explaining import Explanation
    from holdfast.config import Config

_ACTIONS = ("publish", "retain", "clear", "subscribe", "receive")


@click.group()
def acl() -> None:
    """Explain what clients may do, by the rules that [authorization] names."""


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
@click.option("--config", type=click.Path(path_type=Path), help="The broker's configuration file.")
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
    as_json: bool,
) -> None:
    """Tell whether USER may do ACTION with TOPIC, and which rule decides.

    USER $guest is a client without a User Name. For subscribe, TOPIC is a Topic Filter. The files are read as they are
    now: a running broker may still have the rules of its last reload.

    The exit status is 0 if it is allowed, also in part, and 3 if it is denied.
    """
    from holdfast.auth.interfaces import Grant, Principal
    from holdfast.authorization.rule import GUEST
    from holdfast.cli.broker_options import load_config

    loaded = load_config(config, None, None)
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
    from holdfast.auth.interfaces import Grant
    from holdfast.authorization.authorizer import Authorizer
    from holdfast.authorization.explaining import Explanation, explain, explain_subscribe
    from holdfast.authorization.loading import authorizer_of
    from holdfast.authorization.rule import Action
    from holdfast.topics import InvalidTopicFilter, InvalidTopicName, check_topic_filter, check_topic_name, split_shared

    authorizer = authorizer_of(config)
    if not isinstance(authorizer, Authorizer):
        return Explanation(Grant.GRANTED, "allowed: neither authentication nor authorization is configured", ())
    permissions = authorizer.permissions_of(principal)
    wanted = Action[action.upper()]
    levels = config.mqtt.max_topic_levels
    try:
        if wanted is Action.SUBSCRIBE:
            _, inner = split_shared(topic)
            check_topic_filter(inner, levels)
            return explain_subscribe(
                authorizer.rules,
                permissions,
                inner,
                partially=config.authorization.subscribe_partially,
            )
        check_topic_name(topic, levels)
    except (InvalidTopicFilter, InvalidTopicName) as invalid:
        raise Failed(f"{topic}: {invalid}") from None
    return explain(permissions, wanted, topic)
