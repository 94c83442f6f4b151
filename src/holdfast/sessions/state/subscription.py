"""One granted subscription, and the stored progress of its replay."""

from __future__ import annotations

from attrs import frozen

from holdfast.extensions.replay_info import Facts
from holdfast.hot_values import hot_frozen


@frozen
class Subscription:
    """The granted options of one subscription [MQTT5-3.8.3.1].

    ``qos`` is the maximum QoS; ``identifier`` the Subscription Identifier (1..268,435,455) or None. ``filtered`` tells
    that the authorizer is asked about each topic. It is not stored: a later process asks about the subscription anew.
    ``conflate`` is the interval of conflation in milliseconds, 0 for none.
    """

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int | None = None
    group: str | None = None
    filtered: bool = False
    conflate: int = 0


@hot_frozen
class ReplayProgress:
    """How far a replay is. The Client has acknowledged all messages up to the topic ``after``.

    Changes with a revision above ``cut`` concern the Client as live messages; 0 if that is not certain. ``marker`` is
    the marker that is due at its end (:mod:`.pending_marker`), None for none. ``facts`` are told of each message.
    ``since`` is the turn after which it brings changes (:mod:`holdfast.retained.since.stored`), None for all messages.
    """

    after: str
    cut: int
    marker: str | None = None
    facts: Facts = ()
    since: int | None = None
