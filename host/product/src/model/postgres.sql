-- The tables of the built-in entity model on PostgreSQL. Missing tables are created; existing ones stay.
--
-- Rows under a document refer to it: the foreign key makes the document the anchor of every guard on
-- those rows. Indexes begin with the project and end with the key, so that a page of a scan is read in
-- order.

CREATE TABLE IF NOT EXISTS projects (
    project_id text PRIMARY KEY
);

CREATE TABLE IF NOT EXISTS documents (
    project_id text NOT NULL,
    doc_id text NOT NULL,
    format text NOT NULL DEFAULT 'yjs' CHECK (format IN ('yjs', 'loro', 'automerge')),
    server_seq bigint NOT NULL DEFAULT 0,
    compacted_seq bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL GENERATED ALWAYS AS (server_seq - compacted_seq) STORED,
    epoch bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    compacted_at timestamptz,
    PRIMARY KEY (project_id, doc_id)
);
CREATE INDEX IF NOT EXISTS documents_by_pending ON documents (project_id, pending, doc_id);

CREATE TABLE IF NOT EXISTS changes (
    project_id text NOT NULL,
    doc_id text NOT NULL,
    server_seq bigint NOT NULL,
    actor_id text NOT NULL,
    client_seq bigint NOT NULL,
    lamport bigint NOT NULL,
    kind text NOT NULL DEFAULT 'edit' CHECK (kind IN ('edit', 'presence')),
    payload bytea NOT NULL,
    checksum bigint,
    PRIMARY KEY (project_id, doc_id, server_seq),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
);
CREATE INDEX IF NOT EXISTS changes_by_lamport
    ON changes (project_id, doc_id, lamport, server_seq);

CREATE TABLE IF NOT EXISTS snapshots (
    project_id text NOT NULL,
    doc_id text NOT NULL,
    server_seq bigint NOT NULL,
    payload bytea NOT NULL,
    checksum bigint,
    PRIMARY KEY (project_id, doc_id, server_seq),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
);

CREATE TABLE IF NOT EXISTS version_vectors (
    project_id text NOT NULL,
    doc_id text NOT NULL,
    client_id text NOT NULL,
    vector bytea NOT NULL,
    server_seq bigint NOT NULL,
    PRIMARY KEY (project_id, doc_id, client_id),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
);

CREATE TABLE IF NOT EXISTS clients (
    project_id text NOT NULL,
    client_id text NOT NULL,
    status text NOT NULL CHECK (status IN ('activated', 'deactivated')),
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project_id, client_id)
);
CREATE INDEX IF NOT EXISTS clients_by_status_updated
    ON clients (project_id, status, updated_at, client_id);

CREATE TABLE IF NOT EXISTS attachments (
    project_id text NOT NULL,
    doc_id text NOT NULL,
    client_id text NOT NULL,
    state text NOT NULL CHECK (state IN ('attaching', 'attached', 'detached')),
    server_seq bigint NOT NULL DEFAULT 0,
    client_seq bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, doc_id, client_id),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id),
    FOREIGN KEY (project_id, client_id) REFERENCES clients (project_id, client_id)
);
CREATE INDEX IF NOT EXISTS attachments_by_client
    ON attachments (project_id, client_id, doc_id, state);

CREATE TABLE IF NOT EXISTS presences (
    project_id text NOT NULL,
    doc_id text NOT NULL,
    client_id text NOT NULL,
    value jsonb,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project_id, doc_id, client_id),
    FOREIGN KEY (project_id, doc_id) REFERENCES documents (project_id, doc_id)
);

CREATE TABLE IF NOT EXISTS shares (
    project_id text NOT NULL,
    share_id text NOT NULL,
    file_id text NOT NULL,
    start_date timestamptz NOT NULL,
    limit_seconds bigint,
    unshared_at timestamptz,
    PRIMARY KEY (project_id, share_id)
);
CREATE INDEX IF NOT EXISTS shares_by_unshared_start
    ON shares (project_id, unshared_at, start_date, share_id);
CREATE INDEX IF NOT EXISTS shares_by_unshared_limit
    ON shares (project_id, unshared_at, limit_seconds, start_date, share_id);

CREATE TABLE IF NOT EXISTS workspaces (
    project_id text NOT NULL,
    workspace_id text NOT NULL,
    status text NOT NULL,
    operation text NOT NULL DEFAULT 'NONE',
    desired_state text NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    standby_ttl_seconds bigint,
    archive_ttl_seconds bigint,
    last_access_at timestamptz NOT NULL,
    last_manual_change_at timestamptz,
    archive_key text,
    unsettled bigint NOT NULL GENERATED ALWAYS AS
        (CASE WHEN operation = 'NONE' AND status = desired_state THEN 0 ELSE 1 END) STORED,
    PRIMARY KEY (project_id, workspace_id)
);
CREATE INDEX IF NOT EXISTS workspaces_by_status_operation
    ON workspaces (project_id, status, operation, last_access_at, workspace_id);
CREATE INDEX IF NOT EXISTS workspaces_by_unsettled
    ON workspaces (project_id, unsettled, workspace_id);
