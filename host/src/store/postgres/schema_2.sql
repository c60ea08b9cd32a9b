-- The outbox is delivered: who emitted a message, which attempts there were, what was answered.
ALTER TABLE @.outbox
    ADD COLUMN task integer,                       -- NULL: an operator's write
    ADD COLUMN tenant text NOT NULL DEFAULT '',
    ADD COLUMN attempts integer NOT NULL DEFAULT 0,
    ADD COLUMN next_at bigint NOT NULL DEFAULT 0,  -- not tried before
    ADD COLUMN error text,
    ADD COLUMN given_up_at bigint,
    ADD COLUMN reply_status integer,
    ADD COLUMN reply_body bytea,
    ADD COLUMN reply_cut boolean;
-- What is delivered in its order. A digest: a key may be longer than an index takes.
ALTER TABLE @.outbox ADD COLUMN lane text NOT NULL GENERATED ALWAYS AS
    (md5(coalesce(task, 0)::text || E'\x02' || tenant || E'\x02' || topic || E'\x02' || key)) STORED;
ALTER TABLE @.outbox SET (fillfactor = 70);
CREATE INDEX outbox_pending ON @.outbox (topic, next_at, id)
    WHERE delivered_at IS NULL AND given_up_at IS NULL;
CREATE INDEX outbox_by_lane ON @.outbox (lane, id);
CREATE INDEX outbox_ended ON @.outbox ((coalesce(delivered_at, given_up_at)))
    WHERE delivered_at IS NOT NULL OR given_up_at IS NOT NULL;
