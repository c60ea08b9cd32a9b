//! A product under load: it edits, attaches, shares and uses workspaces, each in its own
//! transaction, while a host sweeps the database. It records what it has written, and triggers
//! record the changes of rows in the transaction that makes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rusqlite::{Connection, TransactionBehavior, params};
use yrs::updates::decoder::Decode as _;
use yrs::{
    ClientID, Doc, Map as _, OffsetKind, Options, Text as _, Transact as _, Update, WriteTxn as _,
};

use crate::site::Site;

/// The tenants.
pub const TENANTS: [&str; 3] = ["acme", "beta", "corp"];
/// Documents of a tenant.
const DOCUMENTS: usize = 4;
/// Replicas that edit one document.
const AUTHORS: usize = 2;
/// The limit of a share without one of its own: seven days.
pub const SHARE_LIMIT_US: i64 = 7 * 86_400 * SECOND_US;
/// One second.
pub const SECOND_US: i64 = 1_000_000;
/// The time between two actions of the product.
const PAUSE: Duration = Duration::from_millis(2);

/// The rows that the tests check afterwards.
const TRIGGERS: &str = "
CREATE TABLE seen_change (tenant, doc, seq, actor, kind, payload_bytes);
CREATE TABLE seen_detached (tenant, doc, client);
CREATE TABLE seen_deactivated (tenant, client);
CREATE TABLE seen_unshared (tenant, share, due, unshared_at);
CREATE TABLE seen_wanted (tenant, workspace, was, wanted);
CREATE TRIGGER see_change AFTER INSERT ON changes BEGIN
    INSERT INTO seen_change VALUES (new.project_id, new.doc_id, new.server_seq, new.actor_id,
        new.kind, length(new.payload));
END;
CREATE TRIGGER see_detached AFTER UPDATE OF state ON attachments
WHEN new.state = 'detached' BEGIN
    INSERT INTO seen_detached VALUES (new.project_id, new.doc_id, new.client_id);
END;
CREATE TRIGGER see_deactivated AFTER UPDATE OF status ON clients
WHEN new.status = 'deactivated' BEGIN
    INSERT INTO seen_deactivated VALUES (new.project_id, new.client_id);
END;
CREATE TRIGGER see_unshared AFTER UPDATE OF unshared_at ON shares BEGIN
    INSERT INTO seen_unshared VALUES (new.project_id, new.share_id,
        new.start_date + 7 * 86400 * 1000000, new.unshared_at);
END;
CREATE TRIGGER see_wanted AFTER UPDATE OF desired_state ON workspaces BEGIN
    INSERT INTO seen_wanted VALUES (new.project_id, new.workspace_id, old.desired_state,
        new.desired_state);
END;
";

/// A document's place: tenant and name.
pub type Name = (String, String);

/// The product's actions that the database has acknowledged.
#[derive(Default)]
pub struct Written {
    /// Every edit of a document, in its order.
    pub edits: BTreeMap<Name, Vec<Vec<u8>>>,
    /// Shares that were extended in time.
    pub extended: BTreeSet<Name>,
    /// Attachments of clients that never come back: tenant, document, client.
    pub stale: BTreeSet<(String, String, String)>,
    /// Workspaces that are no longer used.
    pub workspaces: BTreeSet<Name>,
    /// All shares.
    pub shares: BTreeSet<Name>,
}

struct Edited {
    name: Name,
    authors: Vec<(Doc, usize)>,
    edits: Vec<Vec<u8>>,
}

/// The product.
pub struct Product {
    db: Connection,
    socket: PathBuf,
    rng: StdRng,
    documents: Vec<Edited>,
    written: Written,
    number: u64,
}

/// Now, in microseconds.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_micros()).expect("before 294,000")
}

fn replica(client: u64) -> Doc {
    let mut options = Options::with_client_id(ClientID::new(client));
    options.offset_kind = OffsetKind::Utf16;
    options.cleanup_formatting = false;
    Doc::with_options(options)
}

