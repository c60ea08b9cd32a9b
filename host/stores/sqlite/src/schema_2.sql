-- The brakes of runs: what each may delete of a collection, and has deleted.
CREATE TABLE besom_brake (
    run INTEGER NOT NULL,
    what TEXT NOT NULL,                    -- the collection; empty: items set aside
    used INTEGER NOT NULL,
    allowed INTEGER,                       -- NULL: no limit any more
    estimate INTEGER,                      -- rows of the collection, as far as known
    PRIMARY KEY (run, what)
) STRICT, WITHOUT ROWID;
