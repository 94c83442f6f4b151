"""The database's tables, as SQLAlchemy describes them. Imports SQLAlchemy only, so that other programs can use it.

A row of ``retained`` is kept ready for the wire. With ``||`` for concatenation, the PUBLISH packet with QoS 0 and
RETAIN 1 is ``prefix3 || topic || payload`` for MQTT 3.1 and 3.1.1 and ``prefix5 || topic || properties5 || payload``
for MQTT 5.0; a prefix is the fixed header and the topic's two length bytes. Nothing is stored twice. All points in
time are milliseconds since the epoch.
"""

from __future__ import annotations

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

metadata = MetaData()

#: Topic Names sort by their UTF-8 bytes, whatever the database's locale: ranges and cursors rely on it.
TopicName = Text().with_variant(Text(collation="C"), "postgresql")

#: One row per topic ever retained and not yet purged. A tombstone (a cleared or expired topic) has an empty payload.
#: The payload comes last: reading the columns before it does not touch the pages it overflows to.
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

#: The numbers of topic levels ever present in ``retained``: a filter with ``+`` and ``#`` asks for each of them.
retained_levels = Table("retained_levels", metadata, Column("levels", Integer, primary_key=True, autoincrement=False))

#: A row for each node that has written here, written in each of its commits: the highest revision it used, and its
#: share of the running totals, which spare counting at start (negative for a node that clears what others have set).
nodes = Table(
    "nodes",
    metadata,
    Column("node", SmallInteger, primary_key=True, autoincrement=False),
    Column("revision_mark", BigInteger, nullable=False),
    Column("retained_count", BigInteger, nullable=False),
    Column("retained_bytes", BigInteger, nullable=False),
    Column("largest_packet", BigInteger, nullable=False),
)

#: How much is retained of what has a quota, kept in the transactions that change it. ``scope`` is a Topic Filter, or ""
#: for Clients, whose identifiers are the ``subject`` ("" otherwise). The row of each scope without a subject tells how
#: far it is counted (``counted_to``): up to this topic ("" for not at all), NULL for all of it.
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

#: Sessions that outlive their Network Connection. ``id`` is a revision, never used again: what is written for an ended
#: Session can touch no later one of the same Client. ``expiry_interval`` is in seconds, NULL for never; ``expires_at``
#: is set while the Client is away.
sessions = Table(
    "sessions",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("client_id", Text, nullable=False),
    Column("username", Text),
    Column("listener", Text, nullable=False),
    Column("expiry_interval", BigInteger),
    Column("expires_at", BigInteger),
    sqlite_with_rowid=False,
)

#: Subscriptions, by Topic Filter as the Client wrote it. ``replay_after`` is NULL when its replay is complete, else the
#: last topic up to which everything was acknowledged ("" for none yet).
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
    sqlite_with_rowid=False,
)

#: Application Messages that deliveries refer to, each kept once however many Sessions wait for it.
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

#: What is on its way to a Client, in order: queued (no Packet Identifier), sent, or ``released`` (PUBREC came, PUBREL
#: is due; the message is not needed any more).
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

#: QoS 2 messages received from a Client and not yet released.
session_received = Table(
    "session_received",
    metadata,
    Column("session_id", BigInteger, primary_key=True, autoincrement=False),
    Column("packet_identifier", Integer, primary_key=True, autoincrement=False),
    Column("received_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

#: Will Messages of connected Clients, and those waiting for their delay (``due_at`` set). ``delay`` is in seconds.
#: ``node`` is whose Client it is: 0 where the database has but one broker.
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
    sqlite_with_rowid=False,
)

#: Every change of a retained message, while ``retainer.history.enable`` is set, in the order of commits. ``op`` is
#: "set", "clear" or "expire"; ``origin`` is a :class:`holdfast.messages.ChangeOrigin`. ``changed_at`` never goes back
#: from one ``seq`` to the next, whatever the clock does, so that a moment is a place in the order.
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
)
Index("retained_history_topics", retained_history.c.topic, retained_history.c.seq)

#: The periods in which every change was recorded; between two of them, changes are missing. A period's entries have a
#: ``seq`` above its ``first_seq`` and below the next one's. They answer for every moment from ``complete_since`` (NULL
#: while the baseline is being written, up to the topic ``baseline_to``) until ``ended_at`` (NULL for the present one).
#: Up to the entry ``pruned_to``, only the newest of each topic is left.
retained_history_periods = Table(
    "retained_history_periods",
    metadata,
    Column("first_seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("complete_since", BigInteger),
    Column("ended_at", BigInteger),
    Column("baseline_to", TopicName, nullable=False),
    Column("pruned_to", BigInteger, nullable=False),
)

#: One row, which whoever writes to the history updates first: nodes that share a database take turns, and ``seq`` is in
#: the order of their commits. ``bytes`` is what the entries count for towards ``retainer.history.max_bytes``; nothing
#: above ``archived_seq`` is pruned once an archive has set it.
retained_history_state = Table(
    "retained_history_state",
    metadata,
    Column("id", SmallInteger, CheckConstraint("id = 1", name="one_row"), primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("archived_seq", BigInteger),
)

#: Nodes of a shared database that last opened it without recording: no period begins while there is one.
retained_history_absent = Table(
    "retained_history_absent", metadata, Column("node", SmallInteger, primary_key=True, autoincrement=False)
)

#: Imports from a staging area, by the names of their jobs. ``state`` is "merging" or "done", ``merge`` the rule. All
#: staged topics up to ``position`` have been dealt with, in the transactions that have set it; ``counts`` is a JSON
#: object that says what became of how many.
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

#: Views are the stable surface for plain SQL; they live apart because the schema comparison knows tables only.
views = MetaData()

#: What is retained now: no tombstones, nothing expired.
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
)
