-- When a cursor was last moved: those of tenants that are not visited any more are forgotten.
ALTER TABLE besom_cursor ADD COLUMN moved_at INTEGER NOT NULL DEFAULT 0;
UPDATE besom_cursor SET moved_at = unixepoch('now') * 1000000;
