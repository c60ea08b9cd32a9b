-- Commands that a leader has refused.
ALTER TABLE @.command ADD COLUMN refused boolean NOT NULL DEFAULT false;
