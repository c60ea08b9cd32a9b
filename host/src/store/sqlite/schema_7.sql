-- Commands that a leader has refused.
ALTER TABLE besom_command ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;
