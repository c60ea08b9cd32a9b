-- The brakes of runs: what each may delete of a collection, and has deleted. Commits of one run that
-- has brakes wait here for each other, at their end.
CREATE TABLE @.brake (
    run bigint NOT NULL,
    what text COLLATE "C" NOT NULL,        -- the collection; empty: items set aside
    used bigint NOT NULL,
    allowed bigint,                        -- NULL: no limit any more
    estimate bigint,                       -- rows of the collection, as far as known
    PRIMARY KEY (run, what)
) WITH (fillfactor = 50);
