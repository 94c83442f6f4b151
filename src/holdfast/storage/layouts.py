"""The layouts of the tables, made by ``make schema`` from :mod:`holdfast.storage.tables`: do not edit.

The broker writes and reads its tables with plain SQL and needs only these names. The full description needs SQLAlchemy,
which costs a fifth of a second and 20 MiB, so a start does not load it.
"""

from __future__ import annotations

from holdfast.storage.layout import Kind, Layout

TEXT, BLOB, SMALL, INTEGER, BIG = Kind

retained = Layout(
    "retained",
    1,
    topic=TEXT,
    revision=BIG,
    levels=INTEGER,
    qos=SMALL,
    size=BIG,
    stored_at=BIG,
    expires_at=BIG,
    tombstone=SMALL,
    client_id=TEXT,
    username=TEXT,
    prefix3=BLOB,
    prefix5=BLOB,
    properties5=BLOB,
    properties_json=TEXT,
    payload=BLOB,
)
retained_levels = Layout(
    "retained_levels",
    1,
    levels=INTEGER,
)
nodes = Layout(
    "nodes",
    1,
    node=SMALL,
    revision_mark=BIG,
    retained_count=BIG,
    retained_bytes=BIG,
    largest_packet=BIG,
    unsent_revision=BIG,
)
cluster_members = Layout(
    "cluster_members",
    1,
    node=SMALL,
    cluster=TEXT,
    incarnation=BIG,
    lease_until=BIG,
    state=TEXT,
    protocol_min=INTEGER,
    protocol_max=INTEGER,
    config_hash=TEXT,
    address=TEXT,
)
cluster_messages = Layout(
    "cluster_messages",
    2,
    origin=SMALL,
    number=BIG,
    targets=TEXT,
    share=TEXT,
    revision=BIG,
    topic=TEXT,
    qos=SMALL,
    retain=SMALL,
    replaces=SMALL,
    client_id=TEXT,
    username=TEXT,
    expires_at=BIG,
    properties5=BLOB,
    payload=BLOB,
)
cluster_cursors = Layout(
    "cluster_cursors",
    2,
    node=SMALL,
    origin=SMALL,
    number=BIG,
)
cluster_runs = Layout(
    "cluster_runs",
    1,
    id=BIG,
    target=SMALL,
    data=BLOB,
)
cluster_bans = Layout(
    "cluster_bans",
    2,
    kind=TEXT,
    who_hash=TEXT,
    number=BIG,
    ban_json=TEXT,
)
hook_positions = Layout(
    "hook_positions",
    1,
    hook=TEXT,
    token=TEXT,
    revision=BIG,
    node=SMALL,
    claimed_until=BIG,
)
retained_usage = Layout(
    "retained_usage",
    2,
    scope=TEXT,
    subject=TEXT,
    messages=BIG,
    bytes=BIG,
    counted_to=TEXT,
)
sessions = Layout(
    "sessions",
    1,
    id=BIG,
    client_id=TEXT,
    username=TEXT,
    listener=TEXT,
    expiry_interval=BIG,
    expires_at=BIG,
    void_cuts=BIG,
    owner=SMALL,
)
session_cuts = Layout(
    "session_cuts",
    2,
    session_id=BIG,
    origin=SMALL,
    number=BIG,
)
session_subscriptions = Layout(
    "session_subscriptions",
    2,
    session_id=BIG,
    topic_filter=TEXT,
    qos=SMALL,
    no_local=SMALL,
    retain_as_published=SMALL,
    retain_handling=SMALL,
    identifier=INTEGER,
    replay_after=TEXT,
    replay_cut=BIG,
    replay_marker=TEXT,
    conflate=INTEGER,
    replay_info=TEXT,
    replay_since=BIG,
)
session_messages = Layout(
    "session_messages",
    1,
    id=BIG,
    topic=TEXT,
    qos=SMALL,
    retain=SMALL,
    client_id=TEXT,
    username=TEXT,
    expires_at=BIG,
    properties5=BLOB,
    payload=BLOB,
)
session_deliveries = Layout(
    "session_deliveries",
    2,
    session_id=BIG,
    seq=BIG,
    message_id=BIG,
    qos=SMALL,
    retain=SMALL,
    identifiers=TEXT,
    packet_identifier=INTEGER,
    released=SMALL,
    shared_filter=TEXT,
)
session_received = Layout(
    "session_received",
    2,
    session_id=BIG,
    packet_identifier=INTEGER,
    received_at=BIG,
)
wills = Layout(
    "wills",
    2,
    node=SMALL,
    client_id=TEXT,
    username=TEXT,
    topic=TEXT,
    qos=SMALL,
    retain=SMALL,
    delay=BIG,
    due_at=BIG,
    properties5=BLOB,
    payload=BLOB,
    listener=TEXT,
    lost=SMALL,
    untold=SMALL,
)
retained_leases = Layout(
    "retained_leases",
    3,
    node=SMALL,
    topic=TEXT,
    revision=BIG,
    client_id=TEXT,
    username=TEXT,
    term=TEXT,
    session=BIG,
)
retained_history = Layout(
    "retained_history",
    1,
    seq=BIG,
    topic=TEXT,
    op=TEXT,
    origin=TEXT,
    qos=SMALL,
    size=BIG,
    changed_at=BIG,
    expires_at=BIG,
    revision=BIG,
    client_id=TEXT,
    username=TEXT,
    properties5=BLOB,
    properties_json=TEXT,
    payload=BLOB,
    operator=TEXT,
)
retained_history_periods = Layout(
    "retained_history_periods",
    1,
    first_seq=BIG,
    complete_since=BIG,
    ended_at=BIG,
    baseline_to=TEXT,
    pruned_to=BIG,
    rules=TEXT,
    depths=TEXT,
)
retained_history_state = Layout(
    "retained_history_state",
    1,
    id=SMALL,
    last_seq=BIG,
    last_at=BIG,
    bytes=BIG,
    archived_seq=BIG,
    rules=TEXT,
)
retained_history_absent = Layout(
    "retained_history_absent",
    1,
    node=SMALL,
)
telemetry = Layout(
    "telemetry",
    1,
    seq=BIG,
    topic=TEXT,
    qos=SMALL,
    size=BIG,
    received_at=BIG,
    expires_at=BIG,
    client_id=TEXT,
    username=TEXT,
    properties5=BLOB,
    properties_json=TEXT,
    payload=BLOB,
)
telemetry_state = Layout(
    "telemetry_state",
    1,
    id=SMALL,
    last_seq=BIG,
    last_at=BIG,
    bytes=BIG,
)
pipeline_jobs = Layout(
    "pipeline_jobs",
    1,
    job=TEXT,
    state=TEXT,
    merge=TEXT,
    position=TEXT,
    counts=TEXT,
    started_at=BIG,
    changed_at=BIG,
)
users = Layout(
    "users",
    1,
    username=TEXT,
    password_hash=TEXT,
    groups_json=TEXT,
    created_at=BIG,
    changed_at=BIG,
)
authorization_rules = Layout(
    "authorization_rules",
    1,
    number=BIG,
    position=BIG,
    rule_json=TEXT,
    changed_at=BIG,
)
access_state = Layout(
    "access_state",
    1,
    id=SMALL,
    users_version=BIG,
    rules_version=BIG,
    last_number=BIG,
)
source_surveys = Layout(
    "source_surveys",
    1,
    node=SMALL,
    fingerprint=TEXT,
    revision=BIG,
)
api_keys = Layout(
    "api_keys",
    1,
    key_name=TEXT,
    api_key=TEXT,
    secret_hash=TEXT,
    scopes_json=TEXT,
    created_by=TEXT,
    created_at=BIG,
    expires_at=BIG,
)
retained_changes = Layout(
    "retained_changes",
    2,
    turn=BIG,
    topic=TEXT,
    changed_at=BIG,
    expired=SMALL,
)
retained_changes_epochs = Layout(
    "retained_changes_epochs",
    2,
    node=SMALL,
    number=BIG,
    started=BIG,
    epoch=TEXT,
    history=TEXT,
    gathers=SMALL,
)
retained_changes_kept = Layout(
    "retained_changes_kept",
    1,
    id=SMALL,
    turn=BIG,
    changed_at=BIG,
)

#: all tables
TABLES = (
    retained,
    retained_levels,
    nodes,
    cluster_members,
    cluster_messages,
    cluster_cursors,
    cluster_runs,
    cluster_bans,
    hook_positions,
    retained_usage,
    sessions,
    session_cuts,
    session_subscriptions,
    session_messages,
    session_deliveries,
    session_received,
    wills,
    retained_leases,
    retained_history,
    retained_history_periods,
    retained_history_state,
    retained_history_absent,
    telemetry,
    telemetry_state,
    pipeline_jobs,
    users,
    authorization_rules,
    access_state,
    source_surveys,
    api_keys,
    retained_changes,
    retained_changes_epochs,
    retained_changes_kept,
)

#: the names of all views
VIEWS = (
    "retained_messages",
    "retained_history_events",
    "telemetry_messages",
)