impl Product {
    /// Opens the database and creates documents without any change.
    pub fn new(site: &Site, seed: u64) -> Product {
        let db = site.database();
        db.execute_batch(TRIGGERS).expect("triggers");
        let mut documents = Vec::new();
        for tenant in TENANTS {
            db.execute("INSERT INTO projects VALUES (?1)", [tenant]).expect("a project");
            for number in 0..DOCUMENTS {
                let name = (tenant.to_owned(), format!("doc-{number}"));
                let sql = "INSERT INTO documents (project_id, doc_id, created_at, updated_at)
                           VALUES (?1, ?2, ?3, ?3)";
                db.execute(sql, params![name.0, name.1, now_us()]).expect("a document");
                let client = |author: usize| (1000 * documents.len() + author + 1) as u64;
                let authors = (0..AUTHORS).map(|author| (replica(client(author)), 0)).collect();
                documents.push(Edited { name, authors, edits: Vec::new() });
            }
        }
        let (rng, socket) = (StdRng::seed_from_u64(seed), site.path("besom-activity.sock"));
        Product { db, socket, rng, documents, written: Written::default(), number: 0 }
    }

    /// Works until it is stopped.
    pub fn work(mut self, stop: &Arc<AtomicBool>) -> Written {
        while !stop.load(Ordering::Relaxed) {
            match self.rng.random_range(0..100) {
                0..70 => self.edit(),
                70..80 => self.presence(),
                80..86 => self.stale_client(),
                86..93 => self.share(),
                93..96 => self.extend(),
                _ => self.workspace(),
            }
            std::thread::sleep(PAUSE);
        }
        let Product { documents, mut written, .. } = self;
        written.edits = documents.into_iter().map(|doc| (doc.name, doc.edits)).collect();
        written
    }

    /// An author receives the others' edits, or does not, and types.
    fn edit(&mut self) {
        let which = self.rng.random_range(0..self.documents.len());
        let document = &mut self.documents[which];
        let author = self.rng.random_range(0..AUTHORS);
        let (doc, heard) = &mut document.authors[author];
        let mut txn = doc.transact_mut();
        if self.rng.random_ratio(2, 3) {
            for edit in &document.edits[*heard..] {
                let update = Update::decode_v1(edit).expect("an update");
                txn.apply_update(update).expect("it fits");
            }
            *heard = document.edits.len();
        }
        drop(txn);
        let mut txn = doc.transact_mut();
        let text = txn.get_or_insert_text("text");
        let length = yrs::Text::len(&text, &txn);
        match self.rng.random_range(0..5) {
            0 if length > 3 => {
                let at = self.rng.random_range(0..length - 2);
                text.remove_range(&mut txn, at, 2);
            }
            1 => {
                let map = txn.get_or_insert_map("map");
                let key = format!("k{}", self.rng.random_range(0..6));
                map.insert(&mut txn, key, self.rng.random_range(0..1_000_000_i64));
            }
            _ => {
                let at = self.rng.random_range(0..=length);
                text.insert(&mut txn, at, &format!("{} ", self.rng.random_range(0..1000)));
            }
        }
        let payload = txn.encode_update_v1();
        drop(txn);
        let actor = format!("author-{which}-{author}");
        append(&mut self.db, &document.name, &actor, "edit", &payload);
        document.edits.push(payload);
    }

