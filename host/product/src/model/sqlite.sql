-- The tables of the built-in entity model on SQLite. Missing tables are created; existing ones stay.
--
-- Rows are clustered by (project, document, ...), so that the rows that one task reads are adjacent.
-- Tables with payloads are not clustered: in a clustered table SQLite copies a whole row to compare
-- its key with another, and a compacted document of some 100 KB would be stored next to every change
-- after it. Deleting changes behind such a row took twenty times as long. Rows under a document refer
-- to it: the foreign key makes the document the anchor of every guard on those rows.

CREATE TABLE IF NOT EXISTS projects (
    project_id TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS documents (
    project_id TEXT NOT NULL,
    doc_id TEXT NOT NULL,
    format TEXT NOT NULL DEFAULT 'yjs' CHECK (format IN ('yjs', 'loro', 'automerge')),
    server_seq INTEGER NOT NULL DEFAULT 0,
    compacted_seq INTEGER NOT NULL DEFAULT 0,
    pending INTEGER GENERATED ALWAYS AS (server_seq - compacted_seq) VIRTUAL,
    epoch INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    compacted_at INTEGER,
    PRIMARY KEY (project_id, doc_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS documents_by_pending ON documents (project_id, pending);

CREATE TABLE IF NOT EXISTS changes (
    project_id TEXT NOT NULL,
    doc_id TEXT NOT NULL,
    server_seq INTEGER NOT NULL,
    actor_id TEXT NOT NULL,
    client_seq INTEGER NOT NULL,
    lamport INTEGER NOT NULL,
    kind TEXT NOT NULL DEFAULT 'edit' CHECK (kind IN ('edit', 'presence')),
    payload BLOB NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (project_id, doc_id, server_seq),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
) STRICT;
CREATE INDEX IF NOT EXISTS changes_by_lamport
    ON changes (project_id, doc_id, lamport, server_seq);

CREATE TABLE IF NOT EXISTS snapshots (
    project_id TEXT NOT NULL,
    doc_id TEXT NOT NULL,
    server_seq INTEGER NOT NULL,
    payload BLOB NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (project_id, doc_id, server_seq),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
) STRICT;

CREATE TABLE IF NOT EXISTS version_vectors (
    project_id TEXT NOT NULL,
    doc_id TEXT NOT NULL,
    client_id TEXT NOT NULL,
    vector BLOB NOT NULL,
    server_seq INTEGER NOT NULL,
    PRIMARY KEY (project_id, doc_id, client_id),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS clients (
    project_id TEXT NOT NULL,
    client_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('activated', 'deactivated')),
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, client_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS clients_by_status_updated ON clients (project_id, status, updated_at);

CREATE TABLE IF NOT EXISTS attachments (
    project_id TEXT NOT NULL,
    doc_id TEXT NOT NULL,
    client_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('attaching', 'attached', 'detached')),
    server_seq INTEGER NOT NULL DEFAULT 0,
    client_seq INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, doc_id, client_id),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id),
    FOREIGN KEY (project_id, client_id) REFERENCES clients (project_id, client_id)
) STRICT, WITHOUT ROWID;
-- With the state it answers by itself. Without it, and without statistics, SQLite reads the
-- primary key instead: every attachment of the project for one client.
CREATE INDEX IF NOT EXISTS attachments_by_client
    ON attachments (project_id, client_id, doc_id, state);

CREATE TABLE IF NOT EXISTS presences (
    project_id TEXT NOT NULL,
    doc_id TEXT NOT NULL,
    client_id TEXT NOT NULL,
    value TEXT,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, doc_id, client_id),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS shares (
    project_id TEXT NOT NULL,
    share_id TEXT NOT NULL,
    file_id TEXT NOT NULL,
    start_date INTEGER NOT NULL,
    limit_seconds INTEGER,
    unshared_at INTEGER,
    PRIMARY KEY (project_id, share_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS shares_by_unshared_start
    ON shares (project_id, unshared_at, start_date);
CREATE INDEX IF NOT EXISTS shares_by_unshared_limit
    ON shares (project_id, unshared_at, limit_seconds, start_date);

CREATE TABLE IF NOT EXISTS workspaces (
    project_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    status TEXT NOT NULL,
    operation TEXT NOT NULL DEFAULT 'NONE',
    desired_state TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,
    standby_ttl_seconds INTEGER,
    archive_ttl_seconds INTEGER,
    last_access_at INTEGER NOT NULL,
    last_manual_change_at INTEGER,
    archive_key TEXT,
    unsettled INTEGER GENERATED ALWAYS AS
        (CASE WHEN operation = 'NONE' AND status = desired_state THEN 0 ELSE 1 END) VIRTUAL,
    PRIMARY KEY (project_id, workspace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS workspaces_by_status_operation
    ON workspaces (project_id, status, operation, last_access_at);
CREATE INDEX IF NOT EXISTS workspaces_by_unsettled
    ON workspaces (project_id, unsettled, workspace_id);
