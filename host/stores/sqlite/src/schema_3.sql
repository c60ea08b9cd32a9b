-- How far a run goes by itself, and whether it waits for an approval: nothing of it is committed then.
ALTER TABLE besom_run ADD COLUMN mode TEXT NOT NULL DEFAULT 'live';
ALTER TABLE besom_run ADD COLUMN held INTEGER NOT NULL DEFAULT 0;

-- What runs would change, for a person to decide.
CREATE TABLE besom_review (
    run INTEGER PRIMARY KEY,
    opened_at INTEGER NOT NULL,
    expires_at INTEGER,                    -- NULL: it is only shown
    state TEXT NOT NULL,
    by TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    decided_at INTEGER,
    plan TEXT NOT NULL                     -- JSON
) STRICT;
CREATE INDEX besom_review_waiting ON besom_review (run) WHERE state = 'waiting';
