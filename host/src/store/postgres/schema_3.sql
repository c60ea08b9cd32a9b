-- What a node says of itself.
ALTER TABLE @.node
    ADD COLUMN hostname text NOT NULL DEFAULT '',
    ADD COLUMN address text NOT NULL DEFAULT '',
    ADD COLUMN weight bigint NOT NULL DEFAULT 0,
    ADD COLUMN report text NOT NULL DEFAULT '';    -- JSON; empty: none

-- Every raise of the fence.
CREATE TABLE @.term (
    term bigint PRIMARY KEY,
    node text NOT NULL,
    raised_at bigint NOT NULL
);
INSERT INTO @.term SELECT term, node, raised_at FROM @.fence;

-- Open dead letters by their errors. A digest: an error may be longer than an index takes.
ALTER TABLE @.dead ADD COLUMN error_hash text NOT NULL GENERATED ALWAYS AS (md5(error)) STORED;
CREATE INDEX dead_open ON @.dead (task, error_hash, at, id) WHERE resolved_at IS NULL;

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
