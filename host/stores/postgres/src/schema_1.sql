-- Instants are microseconds since the Unix epoch, due times among them; the least bigint is no
-- due time, the empty text no tenant.

-- Leadership and ownership.
CREATE TABLE @.fence (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    term bigint NOT NULL,
    token_hash bytea NOT NULL,
    node text NOT NULL,
    raised_at bigint NOT NULL
);

-- Every raise of the fence.
CREATE TABLE @.term (
    term bigint PRIMARY KEY,
    node text NOT NULL,
    raised_at bigint NOT NULL
);

-- Who owns a partition, and under which term and revision of the members it was given.
CREATE TABLE @.partition (
    id integer PRIMARY KEY,
    owner text,
    owner_epoch bigint NOT NULL,
    ring_term bigint NOT NULL DEFAULT 0,
    ring_rev bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE @.lease (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    node text NOT NULL,
    hostname text NOT NULL,
    term bigint NOT NULL,
    token_hash bytea NOT NULL,
    elected_at bigint NOT NULL,
    renewed_at bigint NOT NULL,
    boot_id text NOT NULL,
    expires_at bigint NOT NULL,            -- microseconds since that boot; 0: given up
    file_locked boolean NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE @.node (
    node text PRIMARY KEY,
    state text NOT NULL,
    seen_at bigint NOT NULL,
    config_digest text NOT NULL,
    missing text NOT NULL,                 -- JSON: what it cannot reach
    hostname text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT '',
    weight bigint NOT NULL DEFAULT 0,
    report text NOT NULL DEFAULT ''        -- JSON; empty: none
) WITH (fillfactor = 50);

-- Numbers that are never used twice: timers, retries, dead letters, history, messages.
CREATE SEQUENCE @.number AS bigint;

-- Tasks, slots, runs, cursors, commands.
CREATE TABLE @.task (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    schedule text,                         -- NULL: only the name is known
    last_slot bigint,
    paused_by text,
    paused_reason text,
    paused_since bigint,
    tenant_cursor text,
    queued_slots text NOT NULL DEFAULT '[]',
    undo_pruned bigint NOT NULL DEFAULT 0  -- history up to here holds no expired undo
);

CREATE TABLE @.slot (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task integer NOT NULL,
    from_slot bigint NOT NULL,
    to_slot bigint NOT NULL,
    count bigint NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    run bigint,
    term bigint NOT NULL
);
CREATE INDEX slot_by_task ON @.slot (task, to_slot, id);

CREATE TABLE @.definition (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    definition text NOT NULL,
    hash bytea NOT NULL UNIQUE
);

-- Only the leader writes here, but for the end of a run; what commits take from a run is in
-- run_share, so that the commits of one run do not wait for each other.
CREATE TABLE @.run (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task integer NOT NULL,
    slot bigint NOT NULL,
    trigger text NOT NULL,
    term bigint NOT NULL,
    digest text NOT NULL,
    definition bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    scan_done boolean NOT NULL DEFAULT false,
    error text,
    planned bigint NOT NULL DEFAULT 0,
    logged bigint NOT NULL DEFAULT 0,      -- of these, how many went to the log
    deduplicated bigint NOT NULL DEFAULT 0,
    blocked bigint NOT NULL DEFAULT 0,
    scanned bigint NOT NULL DEFAULT 0
);
CREATE INDEX run_by_task ON @.run (task, id);
CREATE INDEX run_active ON @.run (id) WHERE ended_at IS NULL;
CREATE INDEX run_by_slot ON @.run (task, slot);
-- A slot has one run, also where a decision is repeated while its first copy is being committed.
CREATE UNIQUE INDEX run_of_slot ON @.run (task, slot, trigger)
    WHERE trigger IN ('"schedule"', '"takeover"');

CREATE TABLE @.run_share (
    run bigint NOT NULL,
    share integer NOT NULL,
    unlogged bigint NOT NULL,              -- items that left the log
    ended bigint NOT NULL,                 -- items that reached their end
    PRIMARY KEY (run, share)
) WITH (fillfactor = 50);

-- What guests log: the newest lines of each run, and what became of the others. The head of a
-- run is locked by whoever adds to it: so lines become visible in the order of their numbers.
CREATE TABLE @.run_log (
    run bigint PRIMARY KEY,
    last bigint NOT NULL,                  -- the number of its newest line
    dropped bigint NOT NULL                -- lines that their nodes have dropped
) WITH (fillfactor = 50);
CREATE TABLE @.run_line (
    run bigint NOT NULL,
    no bigint NOT NULL,
    at bigint NOT NULL,
    dropped bigint NOT NULL,
    node text NOT NULL,
    level text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (run, no)
);

CREATE TABLE @.cursor (
    task integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    cursor bytea NOT NULL,
    moved_at bigint NOT NULL DEFAULT 0,    -- one that has not moved for long is forgotten
    PRIMARY KEY (task, tenant)
);

CREATE TABLE @.command (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    command text NOT NULL,
    by text NOT NULL,
    reason text NOT NULL,
    at bigint NOT NULL,
    applied_at bigint,
    result text,
    refused boolean NOT NULL DEFAULT false, -- by the leader that read it
    done text                              -- JSON: the answer to whoever asks a second time
);
CREATE INDEX command_pending ON @.command (id) WHERE applied_at IS NULL;

-- The queue. The tail of a stream is the leader's and its head the owner's, so that planning
-- and acknowledging do not wait for each other.
CREATE TABLE @.stream_tail (
    task integer NOT NULL,
    part integer NOT NULL,
    tail bigint NOT NULL,
    PRIMARY KEY (task, part)
) WITH (fillfactor = 50);

CREATE TABLE @.stream_head (
    task integer NOT NULL,
    part integer NOT NULL,
    acked bigint NOT NULL,
    PRIMARY KEY (task, part)
) WITH (fillfactor = 50);

-- An item that waits is one row, wherever it waits: so it waits once by the primary key.
CREATE TABLE @.item (
    task integer NOT NULL,
    due bigint NOT NULL,
    no bigint NOT NULL,                    -- the position in the stream, or a number
    run_at bigint NOT NULL,                -- in the log: since when it waits
    run bigint NOT NULL,
    planned_at bigint NOT NULL,
    part integer NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    guard_retries integer NOT NULL DEFAULT 0,
    deaths integer NOT NULL DEFAULT 0,
    place smallint NOT NULL,               -- 0 log, 1 timer, 2 retry
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version text NOT NULL,
    payload bytea NOT NULL,
    route text,                            -- NULL: the key
    errors text[],
    PRIMARY KEY (task, tenant, key, due)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE UNIQUE INDEX item_log ON @.item (task, part, no) WHERE place = 0;
CREATE INDEX item_timer ON @.item (task, run_at, no) WHERE place = 1;
CREATE INDEX item_retry ON @.item (task, run_at, no) WHERE place = 2;

-- What a leader has put into the queues lately, for the owners that do not lead. The row of the
-- counter is locked by whoever adds to it: so marks become visible in their order.
CREATE TABLE @.arrival_mark (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    mark bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO @.arrival_mark (mark) VALUES (0);

CREATE TABLE @.arrival (
    mark bigint PRIMARY KEY,
    log boolean NOT NULL,                  -- a stream has grown
    timer bigint,                          -- the earliest due time among new timers
    retry bigint                           -- the earliest time among revived dead letters
);

CREATE TABLE @.dead (
    id bigint PRIMARY KEY,
    task integer NOT NULL,
    due bigint NOT NULL,
    at bigint NOT NULL,
    run bigint NOT NULL,
    planned_at bigint NOT NULL,
    part integer NOT NULL,
    attempts integer NOT NULL,
    guard_retries integer NOT NULL,
    deaths integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version text NOT NULL,
    payload bytea NOT NULL,
    route text,
    errors text[],
    error text NOT NULL,                   -- the last one, to select by
    resolved_at bigint,                    -- NULL: it is open
    -- A digest: an error may be longer than an index takes.
    error_hash text NOT NULL GENERATED ALWAYS AS (md5(error)) STORED
);
CREATE INDEX dead_by_identity ON @.dead (task, tenant, key, due);
CREATE INDEX dead_resolved ON @.dead (resolved_at) WHERE resolved_at IS NOT NULL;
-- Open dead letters by their errors.
CREATE INDEX dead_open ON @.dead (task, error_hash, at, id) WHERE resolved_at IS NULL;

-- What blocks an identity from being planned again, one row for each version.
CREATE TABLE @.settled (
    task integer NOT NULL,
    due bigint NOT NULL,
    at bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    given_up boolean NOT NULL,             -- by a person, and never pruned; not: by the task
    PRIMARY KEY (task, tenant, key, due, version)
);
CREATE INDEX settled_by_time ON @.settled (at) WHERE NOT given_up;

-- What is being executed. A crash of the server may empty it: then no death is counted.
CREATE UNLOGGED TABLE @.inflight (
    commit_id uuid PRIMARY KEY,
    node text NOT NULL,
    items bytea NOT NULL
);

-- When the next rows of a task's budget are free. A crash of the server may empty it: then the
-- budget begins anew.
CREATE UNLOGGED TABLE @.row_budget (
    task integer PRIMARY KEY,
    free_at bigint NOT NULL
) WITH (fillfactor = 50);

-- The books. What a commit adds to the counters is a row of the tally, which no other commit
-- waits for; the leader adds the tally up into the counters.
CREATE TABLE @.counter (
    task integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    planned bigint NOT NULL,
    committed bigint NOT NULL,
    skipped bigint NOT NULL,
    dead bigint NOT NULL,
    discarded bigint NOT NULL,
    log bigint NOT NULL,
    timers bigint NOT NULL,
    retries bigint NOT NULL,
    resolved bigint NOT NULL,              -- of those counted as dead
    undo_bytes bigint NOT NULL,
    rows bigint NOT NULL,                  -- of the product, changed
    PRIMARY KEY (task, tenant)
) WITH (fillfactor = 50);

CREATE TABLE @.tally (
    task integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    planned bigint NOT NULL,
    committed bigint NOT NULL,
    skipped bigint NOT NULL,
    dead bigint NOT NULL,
    discarded bigint NOT NULL,
    log bigint NOT NULL,
    timers bigint NOT NULL,
    retries bigint NOT NULL,
    resolved bigint NOT NULL,
    undo_bytes bigint NOT NULL,
    rows bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE VIEW @.books AS
SELECT task, tenant, sum(planned)::int8 AS planned, sum(committed)::int8 AS committed,
  sum(skipped)::int8 AS skipped, sum(dead)::int8 AS dead, sum(discarded)::int8 AS discarded,
  sum(log)::int8 AS log, sum(timers)::int8 AS timers, sum(retries)::int8 AS retries,
  sum(resolved)::int8 AS resolved, sum(undo_bytes)::int8 AS undo_bytes,
  sum(rows)::int8 AS rows
FROM (SELECT * FROM @.counter UNION ALL SELECT * FROM @.tally) AS both_of_them
GROUP BY task, tenant;

-- What left the history by pruning.
CREATE TABLE @.baseline (
    task integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    committed bigint NOT NULL,
    skipped bigint NOT NULL,
    discarded bigint NOT NULL,
    dead bigint NOT NULL,                  -- resolved and pruned
    rows bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (task, tenant)
);

CREATE TABLE @.commit (
    no bigint PRIMARY KEY,
    last bigint NOT NULL,                  -- no history row of it has a higher number
    id uuid UNIQUE,                        -- NULL: dead letters were discarded by a command
    at bigint NOT NULL,
    node text NOT NULL,
    result bytea                           -- NULL: given up, and never to be committed
);

CREATE TABLE @.history (
    id bigint PRIMARY KEY,
    commit_no bigint NOT NULL,
    due bigint NOT NULL,
    run bigint NOT NULL,
    rows bigint NOT NULL,                  -- of the product, changed by it
    undo_bytes bigint NOT NULL,
    task integer NOT NULL,
    outcome smallint NOT NULL,             -- 1 committed, 2 skipped, 3 dead, 4 discarded
    settled boolean NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    reason text,
    notes bytea,
    undo bytea                             -- before-images, packed and compressed
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02);
ALTER TABLE @.history ALTER COLUMN undo SET STORAGE EXTERNAL;
-- A key has up to a kibibyte: this index holds 32 bits of it, and costs a commit less than a B-tree.
CREATE INDEX history_by_key ON @.history USING hash (key);
-- The rows of a run lie together: an index of page ranges costs a commit next to nothing. Vacuum
-- summarizes new ranges; the server logs every request of its own to do so that finds no room.
CREATE INDEX history_by_run ON @.history USING brin (run) WITH (pages_per_range = 16);

CREATE TABLE @.outbox (
    id bigint PRIMARY KEY,
    history bigint NOT NULL,
    at bigint NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    no bigint NOT NULL,                    -- its number in its sequence
    payload bytea NOT NULL,
    delivered_at bigint,
    task integer,                          -- NULL: of the product itself
    tenant text NOT NULL DEFAULT '',
    attempts integer NOT NULL DEFAULT 0,
    error text,
    given_up_at bigint,
    reply_status integer,
    reply_body bytea,
    reply_cut boolean,
    entered bigint,                        -- the product's own number, if it gave one
    -- What is delivered in its order. A digest: a key may be longer than an index takes.
    sequence text NOT NULL GENERATED ALWAYS AS
        (md5(tenant || E'\x02' || topic || E'\x02' || key)) STORED
) WITH (fillfactor = 70);
CREATE INDEX outbox_order ON @.outbox (topic, id)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE UNIQUE INDEX outbox_by_sequence ON @.outbox (sequence, no);
CREATE UNIQUE INDEX outbox_entered ON @.outbox (sequence, entered) WHERE entered IS NOT NULL;
CREATE INDEX outbox_ended ON @.outbox ((coalesce(delivered_at, given_up_at)))
    WHERE delivered_at IS NOT NULL OR given_up_at IS NOT NULL;

-- The number of the latest message of each sequence. A commit locks the row last, so that the order of
-- the numbers is that of the commits. It outlives the messages: a number is never assigned again.
CREATE TABLE @.outbox_sequence (
    sequence text PRIMARY KEY,
    topic text NOT NULL,
    last bigint NOT NULL,
    entered bigint NOT NULL DEFAULT 0,     -- the highest number that the product gave
    head bigint,                           -- no message before this number is pending; NULL: none is
    due bigint NOT NULL DEFAULT 0,         -- when the first pending message is sent next
    turn bigint NOT NULL DEFAULT 0         -- orders those that are due since the same moment; 0: the first is being sent
) WITH (fillfactor = 70);
CREATE INDEX outbox_due ON @.outbox_sequence (topic, due, turn) WHERE head IS NOT NULL;

-- Messages of the product, inserted in its own transactions: moved to the outbox and removed here.
CREATE TABLE @.feed (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL CHECK (octet_length(topic) BETWEEN 1 AND 512),
    tenant text CHECK (octet_length(tenant) BETWEEN 1 AND 512),
    key text NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 512),
    payload bytea NOT NULL CHECK (octet_length(payload) <= 1048576)
);
CREATE INDEX feed_by_topic ON @.feed (topic, id);

-- The activity of things, where it is kept in the store.
CREATE TABLE @.activity (
    key text COLLATE "C" NOT NULL,
    connection text NOT NULL,
    seen_at bigint NOT NULL,
    PRIMARY KEY (key, connection)
) WITH (fillfactor = 50);

CREATE TABLE @.idle (
    key text COLLATE "C" PRIMARY KEY,
    closed_at bigint NOT NULL
);
