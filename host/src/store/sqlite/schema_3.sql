-- A dead letter that a later commit of the same item has resolved stays in the books, and is
-- shown only to those who ask for it.
ALTER TABLE besom_dead ADD COLUMN resolved_at INTEGER;          -- NULL: it is open
ALTER TABLE besom_counter ADD COLUMN resolved INTEGER NOT NULL DEFAULT 0; -- of those counted as dead
ALTER TABLE besom_baseline ADD COLUMN dead INTEGER NOT NULL DEFAULT 0;    -- resolved and pruned
CREATE INDEX besom_dead_resolved ON besom_dead (resolved_at) WHERE resolved_at IS NOT NULL;
