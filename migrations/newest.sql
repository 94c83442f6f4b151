-- Made by `make schema` from the tables: do not edit.
CREATE TABLE retained (
    topic TEXT NOT NULL,
    revision BIGINT NOT NULL,
    levels INTEGER NOT NULL,
    qos SMALLINT NOT NULL,
    size BIGINT NOT NULL,
    stored_at BIGINT NOT NULL,
    expires_at BIGINT,
    tombstone SMALLINT NOT NULL,
    client_id TEXT,
    username TEXT,
    prefix3 BLOB NOT NULL,
    prefix5 BLOB NOT NULL,
    properties5 BLOB NOT NULL,
    properties_json TEXT,
    payload BLOB NOT NULL,
    PRIMARY KEY (topic)
) WITHOUT ROWID;
CREATE INDEX retained_expiry ON retained (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX retained_tombstones ON retained (stored_at) WHERE tombstone = 1;
CREATE TABLE retained_levels (
    levels INTEGER NOT NULL,
    PRIMARY KEY (levels)
);
CREATE TABLE nodes (
    node SMALLINT NOT NULL,
    revision_mark BIGINT NOT NULL,
    retained_count BIGINT NOT NULL,
    retained_bytes BIGINT NOT NULL,
    largest_packet BIGINT NOT NULL,
    unsent_revision BIGINT,
    PRIMARY KEY (node)
);
CREATE TABLE cluster_members (
    node SMALLINT NOT NULL,
    cluster TEXT NOT NULL,
    incarnation BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    state TEXT NOT NULL,
    protocol_min INTEGER NOT NULL,
    protocol_max INTEGER NOT NULL,
    config_hash TEXT NOT NULL,
    address TEXT NOT NULL,
    PRIMARY KEY (node)
);
CREATE TABLE cluster_messages (
    origin SMALLINT NOT NULL,
    number BIGINT NOT NULL,
    targets TEXT NOT NULL,
    share TEXT,
    revision BIGINT,
    topic TEXT NOT NULL,
    qos SMALLINT NOT NULL,
    retain SMALLINT NOT NULL,
    replaces SMALLINT NOT NULL,
    client_id TEXT,
    username TEXT,
    expires_at BIGINT,
    properties5 BLOB NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (origin, number)
);
CREATE TABLE cluster_cursors (
    node SMALLINT NOT NULL,
    origin SMALLINT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (node, origin)
) WITHOUT ROWID;
CREATE TABLE cluster_runs (
    id INTEGER NOT NULL,
    target SMALLINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX cluster_runs_targets ON cluster_runs (target, id);
CREATE TABLE cluster_bans (
    kind TEXT NOT NULL,
    who_hash TEXT NOT NULL,
    number BIGINT NOT NULL,
    ban_json TEXT NOT NULL,
    PRIMARY KEY (kind, who_hash)
) WITHOUT ROWID;
CREATE TABLE hook_positions (
    hook TEXT NOT NULL,
    token TEXT NOT NULL,
    revision BIGINT NOT NULL,
    node SMALLINT NOT NULL,
    claimed_until BIGINT NOT NULL,
    PRIMARY KEY (hook)
);
CREATE TABLE retained_usage (
    scope TEXT NOT NULL,
    subject TEXT NOT NULL,
    messages BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    counted_to TEXT,
    PRIMARY KEY (scope, subject)
) WITHOUT ROWID;
CREATE TABLE sessions (
    id BIGINT NOT NULL,
    client_id TEXT NOT NULL,
    username TEXT,
    listener TEXT NOT NULL,
    expiry_interval BIGINT,
    expires_at BIGINT,
    void_cuts BIGINT,
    owner SMALLINT,
    PRIMARY KEY (id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX sessions_clients ON sessions (client_id) WHERE expires_at IS NULL OR expires_at != 0;
CREATE TABLE session_cuts (
    session_id BIGINT NOT NULL,
    origin SMALLINT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (session_id, origin)
) WITHOUT ROWID;
CREATE TABLE session_subscriptions (
    session_id BIGINT NOT NULL,
    topic_filter TEXT NOT NULL,
    qos SMALLINT NOT NULL,
    no_local SMALLINT NOT NULL,
    retain_as_published SMALLINT NOT NULL,
    retain_handling SMALLINT NOT NULL,
    identifier INTEGER,
    replay_after TEXT,
    replay_cut BIGINT,
    replay_marker TEXT,
    conflate INTEGER,
    replay_info TEXT,
    replay_since BIGINT,
    PRIMARY KEY (session_id, topic_filter)
) WITHOUT ROWID;
CREATE INDEX session_subscriptions_since ON session_subscriptions (replay_since) WHERE replay_since IS NOT NULL;
CREATE TABLE session_messages (
    id INTEGER NOT NULL,
    topic TEXT NOT NULL,
    qos SMALLINT NOT NULL,
    retain SMALLINT NOT NULL,
    client_id TEXT,
    username TEXT,
    expires_at BIGINT,
    properties5 BLOB NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE session_deliveries (
    session_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    message_id BIGINT,
    qos SMALLINT NOT NULL,
    retain SMALLINT NOT NULL,
    identifiers TEXT NOT NULL,
    packet_identifier INTEGER,
    released SMALLINT NOT NULL,
    shared_filter TEXT,
    PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;
CREATE TABLE session_received (
    session_id BIGINT NOT NULL,
    packet_identifier INTEGER NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (session_id, packet_identifier)
) WITHOUT ROWID;
CREATE TABLE wills (
    node SMALLINT NOT NULL,
    client_id TEXT NOT NULL,
    username TEXT,
    topic TEXT NOT NULL,
    qos SMALLINT NOT NULL,
    retain SMALLINT NOT NULL,
    delay BIGINT NOT NULL,
    due_at BIGINT,
    properties5 BLOB NOT NULL,
    payload BLOB NOT NULL,
    listener TEXT NOT NULL,
    lost SMALLINT NOT NULL,
    untold SMALLINT NOT NULL,
    PRIMARY KEY (node, client_id)
) WITHOUT ROWID;
CREATE TABLE retained_leases (
    node SMALLINT NOT NULL,
    topic TEXT NOT NULL,
    revision BIGINT NOT NULL,
    client_id TEXT NOT NULL,
    username TEXT,
    term TEXT NOT NULL,
    session BIGINT NOT NULL,
    PRIMARY KEY (node, topic, revision)
) WITHOUT ROWID;
CREATE TABLE retained_history (
    seq INTEGER NOT NULL,
    topic TEXT NOT NULL,
    op TEXT NOT NULL,
    origin TEXT NOT NULL,
    qos SMALLINT NOT NULL,
    size BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    expires_at BIGINT,
    revision BIGINT NOT NULL,
    client_id TEXT,
    username TEXT,
    properties5 BLOB NOT NULL,
    properties_json TEXT,
    payload BLOB NOT NULL,
    operator TEXT,
    PRIMARY KEY (seq)
);
CREATE INDEX retained_history_topics ON retained_history (topic, seq);
CREATE TABLE retained_history_periods (
    first_seq INTEGER NOT NULL,
    complete_since BIGINT,
    ended_at BIGINT,
    baseline_to TEXT NOT NULL,
    pruned_to BIGINT NOT NULL,
    rules TEXT,
    depths TEXT,
    PRIMARY KEY (first_seq)
);
CREATE TABLE retained_history_state (
    id SMALLINT NOT NULL CONSTRAINT one_row CHECK (id = 1),
    last_seq BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    archived_seq BIGINT,
    rules TEXT,
    PRIMARY KEY (id)
);
CREATE TABLE retained_history_absent (
    node SMALLINT NOT NULL,
    PRIMARY KEY (node)
);
CREATE TABLE telemetry (
    seq INTEGER NOT NULL,
    topic TEXT NOT NULL,
    qos SMALLINT NOT NULL,
    size BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    expires_at BIGINT,
    client_id TEXT,
    username TEXT,
    properties5 BLOB NOT NULL,
    properties_json TEXT,
    payload BLOB NOT NULL,
    PRIMARY KEY (seq)
);
CREATE INDEX telemetry_topics ON telemetry (topic, seq);
CREATE TABLE telemetry_state (
    id SMALLINT NOT NULL CONSTRAINT one_row CHECK (id = 1),
    last_seq BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE pipeline_jobs (
    job TEXT NOT NULL,
    state TEXT NOT NULL,
    merge TEXT NOT NULL,
    position TEXT NOT NULL,
    counts TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (job)
) WITHOUT ROWID;
CREATE TABLE users (
    username TEXT NOT NULL,
    password_hash TEXT NOT NULL,
    groups_json TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (username)
) WITHOUT ROWID;
CREATE TABLE authorization_rules (
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    rule_json TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (number)
) WITHOUT ROWID;
CREATE TABLE access_state (
    id SMALLINT NOT NULL CONSTRAINT one_row CHECK (id = 1),
    users_version BIGINT NOT NULL,
    rules_version BIGINT NOT NULL,
    last_number BIGINT NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE source_surveys (
    node SMALLINT NOT NULL,
    fingerprint TEXT NOT NULL,
    revision BIGINT NOT NULL,
    PRIMARY KEY (node)
);
CREATE TABLE api_keys (
    key_name TEXT NOT NULL,
    api_key TEXT NOT NULL,
    secret_hash TEXT NOT NULL,
    scopes_json TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (key_name)
) WITHOUT ROWID;
CREATE TABLE retained_changes (
    turn BIGINT NOT NULL,
    topic TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    expired SMALLINT,
    PRIMARY KEY (turn, topic)
) WITHOUT ROWID;
CREATE TABLE retained_changes_epochs (
    node SMALLINT NOT NULL,
    number BIGINT NOT NULL,
    started BIGINT NOT NULL,
    epoch TEXT NOT NULL,
    history TEXT NOT NULL,
    gathers SMALLINT,
    PRIMARY KEY (node, number)
);
CREATE TABLE retained_changes_kept (
    id SMALLINT NOT NULL,
    turn BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (id)
);
CREATE VIEW retained_messages AS
SELECT topic, payload, qos, client_id, username, stored_at, expires_at, size, revision, properties_json
FROM retained
WHERE tombstone = 0 AND (expires_at IS NULL OR expires_at > CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER));
CREATE VIEW retained_history_events AS
SELECT seq, op, topic, payload, qos, client_id, username, origin, changed_at, expires_at, size, revision,
properties_json, operator
FROM retained_history;
CREATE VIEW telemetry_messages AS
SELECT seq, topic, payload, qos, client_id, username, received_at, expires_at, size, properties_json
FROM telemetry;
INSERT INTO nodes VALUES (0, 0, 0, 0, 0, NULL);
INSERT INTO retained_history_state VALUES (1, 0, 0, 0, NULL, NULL);
INSERT INTO access_state VALUES (1, 0, 0, 0);
INSERT INTO telemetry_state VALUES (1, 0, 0, 0)
