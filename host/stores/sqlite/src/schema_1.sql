-- Leadership and ownership.
CREATE TABLE besom_fence (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    term INTEGER NOT NULL,
    token_hash BLOB NOT NULL,
    node TEXT NOT NULL,
    raised_at INTEGER NOT NULL
) STRICT;

-- Every raise of the fence.
CREATE TABLE besom_term (
    term INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    raised_at INTEGER NOT NULL
) STRICT;

CREATE TABLE besom_partition (
    id INTEGER PRIMARY KEY,
    owner TEXT,
    owner_epoch INTEGER NOT NULL,
    ring_term INTEGER NOT NULL,            -- the ring by which it was claimed
    ring_revision INTEGER NOT NULL
) STRICT;

CREATE TABLE besom_lease (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    node TEXT NOT NULL,
    hostname TEXT NOT NULL,
    term INTEGER NOT NULL,
    token_hash BLOB NOT NULL,
    elected_at INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,           -- microseconds since that boot; 0: given up
    file_locked INTEGER NOT NULL           -- whether the holder also holds the lock file
) STRICT;

CREATE TABLE besom_node (
    node TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    config_digest TEXT NOT NULL,
    missing TEXT NOT NULL,                 -- JSON: what it cannot reach
    hostname TEXT NOT NULL DEFAULT '',
    address TEXT NOT NULL DEFAULT '',
    weight INTEGER NOT NULL DEFAULT 0,
    report TEXT NOT NULL DEFAULT ''        -- JSON; empty: none
) STRICT, WITHOUT ROWID;

-- Numbers that are never used twice, for timers, retries, dead letters, history, messages.
CREATE TABLE besom_sequence (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    next INTEGER NOT NULL
) STRICT;
INSERT INTO besom_sequence VALUES (1, 1);

-- Tasks, slots, runs, cursors, commands.
CREATE TABLE besom_task (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    schedule TEXT,                         -- NULL: only the name is known
    last_slot INTEGER,
    paused_by TEXT,
    paused_reason TEXT,
    paused_since INTEGER,
    tenant_cursor TEXT,
    queued_slots TEXT NOT NULL DEFAULT '[]',
    undo_bytes INTEGER NOT NULL DEFAULT 0, -- held in besom_history.undo
    undo_pruned INTEGER NOT NULL DEFAULT 0 -- history up to here holds no expired undo
) STRICT;

CREATE TABLE besom_slot (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    from_slot INTEGER NOT NULL,
    to_slot INTEGER NOT NULL,
    count INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT NOT NULL,
    run INTEGER,
    term INTEGER NOT NULL
) STRICT;
CREATE INDEX besom_slot_by_task ON besom_slot (task, to_slot);

CREATE TABLE besom_definition (
    id INTEGER PRIMARY KEY,
    definition TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE
) STRICT;

CREATE TABLE besom_run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    trigger TEXT NOT NULL,
    term INTEGER NOT NULL,
    digest TEXT NOT NULL,
    definition INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    scan_done INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    planned INTEGER NOT NULL DEFAULT 0,
    deduplicated INTEGER NOT NULL DEFAULT 0,
    blocked INTEGER NOT NULL DEFAULT 0,
    open INTEGER NOT NULL DEFAULT 0,       -- its items in the log
    items INTEGER NOT NULL DEFAULT 0,      -- its items in log, timers, retries, dead letters
    scanned INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX besom_run_by_task ON besom_run (task, id);
CREATE INDEX besom_run_active ON besom_run (id) WHERE ended_at IS NULL;

-- What guests log: the newest lines of each run, and what became of the others.
CREATE TABLE besom_run_log (
    run INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,                 -- the number of its newest line
    dropped INTEGER NOT NULL               -- lines that their nodes have dropped
) STRICT;
CREATE TABLE besom_run_line (
    run INTEGER NOT NULL,
    no INTEGER NOT NULL,
    at INTEGER NOT NULL,
    node TEXT NOT NULL,
    level TEXT NOT NULL,
    text TEXT NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (run, no)
) STRICT, WITHOUT ROWID;

CREATE TABLE besom_cursor (
    task INTEGER NOT NULL,
    tenant NOT NULL,
    cursor BLOB NOT NULL,
    moved_at INTEGER NOT NULL DEFAULT 0,   -- one that has not moved for long is forgotten
    PRIMARY KEY (task, tenant)
) WITHOUT ROWID;

