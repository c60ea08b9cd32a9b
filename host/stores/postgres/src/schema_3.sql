-- How far a run goes by itself, and whether it waits for an approval: nothing of it is committed then.
ALTER TABLE @.run ADD COLUMN mode text NOT NULL DEFAULT 'live', ADD COLUMN held boolean NOT NULL DEFAULT false;

-- What runs would change, for a person to decide.
CREATE TABLE @.review (
    run bigint PRIMARY KEY,
    opened_at bigint NOT NULL,
    expires_at bigint,                     -- NULL: it is only shown
    state text NOT NULL,
    by text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    decided_at bigint,
    plan text NOT NULL                     -- JSON
);
CREATE INDEX review_waiting ON @.review (run) WHERE state = 'waiting';

-- The messages of an item, which its undo names.
CREATE INDEX outbox_by_history ON @.outbox USING brin (history) WITH (pages_per_range = 16);
