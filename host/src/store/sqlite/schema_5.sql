-- The outbox is delivered: who emitted a message, which attempts there were, what was answered.
ALTER TABLE besom_outbox ADD COLUMN task INTEGER;                      -- NULL: an operator's write
ALTER TABLE besom_outbox ADD COLUMN tenant ANY NOT NULL DEFAULT 0;
ALTER TABLE besom_outbox ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE besom_outbox ADD COLUMN next_at INTEGER NOT NULL DEFAULT 0; -- not tried before
ALTER TABLE besom_outbox ADD COLUMN error TEXT;
ALTER TABLE besom_outbox ADD COLUMN given_up_at INTEGER;
ALTER TABLE besom_outbox ADD COLUMN reply_status INTEGER;
ALTER TABLE besom_outbox ADD COLUMN reply_body BLOB;
ALTER TABLE besom_outbox ADD COLUMN reply_cut INTEGER;
CREATE INDEX besom_outbox_pending ON besom_outbox (topic, next_at, id)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
-- The order of delivery, and the latest of a key.
CREATE INDEX besom_outbox_by_key ON besom_outbox (topic, key, tenant, task, id);
CREATE INDEX besom_outbox_ended ON besom_outbox (coalesce(delivered_at, given_up_at))
    WHERE delivered_at IS NOT NULL OR given_up_at IS NOT NULL;
