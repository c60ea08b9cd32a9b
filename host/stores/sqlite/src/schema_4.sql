-- The messages that were given up, of each topic.
CREATE INDEX besom_outbox_given_up ON besom_outbox (topic, id) WHERE given_up_at IS NOT NULL;
