//! A product that writes documents, clients and version vectors to either database.
//!
//! Every call is a separate transaction, as in a product.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::value::{Field, Value};

use besom_ports::store::{BeforeImage, HistoryQuery, HistoryRow};

use super::{Site, TENANT};
use crate::conformance::world;

fn text(s: &str) -> Value {
    Value::Text(s.into())
}

fn insert(collection: &str, fields: Vec<(&str, Value)>) -> Change {
    let fields = fields.into_iter().map(|(name, value)| Field::new(name, value)).collect();
    Change::Insert { collection: collection.into(), fields }
}

fn upsert(collection: &str, fields: Vec<(&str, Value)>) -> Change {
    let fields = fields.into_iter().map(|(name, value)| Field::new(name, value)).collect();
    Change::Upsert { collection: collection.into(), fields }
}

fn change(name: &str, number: i64, kind: &str, payload: &[u8]) -> Change {
    let row = vec![
        ("doc_id", text(name)),
        ("server_seq", Value::Integer(number)),
        ("actor_id", text("ann")),
        ("client_seq", Value::Integer(number)),
        ("lamport", Value::Integer(number)),
        ("kind", text(kind)),
        ("payload", Value::Bytes(payload.to_vec())),
    ];
    insert("changes", row)
}

impl Site {
    /// Writes as the product does, in one transaction.
    pub async fn write(&self, changes: Vec<Change>) {
        let tenant = |change| (Some(Tenant::from(TENANT)), change);
        let changes: Vec<_> = changes.into_iter().map(tenant).collect();
        self.product.write(&changes).await.expect("the product's write");
    }

    /// The project, and the client `ann`.
    pub(super) async fn found(&self) {
        let project = insert("projects", vec![("project_id", text(TENANT))]);
        self.product.write(&[(None, project)]).await.expect("a project");
        self.client("ann", Duration::from_secs(10 * 365 * 86_400)).await;
    }

    /// An activated client that was last active this long ago.
    pub async fn client(&self, client: &str, silent: Duration) {
        let heard = self.now().await - silent;
        let row = vec![
            ("client_id", text(client)),
            ("status", text("activated")),
            ("updated_at", Value::Timestamp(heard)),
        ];
        self.write(vec![upsert("clients", row)]).await;
    }

    /// Creates a document with its edits.
    pub async fn create(&self, name: &str, format: &str, updates: &[Vec<u8>]) {
        let (now, count) = (self.now().await, updates.len() as i64);
        let row = vec![
            ("doc_id", text(name)),
            ("format", text(format)),
            ("server_seq", Value::Integer(count)),
            ("created_at", Value::Timestamp(now)),
            ("updated_at", Value::Timestamp(now)),
        ];
        let mut changes = vec![insert("documents", row)];
        let edits = (1..).zip(updates).map(|(n, update)| change(name, n, "edit", update));
        changes.extend(edits);
        self.write(changes).await;
    }

    /// Assigns a number without writing its change yet.
    pub async fn reserve(&self, name: &str) -> i64 {
        let fields = vec![Field::new("server_seq", Value::Integer(1))];
        let key = vec![text(name)];
        self.write(vec![Change::Increment { collection: "documents".into(), key, fields }]).await;
        self.shown(name).await.document.server_seq as i64
    }

    /// Writes the change of an assigned number.
    pub async fn deliver(&self, name: &str, number: i64, kind: &str, payload: &[u8]) {
        self.write(vec![change(name, number, kind, payload)]).await;
    }

    /// Appends a change.
    pub async fn push(&self, name: &str, kind: &str, payload: &[u8]) {
        let number = self.reserve(name).await;
        self.deliver(name, number, kind, payload).await;
    }

    /// The attachment of a client, in that state, with the number that it has pulled.
    pub async fn attachment(&self, name: &str, client: &str, state: &str, server_seq: i64) {
        let row = vec![
            ("doc_id", text(name)),
            ("client_id", text(client)),
            ("state", text(state)),
            ("server_seq", Value::Integer(server_seq)),
            ("client_seq", Value::Integer(0)),
        ];
        self.write(vec![upsert("attachments", row)]).await;
    }

    /// A client reports its version vector.
    pub async fn vector(&self, name: &str, client: &str, vector: &[u8], server_seq: i64) {
        let row = vec![
            ("doc_id", text(name)),
            ("client_id", text(client)),
            ("vector", Value::Bytes(vector.to_vec())),
            ("server_seq", Value::Integer(server_seq)),
        ];
        self.write(vec![upsert("version_vectors", row)]).await;
    }

    /// Deletes the version vector of a client.
    pub async fn forget_vector(&self, name: &str, client: &str) {
        let key = vec![text(name), text(client)];
        self.write(vec![Change::Delete { collection: "version_vectors".into(), key }]).await;
    }

    /// Sets the epoch of a document, like a reset by another program.
    pub async fn begin_epoch(&self, name: &str, epoch: i64) {
        let fields = vec![Field::new("epoch", Value::Integer(epoch))];
        let key = vec![text(name)];
        self.write(vec![Change::Update { collection: "documents".into(), key, fields }]).await;
    }

    /// A snapshot that the product takes.
    pub async fn snapshot(&self, name: &str, server_seq: i64, payload: &[u8]) {
        let row = vec![
            ("doc_id", text(name)),
            ("server_seq", Value::Integer(server_seq)),
            ("payload", Value::Bytes(payload.to_vec())),
        ];
        self.write(vec![insert("snapshots", row)]).await;
    }

    /// Columns of all rows of a collection, by key.
    pub async fn rows(&self, collection: &str, columns: &[&str]) -> Vec<Vec<Value>> {
        let view = self.store().snapshot(super::OPEN_MAX).await.expect("a view");
        let range = world::range(collection, None, columns);
        view.read_range(Some(&Tenant::from(TENANT)), &range).await.expect("rows").rows
    }

    /// The clients with a version vector of some document.
    pub async fn told(&self) -> Vec<String> {
        let name = |row: Vec<Value>| match &row[..] {
            [Value::Text(client)] => client.clone(),
            other => panic!("{other:?}"),
        };
        self.rows("version_vectors", &["client_id"]).await.into_iter().map(name).collect()
    }

    /// The payloads of a document's edits, in order.
    pub async fn edits(&self, name: &str) -> Vec<Vec<u8>> {
        let rows = self.rows("changes", &["doc_id", "kind", "payload"]).await;
        let payload = |row: Vec<Value>| match &row[..] {
            [doc, kind, Value::Bytes(payload)] if *doc == text(name) && *kind == text("edit") => {
                Some(payload.clone())
            }
            _ => None,
        };
        rows.into_iter().filter_map(payload).collect()
    }

    /// The latest row of the history, and the rows that it has kept for undo.
    pub async fn latest(&self) -> (HistoryRow, Vec<BeforeImage>) {
        let query = HistoryQuery { limit: 1, ..HistoryQuery::default() };
        let row = self.store().history(&query).await.expect("the history").remove(0);
        let images = self.store().before_images(row.id).await.expect("the images");
        (row, images.unwrap_or_default())
    }
}
