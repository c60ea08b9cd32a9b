-- What a node says of itself.
ALTER TABLE besom_node ADD COLUMN hostname TEXT NOT NULL DEFAULT '';
ALTER TABLE besom_node ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE besom_node ADD COLUMN weight INTEGER NOT NULL DEFAULT 0;
ALTER TABLE besom_node ADD COLUMN report TEXT NOT NULL DEFAULT '';     -- JSON; empty: none

-- Every raise of the fence.
CREATE TABLE besom_term (
    term INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    raised_at INTEGER NOT NULL
) STRICT;
INSERT INTO besom_term SELECT term, node, raised_at FROM besom_fence;

-- Open dead letters by their errors.
-- The last column says nothing there, but without it every row would be looked up.
CREATE INDEX besom_dead_open ON besom_dead (task, error, at, resolved_at)
    WHERE resolved_at IS NULL;

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
