//! The engine's own tables, in a schema of their own, and their migrations.
//!
//! A migration runs under an advisory lock, so that only one of several nodes that start together
//! performs it. A store belongs to one cluster, whose name is recorded when the store is created.

use super::error::{Job, invalid};
use super::session::{Session, cell, only, params};
use besom_ports::store::{Error, NO_TABLES};

/// Migration `n` leads from version `n` to version `n + 1`. A published migration never changes.
const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
];

/// The version that this program writes and reads.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The number of the advisory lock that migrations hold: "besom" in ASCII.
const LOCK: i64 = 0x62_65_73_6f_6d;

/// The oldest supported server: its unique keys, locks and statistics are sufficient.
const SERVER_MIN: (i32, &str) = (140_000, "14");

/// The parameters of a new store, and the expectations of an existing one.
pub(super) struct Wanted<'a> {
    /// The engine's schema, quoted.
    pub(super) schema: &'a str,
    /// Whether missing tables are created.
    pub(super) creates: bool,
    /// Whether nothing is created or migrated, and the tables may be missing.
    pub(super) looks: bool,
    /// The number of partitions of a new store.
    pub(super) partitions: u32,
    /// The cluster that it belongs to.
    pub(super) cluster: &'a str,
}

/// The parameters that the store was created with.
pub(super) struct Foundation {
    /// Its number of partitions.
    pub(super) partitions: u32,
    /// Its unique identity.
    pub(super) identity: String,
}

/// Migrates the engine's tables to [`VERSION`] and returns the store's parameters.
pub(super) async fn migrate(session: &mut Session, wanted: &Wanted<'_>) -> Job<Foundation> {
    supported(session).await?;
    session.begin(Default::default()).await?;
    let done = migrated(session, wanted).await;
    match done {
        Ok(founded) => {
            session.commit().await?;
            Ok(founded)
        }
        Err(failure) => {
            session.rollback().await;
            Err(failure)
        }
    }
}

async fn supported(session: &Session) -> Job<()> {
    let rows =
        session.query("SELECT current_setting('server_version_num')::int4", params![]).await?;
    let version: i32 = only(&rows)?;
    if version >= SERVER_MIN.0 {
        return Ok(());
    }
    Err(invalid(format!(
        "the server is PostgreSQL {}.{}: Besom requires {} or later",
        version / 10_000,
        version % 10_000,
        SERVER_MIN.1
    )))
}

async fn migrated(session: &Session, wanted: &Wanted<'_>) -> Job<Foundation> {
    session.query("SELECT pg_advisory_xact_lock($1)", params![LOCK]).await?;
    let there = session.query("SELECT to_regclass('@.meta') IS NOT NULL", params![]).await?;
    if !only::<bool>(&there)? {
        if wanted.looks {
            return Ok(Foundation { partitions: wanted.partitions, identity: String::new() });
        }
        if !wanted.creates {
            return Err(Error::Denied(NO_TABLES.into()).into());
        }
        let schema = wanted.schema;
        // Using a schema that an administrator has created needs no privilege to create one.
        let made = session.query("SELECT to_regnamespace($1) IS NOT NULL", params![schema]).await?;
        if !only::<bool>(&made)? {
            session.batch(&format!("CREATE SCHEMA IF NOT EXISTS {schema}")).await?;
        }
        session.batch("CREATE TABLE @.meta (key text PRIMARY KEY, value text NOT NULL)").await?;
    }
    let found: i64 =
        meta(session, "schema_version").await?.and_then(|v| v.parse().ok()).unwrap_or(0);
    if found > VERSION {
        return Err(invalid(format!(
            "the store has schema version {found}, but this program supports versions up to \
             {VERSION}: use the version of besom that wrote it, or a newer one"
        )));
    }
    let applied = if wanted.looks { VERSION } else { found };
    for sql in &MIGRATIONS[usize::try_from(applied).unwrap_or(0)..] {
        session.batch(sql).await?;
    }
    if found < VERSION && !wanted.looks {
        set_meta(session, "schema_version", &VERSION.to_string()).await?;
    }
    if found == 0 {
        if wanted.partitions == 0 {
            return Err(invalid("a store needs at least one partition"));
        }
        set_meta(session, "partitions", &wanted.partitions.to_string()).await?;
        set_meta(session, "cluster", wanted.cluster).await?;
        session.batch("INSERT INTO @.meta VALUES ('identity', gen_random_uuid()::text)").await?;
        session
            .execute(
                "INSERT INTO @.partition (id, owner_epoch)
                 SELECT id, 0 FROM generate_series(0, $1::int4 - 1) AS id",
                params![wanted.partitions as i32],
            )
            .await?;
    }
    check_owner(session, wanted.cluster).await?;
    let partitions = meta(session, "partitions").await?.and_then(|v| v.parse().ok());
    let partitions =
        partitions.ok_or_else(|| invalid("the store has no record of its number of partitions"))?;
    let identity = meta(session, "identity").await?;
    let identity = identity.ok_or_else(|| invalid("the store has no record of its identity"))?;
    Ok(Foundation { partitions, identity })
}

/// Refuses the store of another cluster: two clusters on one store would fence each other. Any node may
/// open a store without a cluster; [`assign`] makes it a cluster's.
async fn check_owner(session: &Session, cluster: &str) -> Job<()> {
    let owner = meta(session, "cluster").await?.unwrap_or_default();
    if owner.is_empty() || owner == cluster {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the store belongs to the cluster {owner:?}, but this node belongs to {cluster:?}: correct \
         the cluster's name, or use another schema or database"
    ))
    .into())
}

/// Records the cluster that the store belongs to.
pub(super) async fn assign(session: &Session, cluster: &str) -> Job<()> {
    check_owner(session, cluster).await?;
    set_meta(session, "cluster", cluster).await
}

async fn meta(session: &Session, key: &str) -> Job<Option<String>> {
    session.maybe("SELECT value FROM @.meta WHERE key = $1", params![key], cell).await
}

async fn set_meta(session: &Session, key: &str, value: &str) -> Job<()> {
    session
        .execute(
            "INSERT INTO @.meta (key, value) VALUES ($1, $2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            params![key, value],
        )
        .await?;
    Ok(())
}