    fn presence(&mut self) {
        let which = self.rng.random_range(0..self.documents.len());
        let name = self.documents[which].name.clone();
        append(&mut self.db, &name, "somebody", "presence", br#"{"caret":1}"#);
    }

    /// A client that was last active two days ago, with one or two documents attached.
    fn stale_client(&mut self) {
        self.number += 1;
        let tenant = TENANTS[self.rng.random_range(0..TENANTS.len())];
        let client = format!("client-{}", self.number);
        let documents = self.rng.random_range(1..=2);
        let two_days_ago = now_us() - 2 * 86_400 * SECOND_US;
        let txn = begin(&mut self.db);
        let sql = "INSERT INTO clients VALUES (?1, ?2, 'activated', ?3)";
        txn.execute(sql, params![tenant, client, two_days_ago]).expect("a client");
        for number in 0..documents {
            let doc = format!("doc-{number}");
            let sql = "INSERT INTO attachments (project_id, doc_id, client_id, state)
                       VALUES (?1, ?2, ?3, 'attached')";
            txn.execute(sql, params![tenant, doc, client]).expect("attached");
            let sql = "INSERT INTO version_vectors VALUES (?1, ?2, ?3, x'00', 0)";
            txn.execute(sql, params![tenant, doc, client]).expect("a vector");
            let sql = "INSERT INTO presences VALUES (?1, ?2, ?3, '{}', ?4)";
            txn.execute(sql, params![tenant, doc, client, two_days_ago]).expect("a presence");
            self.written.stale.insert((tenant.to_owned(), doc, client.clone()));
        }
        txn.commit().expect("committed");
    }

    /// A share that ends within three seconds.
    fn share(&mut self) {
        self.number += 1;
        let tenant = TENANTS[self.rng.random_range(0..TENANTS.len())];
        let share = format!("share-{}", self.number);
        let ends = now_us() + self.rng.random_range(0..3 * SECOND_US);
        let sql = "INSERT INTO shares (project_id, share_id, file_id, start_date)
                   VALUES (?1, ?2, 'file', ?3)";
        self.db.execute(sql, params![tenant, share, ends - SHARE_LIMIT_US]).expect("a share");
        self.written.shares.insert((tenant.to_owned(), share));
    }

    /// Extends a share by an hour, if it has not ended.
    fn extend(&mut self) {
        let chosen = self.rng.random_range(0..=self.written.shares.len());
        let Some((tenant, share)) = self.written.shares.iter().nth(chosen).cloned() else { return };
        let sql = "UPDATE shares SET start_date = start_date + 3600000000
                   WHERE project_id = ?1 AND share_id = ?2 AND unshared_at IS NULL";
        if self.db.execute(sql, params![tenant, share]).expect("extended") == 1 {
            self.written.extended.insert((tenant, share));
        }
    }

    /// A workspace that was used a moment ago, or one that has been in standby for a long time.
    fn workspace(&mut self) {
        self.number += 1;
        let tenant = TENANTS[self.rng.random_range(0..TENANTS.len())];
        let workspace = format!("ws-{}", self.number);
        let state = if self.rng.random() { "RUNNING" } else { "STANDBY" };
        let sql = "INSERT INTO workspaces (project_id, workspace_id, status, desired_state,
                       archive_ttl_seconds, last_access_at) VALUES (?1, ?2, ?3, ?3, 60, ?4)";
        let used = now_us() - 120 * SECOND_US;
        self.db.execute(sql, params![tenant, workspace, state, used]).expect("a workspace");
        if state == "RUNNING" {
            // The host may be dead at the moment; then the report is lost.
            let _ = report(&self.socket, &workspace, "connect");
            let _ = report(&self.socket, &workspace, "disconnect");
        }
        self.written.workspaces.insert((tenant.to_owned(), workspace));
    }
}

fn begin(db: &mut Connection) -> rusqlite::Transaction<'_> {
    db.transaction_with_behavior(TransactionBehavior::Immediate).expect("the writer's turn")
}

/// Appends a change as a product does: the next number, then the row.
pub fn append(db: &mut Connection, (tenant, doc): &Name, actor: &str, kind: &str, payload: &[u8]) {
    let txn = begin(db);
    let sql = "UPDATE documents SET server_seq = server_seq + 1, updated_at = ?3
               WHERE project_id = ?1 AND doc_id = ?2 RETURNING server_seq";
    let seq: i64 =
        txn.query_row(sql, params![tenant, doc, now_us()], |row| row.get(0)).expect("numbered");
    let sql = "INSERT INTO changes (project_id, doc_id, server_seq, actor_id, client_seq, lamport,
                   kind, payload)
               VALUES (?1, ?2, ?3, ?4, ?3, (SELECT coalesce(max(lamport), 0) + 1 FROM changes
                   WHERE project_id = ?1 AND doc_id = ?2), ?5, ?6)";
    txn.execute(sql, params![tenant, doc, seq, actor, kind, payload]).expect("appended");
    txn.commit().expect("committed");
}

/// Adds a share of the tenant `first` that ends at this time.
pub fn add_share(db: &Connection, name: &str, ends_us: i64) {
    let sql = "INSERT INTO shares (project_id, share_id, file_id, start_date)
               VALUES ('first', ?1, 'file', ?2)";
    db.execute(sql, params![name, ends_us - SHARE_LIMIT_US]).expect("a share");
}

/// Reports a connection to the host's activity endpoint.
pub fn report(socket: &std::path::Path, id: &str, what: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(
        stream,
        "POST /activity/{id}/{what}?connection=tab HTTP/1.1\r\nHost: besom\r\n\
         Connection: close\r\nContent-Length: 0\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
