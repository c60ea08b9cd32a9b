-- When the next rows of a task's budget are free.
CREATE TABLE besom_row_budget (
    task INTEGER PRIMARY KEY,
    free_at INTEGER NOT NULL               -- microseconds since the Unix epoch
);
