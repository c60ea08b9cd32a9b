-- The messages that were given up, of each topic.
CREATE INDEX outbox_given_up ON @.outbox (topic, id) WHERE given_up_at IS NOT NULL;
