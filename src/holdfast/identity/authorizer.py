"""The authorizer of the broker: it answers by rules, and remembers its answers.

How it works. Each Principal has an entry with its permissions and with the topics and Topic Filters that it was asked
about. The live
path finds the entry by the identity of the object, since a Session asks with the same Principal each time; comparing
Principals would cost more than the whole answer. Entries and topics are bounded: the oldest entries go first.
:meth:`Authorizer.replace` forgets all entries, and changes the epoch. What it forgets is freed a part at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from hashlib import blake2b
from itertools import islice

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage
from holdfast.core.topics import level_count
from holdfast.identity.coverage import MOST_NODES, Search, Verdicts, allowed_filters
from holdfast.identity.interfaces import Grant, IAuthorizer, OperatorPrincipal, Principal
from holdfast.identity.rules import MOST_VISITED, UNKNOWN, Action, Identity, Rule, Ruleset, first_match
from holdfast.version import version

#: identities whose permissions are remembered
MOST_ENTRIES = 20_000
#: verdicts that are remembered in all
MOST_VERDICTS = 200_000
#: Verdicts of one identity that are always remembered, and those while no more than half of all places are in use.
#: With more, it forgets its own: one client must not drive out the verdicts of the others.
MOST_OF_ONE = 2_000
MOST_OF_ONE_AT_EASE = 20_000
#: nodes of the rules that a search visits in one step of long work (200 microseconds)
_NODES_OF_A_STEP = 60
#: The search for a topic visits so many nodes in the time in which that for a Topic Filter visits one.
_TOPIC_DISCOUNT = 10
#: Longer topics are not remembered.
LONGEST_TOPIC = 256


#: returns the groups of a user in the database
GroupsOf = Callable[[str | None], frozenset[str]]


def no_groups(_username: str | None) -> frozenset[str]:
    """Return no groups, where no users in the database log in."""
    return frozenset()


def no_digest() -> str:
    """Return the digest of no groups."""
    return ""


#: frees a structure, of which it takes the objects, each after those that refer to it
Free = Callable[[Iterator[object]], object]


def at_once(_parts: Iterator[object]) -> None:
    """Free a structure at once, with the iterator."""


class SourceCheck(Enum):
    """Which retained messages are kept from replays if their publisher may no longer retain there."""

    OFF = "off"
    USERS = "users"  #: those with a User Name
    STRICT = "strict"  #: all; without a User Name, the rules for guests apply


class _Entry:
    """The permissions of one identity, with remembered answers: verdicts by topic, one mapping for each action, and
    grants by Topic Filter.
    """

    __slots__ = ("count", "grants", "is_kept", "permissions", "principal", "verdicts")

    def __init__(self, principal: object, permissions: Permissions) -> None:
        self.principal = principal
        self.is_kept = True
        self.permissions = permissions
        self.verdicts: tuple[dict[str, bool], ...] = tuple({} for _ in Action)
        self.grants: dict[str, Grants] = {}
        self.count = 0

    def parts(self) -> Iterator[object]:
        yield self
        yield self.permissions
        answers: list[dict[str, bool] | dict[str, Grants]] = [*self.verdicts, self.grants]
        for each in answers:
            yield each
            yield from tuple(each)

    def forget(self) -> None:
        for verdicts in self.verdicts:
            verdicts.clear()
        self.grants.clear()
        self.count = 0


@implementer(IAuthorizer)
class Authorizer:
    """Decides by rules. ``names_proven`` is False if no authentication is configured: then all clients are guests.

    ``groups_of`` tells the groups of a user in the database: of a client that is not connected. ``groups_digest``
    stands for all that it tells. A connected client has the groups that its authentication method told.
    ``groups_elsewhere`` tells that clients may have other groups, for example from a token. Of a client that is not
    connected they are unknown: it may publish what it may with any groups.

    ``free`` frees what is forgotten: ten thousand rules or entries are too many for one turn of the reactor.

    With ``subscribe_partially``, a subscription of which only some topics are allowed is granted, and filtered.
    """

    _log = Logger()

    def __init__(
        self,
        rules: Ruleset,
        *,
        subscribe_partially: bool = False,
        source_check: SourceCheck = SourceCheck.USERS,
        names_proven: bool = True,
        groups_elsewhere: bool = False,
        groups_of: GroupsOf = no_groups,
        groups_digest: Callable[[], str] = no_digest,
        free: Free = at_once,
    ) -> None:
        self._partially = subscribe_partially
        self._source_check = source_check
        self._names_proven = names_proven
        self._groups_elsewhere = groups_elsewhere
        self._groups_of = groups_of
        self._groups_digest = groups_digest
        self._visited = 0
        self._by_identity: dict[object, _Entry] = {}
        self._free = free
        self._decide_by(rules)

    def replace(self, rules: Ruleset) -> None:
        """Decide by other rules from now on."""
        before = self.rules
        self._decide_by(rules)
        self._free(before.parts())

    def retire(self) -> None:
        """Free all that was remembered, and the rules: another authorizer decides from now on."""
        self.renew()
        self._free(self.rules.parts())

    def _decide_by(self, rules: Ruleset) -> None:
        self._has_warned = False
        self.rules = rules
        self.checks_delivery = self._partially or rules.grants_subscribe or rules.limits_receive
        self.renew()

    def renew(self) -> None:
        """Forget all answers, because the groups of users have changed."""
        outdated = self._by_identity
        self.epoch: object = object()
        self._by_object: dict[int, _Entry] = {}
        self._by_identity = {}
        self._count = 0
        if outdated:
            self._free(part for entry in outdated.values() for part in entry.parts())

    @property
    def effort(self) -> int:
        """The steps of long work that all searches have cost so far."""
        return self._visited // _NODES_OF_A_STEP

    def may_publish(self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False) -> bool:
        """Tell whether the Principal may publish this: with RETAIN 1, it needs another permission besides."""
        entry = self._by_object.get(id(principal))
        if entry is None or entry.principal is not principal:
            entry = self._entry_of(principal)
        allowed = entry.verdicts[0].get(topic)
        if allowed is None:
            allowed = self._decide(entry, Action.PUBLISH, topic)
        if retain and allowed:
            return self._may(entry, Action.CLEAR if clears else Action.RETAIN, topic)
        return allowed

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant:
        """Return what the Principal gets if it subscribes to a Topic Filter."""
        return self._grants(self._entry_of(principal), topic_filter).subscribed

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool:
        """Tell whether the Principal may subscribe to the topic of the message, and no rule denies its delivery."""
        entry = self._by_object.get(id(principal))
        if entry is None or entry.principal is not principal:
            entry = self._entry_of(principal)
        return self._may(entry, Action.RECEIVE, message.topic)

    def may_keep(self, username: str | None, client_id: str | None, topic: str) -> bool:
        """Tell whether the publisher of a retained message may still retain a message of this topic, wherever it is."""
        if not self._names_proven:  # then every publisher was judged as a guest
            username = None
        check = self._source_check
        if check is SourceCheck.OFF or (username is None and check is not SourceCheck.STRICT):
            return True
        identity = self._unconnected(username, client_id or "")
        entry = self._by_identity.get(identity) or self._remember(identity, identity)
        return self._may(entry, Action.PUBLISH, topic) and self._may(entry, Action.RETAIN, topic)

    @property
    def keeping(self) -> str:
        """What stands for all that :meth:`may_keep` depends on, also in the next process of this version."""
        options = self._source_check.value, self._names_proven, self._groups_elsewhere
        parts = (*options, self.rules.retaining, self._groups_digest(), version())
        return blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    @property
    def keeps_the_published(self) -> bool:
        """Whether each message that :meth:`may_publish` allows to retain may be kept, as long as nothing changes.

        Rules that are limited to listeners or addresses allow more, or less, to a client whose place is known.
        """
        return not self.rules.retaining_by_place

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        """Return which of the messages that match a Topic Filter the Principal may receive."""
        return self._grants(self._entry_of(principal), topic_filter).receivable

    def receivable_filters(self, principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all that the Principal may receive of a Topic Filter; None for any."""
        return self._entry_of(principal).permissions.receivable_filters(topic_filter)

    def permissions_of(self, principal: Principal) -> Permissions:
        """Return the permissions of a Principal by the present rules."""
        return self._entry_of(principal).permissions

    def _entry_of(self, principal: Principal) -> _Entry:
        entry = self._by_object.get(id(principal))
        if entry is not None and entry.principal is principal:
            return entry
        proven = principal if self._names_proven else evolve(principal, username=None, groups=frozenset())
        if principal.names_only:
            identity = self._unconnected(proven.username, proven.client_id)
        else:
            identity = Identity.of(proven, self.rules.groups_of(proven.username))
        entry = self._by_identity.get(identity)
        if entry is None:
            entry = self._remember(identity, principal)
        elif self._by_object.get(id(entry.principal)) is entry:
            del self._by_object[id(entry.principal)]  # the client is back with a new Principal
        entry.principal = principal
        self._by_object[id(principal)] = entry
        return entry

    def _unconnected(self, username: str | None, client_id: str) -> Identity:
        """Return the identity of a client of which only the names are known."""
        knows_groups = username is None or not self._groups_elsewhere
        groups = self.rules.groups_of(username) | self._groups_of(username)
        return Identity(username, client_id, groups, is_located=False, knows_groups=knows_groups)

    def _remember(self, identity: Identity, principal: object) -> _Entry:
        if len(self._by_identity) >= MOST_ENTRIES:
            self._drop_oldest(1)
        entry = self._by_identity[identity] = _Entry(principal, Permissions(self.rules, identity))
        return entry

    def _drop_oldest(self, number: int) -> None:
        for identity in list(islice(self._by_identity, number)):
            entry = self._by_identity.pop(identity)
            entry.is_kept = False
            self._count -= entry.count
            if self._by_object.get(id(entry.principal)) is entry:
                del self._by_object[id(entry.principal)]

    def _may(self, entry: _Entry, action: Action, topic: str) -> bool:
        allowed = entry.verdicts[action].get(topic)
        return self._decide(entry, action, topic) if allowed is None else allowed

    def _decide(self, entry: _Entry, action: Action, topic: str) -> bool:
        allowed, visited = entry.permissions.search(action, topic.split("/"))
        self._visited += visited // _TOPIC_DISCOUNT
        if visited > MOST_VISITED and not self._has_warned:
            self._has_warned = True
            self._log.warn(
                "a topic of {levels} levels is denied: more than {most} beginnings of rules match it (see `holdfast acl"
                " check`); write fewer rules of many levels with + and %",
                levels=level_count(topic), most=MOST_VISITED,
            )  # fmt: skip
        if self._remembers(entry, topic):
            entry.verdicts[action][topic] = allowed
        return allowed

    def _grants(self, entry: _Entry, topic_filter: str) -> Grants:
        grants = entry.grants.get(topic_filter)
        if grants is None:
            grants = entry.permissions.grants(topic_filter, partially=self._partially)
            self._visited += grants.visited
            if self._remembers(entry, topic_filter):
                entry.grants[topic_filter] = grants
        return grants

    def _remembers(self, entry: _Entry, topic: str) -> bool:
        """Make room for an answer, and count it. Return False if it is not to be remembered."""
        if len(topic) > LONGEST_TOPIC:
            return False
        if entry.count >= MOST_OF_ONE and (entry.count >= MOST_OF_ONE_AT_EASE or self._count >= MOST_VERDICTS // 2):
            self._count -= entry.count
            entry.forget()
        if self._count >= MOST_VERDICTS:
            self._drop_oldest(max(1, len(self._by_identity) // 100))
        if not entry.is_kept:
            return False
        entry.count += 1
        self._count += 1
        return True


# The permissions of one identity: verdicts about topics and Topic Filters.


@frozen
class Decision:
    """A verdict, and the rule that decides so; None if no rule matches.

    ``is_exact`` is False if the search for the rule was given up: then the topic is denied.
    """

    allow: bool
    rule: Rule | None
    is_exact: bool = True


@frozen
class Grants:
    """What a Principal gets of a Topic Filter: by SUBSCRIBE, and of the messages that match now.

    ``visited`` is how many nodes of the rules the search for it has visited.
    """

    subscribed: Grant
    receivable: Grant
    visited: int


class Permissions:
    """What the rules say about one identity. Nothing is kept: :class:`Authorizer` does that."""

    __slots__ = ("_expansions", "_rules", "_tries")

    def __init__(self, rules: Ruleset, identity: Identity) -> None:
        self._rules = rules
        self._tries = [rules.tries_for(identity, action) for action in Action]
        self._expansions = rules.expansions_for(identity)

    def decide(self, action: Action, topic: str) -> Decision:
        """Return the verdict of the first rule for this action that matches a topic."""
        rank, _ = first_match(self._tries[action], topic.split("/"), self._expansions)
        return Decision(self._rules.allows(action, rank), self._rules.rule(rank), rank != UNKNOWN)

    def allows(self, action: Action, topic: str) -> bool:
        """Tell whether the first rule for this action that matches a topic allows it.

        Only a message whose topic may be subscribed may be received.
        """
        return self.search(action, topic.split("/"))[0]

    def search(self, action: Action, levels: Sequence[str]) -> tuple[bool, int]:
        """Return what :meth:`allows` tells about a topic, and how many nodes of the rules the search has visited."""
        rank, visited = first_match(self._tries[action], levels, self._expansions)
        allowed = self._rules.allows(action, rank)
        if allowed and action is Action.RECEIVE:
            allowed, more = self.search(Action.SUBSCRIBE, levels)
            visited += more
        return allowed, visited

    def verdicts(self, action: Action, topic_filter: str, most: int = MOST_NODES) -> Verdicts:
        """Return the verdicts about the topics that a (non-shared) Topic Filter matches."""
        allows = partial(self._rules.allows, action)
        return Search(topic_filter, self._expansions, allows, most).verdicts(self._tries[action])

    def both_verdicts(self, topic_filter: str) -> tuple[Verdicts, Verdicts]:
        """Return the verdicts for SUBSCRIBE and for deliveries. Both searches together are bounded like one."""
        subscribe = self.verdicts(Action.SUBSCRIBE, topic_filter)
        return subscribe, self.verdicts(Action.RECEIVE, topic_filter, max(0, MOST_NODES - subscribe.visited))

    def grant(self, topic_filter: str, *, partially: bool) -> Grant:
        """Return what a SUBSCRIBE gets. ``partially``: all of its topics need not be allowed."""
        return self.grants(topic_filter, partially=partially).subscribed

    def receivable(self, topic_filter: str) -> Grant:
        """Return which messages that match a Topic Filter may be received."""
        return self.grants(topic_filter, partially=True).receivable

    def grants(self, topic_filter: str, *, partially: bool) -> Grants:
        """Return what a SUBSCRIBE gets, and which messages may be received."""
        subscribe, receive = both = self.both_verdicts(topic_filter)
        receivable = Grant.FILTERED
        if subscribe.only_allows and receive.only_allows:
            receivable = Grant.GRANTED
        elif any(verdicts.only_denies for verdicts in both):
            receivable = Grant.REFUSED
        subscribed = Grant.REFUSED
        if subscribe.only_allows:
            subscribed = Grant.GRANTED if receive.only_allows else Grant.FILTERED
        elif self._rules.grants_subscribe or (partially and not subscribe.only_denies):
            subscribed = Grant.FILTERED
        return Grants(subscribed, receivable, subscribe.visited + receive.visited)

    def receivable_filters(self, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all messages of a Topic Filter that may be received; None for any."""
        allows = partial(self._rules.allows, Action.SUBSCRIBE)
        return allowed_filters(self._tries[Action.SUBSCRIBE], self._expansions, allows, topic_filter)


# The authorizer that all parts of the broker share. Operators come first; a reload exchanges what is behind it.


@implementer(IAuthorizer)
class PresentAuthorizer:
    """Answers as the present authorizer does.

    It knows the permissions of operators itself. Its methods are attributes of the object: so a question costs only one
    further call on the live path.
    """

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._spent = 0  #: the effort of earlier authorizers: the sum never falls
        self.authorizer = authorizer
        self.use(authorizer)

    def use(self, authorizer: IAuthorizer) -> None:
        """Answer as this one from now on. Its epoch is another one, unless neither has ever refused anything."""
        before = self.authorizer
        self._spent += before.effort - authorizer.effort
        self.authorizer = authorizer
        judged = OperatorsFirst(authorizer)
        self.may_publish = judged.may_publish
        self.may_subscribe = judged.may_subscribe
        self.may_receive = judged.may_receive
        self.may_keep = authorizer.may_keep
        self.receivable = judged.receivable
        self.receivable_filters = judged.receivable_filters
        if before is not authorizer and isinstance(before, Authorizer):
            before.retire()

    @property
    def epoch(self) -> object:
        """A value that changes whenever any answer may change."""
        return self.authorizer.epoch

    @property
    def keeping(self) -> str | None:
        """What stands for all that may_keep depends on, also in the next process; None if nothing does."""
        keeping: str | None = self.authorizer.keeping
        return keeping

    @property
    def keeps_the_published(self) -> bool:
        """Whether may_keep allows what may_publish allows to retain."""
        return bool(self.authorizer.keeps_the_published)

    @property
    def effort(self) -> int:
        """How much all answers so far have cost."""
        return self._spent + int(self.authorizer.effort)

    @property
    def checks_delivery(self) -> bool:
        """Whether deliveries may need a question."""
        return bool(self.authorizer.checks_delivery)


# The permissions of operators at the console of the dashboard, and of bridges, before those of Clients are asked.


class OperatorsFirst:
    """Answers about operators itself, and asks the authorizer of Clients about everybody else."""

    def __init__(self, clients: IAuthorizer) -> None:
        self._clients = clients

    def may_publish(
        self, principal: Principal, topic: str, qos: int, retain: bool, clears: bool = False
    ) -> bool | Deferred[bool]:
        """Tell whether the Principal may publish this, also as a Will Message."""
        if isinstance(principal, OperatorPrincipal):
            return principal.publishes
        answer: bool | Deferred[bool] = self._clients.may_publish(principal, topic, qos, retain, clears)
        return answer

    def may_subscribe(self, principal: Principal, topic_filter: str, qos: int) -> Grant | Deferred[Grant]:
        """Tell whether the Principal may subscribe to this Topic Filter."""
        if isinstance(principal, OperatorPrincipal):
            return Grant.GRANTED
        answer: Grant | Deferred[Grant] = self._clients.may_subscribe(principal, topic_filter, qos)
        return answer

    def may_receive(self, principal: Principal, message: ApplicationMessage) -> bool | Deferred[bool]:
        """Tell whether the Principal may receive this message."""
        if isinstance(principal, OperatorPrincipal):
            return True
        answer: bool | Deferred[bool] = self._clients.may_receive(principal, message)
        return answer

    def receivable(self, principal: Principal, topic_filter: str) -> Grant:
        """Tell which of the retained messages that match a Topic Filter the Principal may receive now."""
        if isinstance(principal, OperatorPrincipal):
            return Grant.GRANTED
        grant: Grant = self._clients.receivable(principal, topic_filter)
        return grant

    def receivable_filters(self, principal: Principal, topic_filter: str) -> tuple[str, ...] | None:
        """Return Topic Filters that match all that the Principal may receive of a Topic Filter; None for any."""
        if isinstance(principal, OperatorPrincipal):
            return None
        filters: tuple[str, ...] | None = self._clients.receivable_filters(principal, topic_filter)
        return filters
