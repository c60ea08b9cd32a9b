-- What blocks an identity from being planned again, one row for each version that was settled.
-- Somebody may give up several versions of one item, each by its own dead letter.
ALTER TABLE besom_settled RENAME TO besom_settled_1;
CREATE TABLE besom_settled (
    task INTEGER NOT NULL,
    tenant NOT NULL,
    key TEXT NOT NULL,
    due NOT NULL,
    version TEXT NOT NULL,
    at INTEGER NOT NULL,
    given_up INTEGER NOT NULL,             -- 1: by a person, and never pruned; 0: by the task
    PRIMARY KEY (task, tenant, key, due, version)
) WITHOUT ROWID;
INSERT INTO besom_settled SELECT task, tenant, key, due, version, at, 0 FROM besom_settled_1;
DROP TABLE besom_settled_1;
