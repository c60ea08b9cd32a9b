-- When a cursor was last moved: those of tenants that are not visited any more are forgotten.
ALTER TABLE @.cursor ADD COLUMN moved_at bigint NOT NULL DEFAULT 0;
UPDATE @.cursor SET moved_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