CREATE TABLE besom_command (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    command TEXT NOT NULL,
    by TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    applied_at INTEGER,
    result TEXT,
    refused INTEGER NOT NULL DEFAULT 0,    -- by the leader that read it
    done TEXT                              -- JSON: the answer to whoever asks a second time
) STRICT;
CREATE INDEX besom_command_pending ON besom_command (id) WHERE applied_at IS NULL;

-- The queue.
CREATE TABLE besom_stream (
    task INTEGER NOT NULL,
    part INTEGER NOT NULL,
    tail INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    PRIMARY KEY (task, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE besom_waiting (
    task INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    due NOT NULL,
    PRIMARY KEY (task, tenant, key, due)
) WITHOUT ROWID;

CREATE TABLE besom_log (
    task INTEGER NOT NULL,
    part INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    route TEXT,                            -- NULL: the key
    version TEXT NOT NULL,
    payload BLOB NOT NULL,
    run INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    at INTEGER NOT NULL,
    progress BLOB,                         -- attempts, guard retries, deaths, errors; NULL: none
    PRIMARY KEY (task, part, seq)
) WITHOUT ROWID;

CREATE TABLE besom_timer (
    task INTEGER NOT NULL,
    due INTEGER NOT NULL,
    id INTEGER NOT NULL,
    part INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    route TEXT,
    version TEXT NOT NULL,
    payload BLOB NOT NULL,
    run INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    progress BLOB,
    PRIMARY KEY (task, due, id)
) WITHOUT ROWID;

CREATE TABLE besom_retry (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    part INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    due NOT NULL,
    route TEXT,
    version TEXT NOT NULL,
    payload BLOB NOT NULL,
    run INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    progress BLOB
);
CREATE INDEX besom_retry_by_time ON besom_retry (task, run_at);

CREATE TABLE besom_dead (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    at INTEGER NOT NULL,
    part INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    due NOT NULL,
    route TEXT,
    version TEXT NOT NULL,
    payload BLOB NOT NULL,
    run INTEGER NOT NULL,
    planned_at INTEGER NOT NULL,
    progress BLOB,
    error TEXT NOT NULL,                   -- the last one, to select by
    resolved_at INTEGER                    -- by a later commit of the same item; NULL: it is open
);
CREATE INDEX besom_dead_by_identity ON besom_dead (task, tenant, key, due, version);
CREATE INDEX besom_dead_resolved ON besom_dead (resolved_at) WHERE resolved_at IS NOT NULL;
-- Open dead letters by their errors.
-- The last column says nothing there, but without it every row would be looked up.
CREATE INDEX besom_dead_open ON besom_dead (task, error, at, resolved_at)
    WHERE resolved_at IS NULL;

-- What blocks an identity from being planned again, one row for each version that was settled.
-- Somebody may give up several versions of one item, each by its own dead letter.
CREATE TABLE besom_settled (
    task INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    due NOT NULL,
    version TEXT NOT NULL,
    at INTEGER NOT NULL,
    given_up INTEGER NOT NULL,             -- 1: by a person, and never pruned; 0: by the task
    PRIMARY KEY (task, tenant, key, due, version)
) WITHOUT ROWID;

CREATE TABLE besom_inflight (
    commit_id BLOB PRIMARY KEY,
    node TEXT NOT NULL,
    items BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- When the next rows of a task's budget are free.
CREATE TABLE besom_row_budget (
    task INTEGER PRIMARY KEY,
    free_at INTEGER NOT NULL               -- microseconds since the Unix epoch
);

-- The books.
CREATE TABLE besom_counter (
    task INTEGER NOT NULL,
    tenant NOT NULL,
    planned INTEGER NOT NULL,
    committed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    discarded INTEGER NOT NULL,
    log INTEGER NOT NULL,
    timers INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    resolved INTEGER NOT NULL DEFAULT 0,   -- of those counted as dead
    rows INTEGER NOT NULL DEFAULT 0,       -- of the product, changed
    PRIMARY KEY (task, tenant)
) WITHOUT ROWID;

-- What left the history by pruning.
CREATE TABLE besom_baseline (
    task INTEGER NOT NULL,
    tenant NOT NULL,
    committed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    discarded INTEGER NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0,       -- resolved and pruned
    rows INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, tenant)
) WITHOUT ROWID;

CREATE TABLE besom_commit (
    no INTEGER PRIMARY KEY,
    id BLOB UNIQUE,                        -- NULL: dead letters were discarded by a command
    node TEXT NOT NULL,
    at INTEGER NOT NULL,
    result BLOB                            -- NULL: given up, and never to be committed
) STRICT;

CREATE TABLE besom_history (
    id INTEGER PRIMARY KEY,
    commit_no INTEGER NOT NULL,
    task INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    due NOT NULL,
    key_place INTEGER NOT NULL,            -- the block of the id, and 32 bits of the key
    run INTEGER NOT NULL,
    outcome INTEGER NOT NULL,              -- 1 committed, 2 skipped, 3 dead, 4 discarded
    settled INTEGER NOT NULL,
    reason TEXT,
    notes BLOB,
    rows INTEGER NOT NULL,                 -- of the product, changed by it
    undo_bytes INTEGER NOT NULL,
    undo BLOB                              -- before-images, packed and compressed
);
CREATE INDEX besom_history_by_key ON besom_history (key_place);
CREATE INDEX besom_history_by_run ON besom_history (run);

CREATE TABLE besom_outbox (
    id INTEGER PRIMARY KEY,
    history INTEGER NOT NULL,
    at INTEGER NOT NULL,
    topic TEXT NOT NULL,
    key TEXT NOT NULL,
    no INTEGER NOT NULL,                   -- its number in its sequence
    payload BLOB NOT NULL,
    delivered_at INTEGER,
    task INTEGER,                          -- NULL: of the product itself
    tenant ANY NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    given_up_at INTEGER,
    reply_status INTEGER,
    reply_body BLOB,
    reply_cut INTEGER,
    entered INTEGER                        -- the product's own number, if it gave one
) STRICT;
CREATE UNIQUE INDEX besom_outbox_entered ON besom_outbox (topic, key, tenant, entered)
    WHERE entered IS NOT NULL;
CREATE INDEX besom_outbox_order ON besom_outbox (topic, id)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
-- The order of delivery, and the latest of a key.
CREATE UNIQUE INDEX besom_outbox_by_key ON besom_outbox (topic, key, tenant, no);
CREATE INDEX besom_outbox_ended ON besom_outbox (coalesce(delivered_at, given_up_at))
    WHERE delivered_at IS NOT NULL OR given_up_at IS NOT NULL;

-- The number of the latest message of each topic, tenant and key. It outlives the messages, so that a
-- number is never assigned again.
CREATE TABLE besom_outbox_sequence (
    topic TEXT NOT NULL,
    key TEXT NOT NULL,
    tenant ANY NOT NULL,
    last INTEGER NOT NULL,
    entered INTEGER NOT NULL DEFAULT 0,    -- the highest number that the product gave
    head INTEGER,                          -- no message before this number is pending; NULL: none is
    due INTEGER NOT NULL DEFAULT 0,        -- when the first pending message is sent next
    turn INTEGER NOT NULL DEFAULT 0,       -- orders those that are due since the same moment; 0: the first is being sent
    PRIMARY KEY (topic, key, tenant)
) STRICT, WITHOUT ROWID;
CREATE INDEX besom_outbox_due ON besom_outbox_sequence (topic, due, turn) WHERE head IS NOT NULL;

-- Messages of the product, inserted in its own transactions: moved to the outbox and removed here.
CREATE TABLE besom_feed (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL CHECK (length(CAST(topic AS BLOB)) BETWEEN 1 AND 512 AND instr(topic, char(0)) = 0),
    tenant TEXT CHECK (length(CAST(tenant AS BLOB)) BETWEEN 1 AND 512 AND instr(tenant, char(0)) = 0),
    key TEXT NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 512 AND instr(key, char(0)) = 0),
    payload ANY NOT NULL CHECK (typeof(payload) IN ('text', 'blob')
        AND length(CAST(payload AS BLOB)) <= 1048576)
) STRICT;
CREATE INDEX besom_feed_by_topic ON besom_feed (topic, id);

-- The embedded activity.
CREATE TABLE besom_activity (
    key TEXT NOT NULL,
    connection TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (key, connection)
) STRICT, WITHOUT ROWID;

CREATE TABLE besom_idle (
    key TEXT PRIMARY KEY,
    closed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
