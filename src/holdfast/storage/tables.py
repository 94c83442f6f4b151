"""The database's tables, as SQLAlchemy describes them. It imports SQLAlchemy only, so that other programs can use it.

This is the one home of the schema. ``make schema`` writes what a start without SQLAlchemy needs from it: the layouts
(:mod:`holdfast.storage.layouts`) and ``migrations/newest.sql``.

The columns of ``retained`` are parts of ready packets. With ``||`` for concatenation, the PUBLISH packet with QoS 0 and
RETAIN 1 is ``prefix3 || topic || payload`` for MQTT 3.1 and 3.1.1 and ``prefix5 || topic || properties5 || payload``
for MQTT 5.0. A prefix is the fixed header and the two bytes of the topic's length. All points in time are milliseconds
since the epoch.
"""

from __future__ import annotations

from textwrap import fill

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

metadata = MetaData()

#: Topic Names sort by their UTF-8 bytes in every locale of the database. Ranges and cursors rely on this order.
TopicName = Text().with_variant(Text(collation="C"), "postgresql")

#: One row for each topic that has a retained message or a tombstone (it was cleared or has expired). A tombstone has an
#: empty payload. The payload is the last column, so a read of the other columns does not touch its overflow pages.
retained = Table(
    "retained",
    metadata,
    Column("topic", TopicName, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("levels", Integer, nullable=False),
    Column("qos", SmallInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("stored_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("tombstone", SmallInteger, nullable=False),
    Column("client_id", Text),
    Column("username", Text),
    Column("prefix3", LargeBinary, nullable=False),
    Column("prefix5", LargeBinary, nullable=False),
    Column("properties5", LargeBinary, nullable=False),
    Column("properties_json", Text),
    Column("payload", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

Index(
    "retained_expiry",
    retained.c.expires_at,
    sqlite_where=retained.c.expires_at.is_not(None),
    postgresql_where=retained.c.expires_at.is_not(None),
)
Index(
    "retained_tombstones",
    retained.c.stored_at,
    sqlite_where=retained.c.tombstone == 1,
    postgresql_where=retained.c.tombstone == 1,
)

#: All numbers of topic levels that ``retained`` ever had. A filter with ``+`` and ``#`` is read once for each number.
retained_levels = Table("retained_levels", metadata, Column("levels", Integer, primary_key=True, autoincrement=False))

#: One row for each node that has ever written: a mark that no revision it used exceeds, and its share of the totals.
#: The commits of the node keep both up to date, so a start need not count. A share is negative if a node clears other
#: nodes' messages.
#: ``unsent_revision`` is the highest revision of an operator's change, which may not have been sent to subscribers.
#: ``retained_bytes`` counts topic, properties and payload of each message, and ``holdfast.core.messages.STORED_ENTRY``.
nodes = Table(
    "nodes",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("revision_mark", BigInteger, nullable=False),
    Column("retained_count", BigInteger, nullable=False),
    Column("retained_bytes", BigInteger, nullable=False),
    Column("largest_packet", BigInteger, nullable=False),
    Column("unsent_revision", BigInteger),
)

#: One row for each node that was ever a member of a cluster (:mod:`holdfast.cluster`). A row of its own, beside that of
#: ``nodes``: the writer's transactions lock that one, and a lease is renewed while an import holds it. Each joining
#: raises ``incarnation``; so does whoever takes a dead member's place. ``lease_until`` is of the database's clock.
#: ``state`` is "joining", "member", "draining", "dead" (others have taken over) or "left" (removed by an operator).
cluster_members = Table(
    "cluster_members",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("cluster", Text, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("protocol_min", Integer, nullable=False),
    Column("protocol_max", Integer, nullable=False),
    Column("config_hash", Text, nullable=False),
    Column("address", Text, nullable=False),
)

#: Messages that cross from one member of a cluster to others (:mod:`holdfast.cluster.crossing`). ``number`` is a
#: revision of the ``origin``, and rises with its commits. ``targets`` are the nodes that read the row, as ",2,3,".
#: ``share`` is the shared subscription whose member gets the message. ``revision`` is that of the retained message that
#: this one is, NULL if it is not the retained message of its topic. ``replaces`` is 1 if it takes the place of queued
#: retained messages of its topic.
cluster_messages = Table(
    "cluster_messages",
    metadata,
    Column("origin", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("targets", Text, nullable=False),
    Column("share", TopicName),
    Column("revision", BigInteger),
    Column("topic", TopicName, nullable=False),
    Column("qos", SmallInteger, nullable=False),
    Column("retain", SmallInteger, nullable=False),
    Column("replaces", SmallInteger, nullable=False),
    Column("client_id", Text),
    Column("username", Text),
    Column("expires_at", BigInteger),
    Column("properties5", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)

#: Up to which ``number`` a node has given the messages of an origin to its Sessions; a missing row is 0. The row of a
#: node as its own origin is the highest number that it has committed.
cluster_cursors = Table(
    "cluster_cursors",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("origin", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: What members tell each other through the database. The ``target`` deletes what it has taken. The rows may be lost
#: with a crash of the server, and are not written to its log.
cluster_runs = Table(
    "cluster_runs",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("target", SmallInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
Index("cluster_runs_targets", cluster_runs.c.target, cluster_runs.c.id)

#: The bans of operators that count at all members, as JSON with the fields of the API. ``who_hash`` is the SHA-256 of
#: the name, in hexadecimal digits. ``number`` is another one after each change: the time in microseconds. A broker
#: without ``[cluster]`` keeps its bans in a file.
cluster_bans = Table(
    "cluster_bans",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("who_hash", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("ban_json", Text, nullable=False),
    sqlite_with_rowid=False,
)
#: Up to which place a hook has delivered the changes of retained messages (:mod:`holdfast.hooks`): all changes up to
#: the ``token`` of the log ("" before the first one), and all with a ``revision`` at or below this one. ``node``
#: delivers until ``claimed_until`` (milliseconds since the epoch): each hook runs on one node.
hook_positions = Table(
    "hook_positions",
    metadata,
    Column("hook", Text, primary_key=True),
    Column("token", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("node", SmallInteger, nullable=False),
    Column("claimed_until", BigInteger, nullable=False),
)

#: Totals of the retained messages under each quota, counted the same way and updated in the same transactions as the
#: messages. ``scope`` is a Topic Filter and ``subject`` is ""; or ``scope`` is "" and ``subject`` a Client Identifier.
#: Each scope has a row with the subject "", whose ``counted_to`` is the topic up to which the scope is counted ("":
#: none yet, NULL: all topics).
retained_usage = Table(
    "retained_usage",
    metadata,
    Column("scope", TopicName, primary_key=True),
    Column("subject", TopicName, primary_key=True),
    Column("messages", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("counted_to", TopicName),
    sqlite_with_rowid=False,
)

#: Sessions that outlive their Network Connection. ``id`` is a revision and never used again, so a late write for an
#: ended Session cannot touch a later Session of the same Client. ``expiry_interval`` is in seconds, NULL for never;
#: ``expires_at`` is set while the Client is not connected, and 0 while the Session is being ended. A replay with a
#: ``replay_cut`` of at most ``void_cuts`` may miss messages that the Session's queue has lost. ``owner`` is the node
#: that serves the Session and writes all of its rows. A Client Identifier has one Session that is not being ended.
sessions = Table(
    "sessions",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("client_id", Text, nullable=False),
    Column("username", Text),
    Column("listener", Text, nullable=False),
    Column("expiry_interval", BigInteger),
    Column("expires_at", BigInteger),
    Column("void_cuts", BigInteger),
    Column("owner", SmallInteger),
    sqlite_with_rowid=False,
)
_NOT_ENDING = sessions.c.expires_at.is_(None) | (sessions.c.expires_at != 0)
Index(
    "sessions_clients",
    sessions.c.client_id,
    unique=True,
    sqlite_where=_NOT_ENDING,
    postgresql_where=_NOT_ENDING,
)

#: Sessions that have moved to their ``owner``, which has not loaded them yet (:mod:`holdfast.cluster.moves`). They have
#: the messages of an ``origin`` up to this ``number`` of ``cluster_messages``; up to 0 if the row of an origin is
#: missing.
session_cuts = Table(
    "session_cuts",
    metadata,
    Column("session_id", BigInteger, primary_key=True, autoincrement=False),
    Column("origin", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Subscriptions, by the Topic Filter of the SUBSCRIBE. ``replay_after`` is NULL if the replay is complete; otherwise it
#: is the topic up to which all messages are acknowledged ("" for none yet). Changes with a revision above
#: ``replay_cut`` (NULL: unknown) concern the Client as live messages. ``replay_marker`` is the marker that is due at
#: the end of the replay (NULL: none). ``conflate`` is the interval of conflation in milliseconds (NULL: none).
#: ``replay_info`` is what is told of each replayed message (NULL: nothing). ``replay_since`` is the turn of
#: ``retained_changes`` after which the replay brings changes (NULL: it brings all messages).
session_subscriptions = Table(
    "session_subscriptions",
    metadata,
    Column("session_id", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_filter", TopicName, primary_key=True),
    Column("qos", SmallInteger, nullable=False),
    Column("no_local", SmallInteger, nullable=False),
    Column("retain_as_published", SmallInteger, nullable=False),
    Column("retain_handling", SmallInteger, nullable=False),
    Column("identifier", Integer),
    Column("replay_after", TopicName),
    Column("replay_cut", BigInteger),
    Column("replay_marker", Text),
    Column("conflate", Integer),
    Column("replay_info", Text),
    Column("replay_since", BigInteger),
    sqlite_with_rowid=False,
)
Index(
    "session_subscriptions_since",
    session_subscriptions.c.replay_since,
    sqlite_where=session_subscriptions.c.replay_since.is_not(None),
    postgresql_where=session_subscriptions.c.replay_since.is_not(None),
)

#: Application Messages that deliveries refer to; one row for each, even if several Sessions wait for it.
session_messages = Table(
    "session_messages",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("topic", TopicName, nullable=False),
    Column("qos", SmallInteger, nullable=False),
    Column("retain", SmallInteger, nullable=False),
    Column("client_id", Text),
    Column("username", Text),
    Column("expires_at", BigInteger),
    Column("properties5", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)

#: Deliveries to Clients, in order. A delivery is queued (no Packet Identifier), sent, or ``released`` (PUBREC was
#: received, PUBREL is due; the message is not needed any more).
session_deliveries = Table(
    "session_deliveries",
    metadata,
    Column("session_id", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("message_id", BigInteger),
    Column("qos", SmallInteger, nullable=False),
    Column("retain", SmallInteger, nullable=False),
    Column("identifiers", Text, nullable=False),
    Column("packet_identifier", Integer),
    Column("released", SmallInteger, nullable=False),
    Column("shared_filter", TopicName),
    sqlite_with_rowid=False,
)

#: Packet Identifiers of QoS 2 messages that were received from a Client and are not yet released.
session_received = Table(
    "session_received",
    metadata,
    Column("session_id", BigInteger, primary_key=True, autoincrement=False),
    Column("packet_identifier", Integer, primary_key=True, autoincrement=False),
    Column("received_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Will Messages of connected Clients, and those that wait for their delay (``due_at`` is set). ``delay`` is in seconds.
#: ``node`` is the node of the Client, 0 if only one broker can use the database. ``lost`` is 1 if the Client was lost
#: while the broker ran, ``untold`` 1 if the broker chose the Client Identifier and could not tell it.
wills = Table(
    "wills",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("client_id", Text, primary_key=True),
    Column("username", Text),
    Column("topic", TopicName, nullable=False),
    Column("qos", SmallInteger, nullable=False),
    Column("retain", SmallInteger, nullable=False),
    Column("delay", BigInteger, nullable=False),
    Column("due_at", BigInteger),
    Column("properties5", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("listener", Text, nullable=False),
    Column("lost", SmallInteger, nullable=False),
    Column("untold", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Retained messages that are cleared when their publisher's Session (``term`` "session") or connection ("connected")
#: ends: the one with this ``revision``. ``node`` is the node of the Client, 0 if only one broker can use the database.
#: ``session`` is the ``id`` of the Session, 0 for one that ends with the process.
retained_leases = Table(
    "retained_leases",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("topic", TopicName, primary_key=True),
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("client_id", Text, nullable=False),
    Column("username", Text),
    Column("term", Text, nullable=False),
    Column("session", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Every change of a retained message while ``retainer.history.enable`` is set, in the order of commits. ``op`` is
#: "set", "clear" or "expire"; ``origin`` is a :class:`holdfast.core.messages.ChangeOrigin`. ``changed_at`` never
#: decreases from one ``seq`` to the next, even if the clock is set back, so a time corresponds to one position in the
#: order. ``operator`` is the caller of the API who made the change; no permission depends on it.
retained_history = Table(
    "retained_history",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("topic", TopicName, nullable=False),
    Column("op", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("qos", SmallInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revision", BigInteger, nullable=False),
    Column("client_id", Text),
    Column("username", Text),
    Column("properties5", LargeBinary, nullable=False),
    Column("properties_json", Text),
    Column("payload", LargeBinary, nullable=False),
    Column("operator", Text),
)
Index("retained_history_topics", retained_history.c.topic, retained_history.c.seq)

#: The periods in which every change was recorded. Between two periods, changes are missing. The entries of a period
#: have a ``seq`` above its ``first_seq`` and below the ``first_seq`` of the next period. The period covers every moment
#: from ``complete_since`` (NULL while the baseline is written, so far up to the topic ``baseline_to``) to ``ended_at``
#: (NULL for the present period). Of the entries up to ``pruned_to``, only the newest of each topic is kept. ``rules``
#: is JSON: which topics are recorded, and which are kept for a time of their own; NULL is every topic, for the general
#: time. ``depths`` is JSON: what ``pruned_to`` and ``complete_since`` are for each of these times
#: (:mod:`holdfast.changes.entries`).
retained_history_periods = Table(
    "retained_history_periods",
    metadata,
    Column("first_seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("complete_since", BigInteger),
    Column("ended_at", BigInteger),
    Column("baseline_to", TopicName, nullable=False),
    Column("pruned_to", BigInteger, nullable=False),
    Column("rules", Text),
    Column("depths", Text),
)

#: One row. A transaction that writes to the history updates it first and so locks it: the nodes of a shared database
#: write one after the other, and ``seq`` is in the order of their commits. ``bytes`` is the size of all entries,
#: compared with ``retainer.history.max_bytes``. Once an archive has set ``archived_seq``, no entry above it is pruned.
#: ``rules`` is a digest of the rules of the present period: with its lock, each writer reads whether they are new.
retained_history_state = Table(
    "retained_history_state",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("archived_seq", BigInteger),
    Column("rules", Text),
)

#: Nodes of a shared database that last opened it with the history disabled. While there is one, no period begins.
retained_history_absent = Table(
    "retained_history_absent", metadata, Column("node", SmallInteger, primary_key=True, autoincrement=False)
)

#: Application Messages without RETAIN that a policy records (``record = "all"``), in the order of commits and without
#: gaps: pruning deletes the first ones. ``received_at`` never decreases from one ``seq`` to the next.
telemetry = Table(
    "telemetry",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("topic", TopicName, nullable=False),
    Column("qos", SmallInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("client_id", Text),
    Column("username", Text),
    Column("properties5", LargeBinary, nullable=False),
    Column("properties_json", Text),
    Column("payload", LargeBinary, nullable=False),
)
Index("telemetry_topics", telemetry.c.topic, telemetry.c.seq)

#: One row, which a transaction that writes to ``telemetry`` updates first and so locks. ``last_seq`` and ``last_at``
#: are the position and the time of the last message, pruned or not. ``bytes`` is the size of all messages, compared
#: with ``retainer.telemetry.max_bytes``.
telemetry_state = Table(
    "telemetry_state",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)

#: Imports from a staging area, by the names of their jobs. ``state`` is "merging" or "done", ``merge`` is the rule. All
#: staged topics up to ``position`` are merged; each transaction that merges rows also sets ``position``. ``counts`` is
#: a JSON object with the number of rows for each result.
pipeline_jobs = Table(
    "pipeline_jobs",
    metadata,
    Column("job", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("merge", Text, nullable=False),
    Column("position", TopicName, nullable=False),
    Column("counts", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Users who log in with a password. ``groups_json`` is a JSON array of names.
users = Table(
    "users",
    metadata,
    Column("username", TopicName, primary_key=True),
    Column("password_hash", Text, nullable=False),
    Column("groups_json", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: The rules of what clients may do, in the order of ``position``. A ``number`` is never used again. ``rule_json`` is a
#: JSON object with the keys of a table [[rule]] in a rule file.
authorization_rules = Table(
    "authorization_rules",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("rule_json", Text, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: One row. A transaction that changes users or rules raises the version of what it changes, and so locks it. Nodes
#: learn of each other's changes by the versions. A ``rules_version`` of -1 says that rules were lost with a damaged
#: file.
access_state = Table(
    "access_state",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("users_version", BigInteger, nullable=False),
    Column("rules_version", BigInteger, nullable=False),
    Column("last_number", BigInteger, nullable=False),
)

#: For each node that has surveyed the publishers of all retained messages and has found none to withhold: all messages
#: up to ``revision`` were judged. ``fingerprint`` stands for the rules, and for all else that the verdicts depend on.
source_surveys = Table(
    "source_surveys",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("fingerprint", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
)

#: The API keys of operators' programs. ``secret_hash`` is the SHA-256 of the key and its secret, in hexadecimal digits.
api_keys = Table(
    "api_keys",
    metadata,
    Column("key_name", TopicName, primary_key=True),
    Column("api_key", Text, nullable=False),
    Column("secret_hash", Text, nullable=False),
    Column("scopes_json", Text, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    sqlite_with_rowid=False,
)

#: Which topics changed, in the order in which transactions ended (:mod:`holdfast.changes.log`). ``expired`` is
#: 1 if the message expired.
retained_changes = Table(
    "retained_changes",
    metadata,
    Column("turn", BigInteger, primary_key=True, autoincrement=False),
    Column("topic", TopicName, primary_key=True),
    Column("changed_at", BigInteger, nullable=False),
    Column("expired", SmallInteger),
    sqlite_with_rowid=False,
)

#: The starts of nodes: tokens are of one of them. ``epoch`` is empty for a node that does not record changes. With
#: ``gathers`` 1, the newest changes of a node on Postgres may be in its memory only.
retained_changes_epochs = Table(
    "retained_changes_epochs",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("started", BigInteger, nullable=False),
    Column("epoch", Text, nullable=False),
    Column("history", Text, nullable=False),
    Column("gathers", SmallInteger),
)

#: The row 1 is the mark of what is kept: every change after this turn, from this time on. A row with the negative
#: number of a node says when another one took it for killed.
retained_changes_kept = Table(
    "retained_changes_kept",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("turn", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
)

#: The views are the stable interface for plain SQL. They are not among the tables, because the schema comparison knows
#: tables only.
views = MetaData()

#: The present retained messages, without tombstones and expired messages.
retained_messages = Table(
    "retained_messages",
    views,
    Column("topic", TopicName),
    Column("payload", LargeBinary),
    Column("qos", SmallInteger),
    Column("client_id", Text),
    Column("username", Text),
    Column("stored_at", BigInteger),
    Column("expires_at", BigInteger),
    Column("size", BigInteger),
    Column("revision", BigInteger),
    Column("properties_json", Text),
)

#: The history, entry by entry.
retained_history_events = Table(
    "retained_history_events",
    views,
    Column("seq", BigInteger),
    Column("op", Text),
    Column("topic", TopicName),
    Column("payload", LargeBinary),
    Column("qos", SmallInteger),
    Column("client_id", Text),
    Column("username", Text),
    Column("origin", Text),
    Column("changed_at", BigInteger),
    Column("expires_at", BigInteger),
    Column("size", BigInteger),
    Column("revision", BigInteger),
    Column("properties_json", Text),
    Column("operator", Text),
)

#: The telemetry, message by message.
telemetry_messages = Table(
    "telemetry_messages",
    views,
    Column("seq", BigInteger),
    Column("topic", TopicName),
    Column("payload", LargeBinary),
    Column("qos", SmallInteger),
    Column("client_id", Text),
    Column("username", Text),
    Column("received_at", BigInteger),
    Column("expires_at", BigInteger),
    Column("size", BigInteger),
    Column("properties_json", Text),
)

_DIALECTS = {"sqlite": sqlite.dialect, "postgresql": postgresql.dialect}

#: the present time in milliseconds since the epoch
_NOW = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}

#: what each view reads
_SOURCES = {
    "retained_messages": "retained\nWHERE tombstone = 0 AND (expires_at IS NULL OR expires_at > {now})",
    "retained_history_events": "retained_history",
    "telemetry_messages": "telemetry",
}

#: the rows of a new database
_FIRST_ROWS = (
    "INSERT INTO nodes VALUES (0, 0, 0, 0, 0, NULL)",
    "INSERT INTO retained_history_state VALUES (1, 0, 0, 0, NULL, NULL)",
    "INSERT INTO access_state VALUES (1, 0, 0, 0)",
    "INSERT INTO telemetry_state VALUES (1, 0, 0, 0)",
)

#: what only Postgres is told of the tables
_POSTGRES_ONLY = ("ALTER TABLE cluster_runs SET UNLOGGED",)


def statements(dialect: str) -> list[str]:
    """Return the statements that build the schema in an empty database: ``dialect`` is "sqlite" or "postgresql"."""

    def text(element: DDLElement) -> str:
        made = str(element.compile(dialect=_DIALECTS[dialect]())).replace("\t", "    ")
        return "\n".join(line.rstrip() for line in made.splitlines() if line.strip()).replace(
            ")\n WITHOUT", ") WITHOUT"
        )

    made = []
    for table in metadata.tables.values():
        made.append(text(CreateTable(table)))
        made += [text(CreateIndex(index)) for index in sorted(table.indexes, key=lambda index: str(index.name))]
    for view in views.tables.values():
        source = _SOURCES[view.name].format(now=_NOW[dialect])
        columns = fill(", ".join(column.name for column in view.columns), 110)
        made.append(f"CREATE VIEW {view.name} AS\nSELECT {columns}\nFROM {source}")
    return [*made, *(_POSTGRES_ONLY if dialect == "postgresql" else ()), *_FIRST_ROWS]
