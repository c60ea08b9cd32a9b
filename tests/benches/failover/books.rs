//! The events of a round in the database, and their commit times.
//!
//! Instants are the server's own times of commit, on the same machine's clock as the signals: a
//! few milliseconds before a durable commit returns.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use tokio_postgres::Client;

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub i64);

impl Micros {
    /// Seconds from an earlier instant.
    pub fn since(self, earlier: Micros) -> f64 {
        (self.0 - earlier.0) as f64 / 1e6
    }
}

/// The wall clock.
pub fn now() -> Result<Micros> {
    Ok(Micros(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?))
}

/// What really happens, written down within the transactions in which it does.
const LEDGER: &str = "
CREATE TABLE seen_share (share text);
CREATE FUNCTION see_share() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen_share VALUES (new.share_id);
    RETURN NULL;
END $$;
CREATE TABLE seen_run (run bigint, term bigint);
CREATE FUNCTION see_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen_run VALUES (new.id, new.term);
    RETURN NULL;
END $$;
INSERT INTO seen_run SELECT id, term FROM besom.run;
INSERT INTO seen_share SELECT share_id FROM shares WHERE unshared_at IS NOT NULL;
CREATE TRIGGER see_share AFTER UPDATE OF unshared_at ON shares
    FOR EACH ROW EXECUTE FUNCTION see_share();
CREATE TRIGGER see_run AFTER INSERT ON besom.run
    FOR EACH ROW EXECUTE FUNCTION see_run();
";

/// The state of affairs before a host goes.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    term: i64,
    history: i64,
}

/// What has happened since; none: not yet.
#[derive(Debug)]
pub struct Since {
    /// A later leader has raised the fence: its first commit.
    pub raised: Option<Micros>,
    /// The first run that a later leader has begun.
    pub planned: Option<Micros>,
    /// The first commit of items of such a run.
    pub executed: Option<Micros>,
    /// The first partition of the lost host that has another owner.
    pub first_owned: Option<Micros>,
    /// All of them have.
    pub all_owned: Option<Micros>,
    /// The first effect on an item that waited in those partitions.
    pub first_effect: Option<Micros>,
}

/// A connection that asks.
pub struct Books(Client);

impl Books {
    /// Over that connection.
    pub fn new(client: Client) -> Books {
        Books(client)
    }

    /// Begins to write down; hosts have created their tables by now.
    pub async fn open(&self) -> Result<()> {
        // No effect between what is copied and what is seen.
        Ok(self
            .0
            .batch_execute(&format!(
                "BEGIN; LOCK TABLE shares, besom.run IN SHARE ROW EXCLUSIVE MODE; {LEDGER} COMMIT"
            ))
            .await?)
    }

    /// Notes what is about to be compared: the partitions of that owner and what waits in them.
    pub async fn before(&self, owner: &str) -> Result<Before> {
        let create = "
            DROP TABLE IF EXISTS lost_part, lost_item;
            CREATE TEMP TABLE lost_part (id integer PRIMARY KEY);
            CREATE TEMP TABLE lost_item (tenant text, key text, PRIMARY KEY (tenant, key))";
        self.0.batch_execute(create).await?;
        let parts = self
            .0
            .execute(
                "INSERT INTO lost_part SELECT id FROM besom.partition WHERE owner = $1",
                &[&owner],
            )
            .await?;
        let items = "INSERT INTO lost_item SELECT DISTINCT tenant, key FROM besom.item
                     WHERE part IN (SELECT id FROM lost_part)";
        let items = self.0.execute(items, &[]).await?;
        ensure!(parts > 0 && items > 0, "{owner} owns {parts} partitions and {items} items");
        let row = self
            .0
            .query_one(
                "SELECT (SELECT term FROM besom.fence),
                        (SELECT coalesce(max(id), 0) FROM besom.history)",
                &[],
            )
            .await?;
        Ok(Before { term: row.get(0), history: row.get(1) })
    }

    /// What has happened since, and after that instant, without the host of that name.
    pub async fn since(&self, before: Before, gone: &str, at: Micros) -> Result<Since> {
        let micros = |what: &str| format!("(extract(epoch FROM {what}) * 1000000)::int8");
        let sql = format!(
            "WITH late AS (
               SELECT pg_xact_commit_timestamp(h.xmin) AS at, h.run, h.tenant, h.key
               FROM besom.history h JOIN besom.commit c ON c.no = h.commit_no
               WHERE h.id > $1 AND c.node <> $2
             ), owned AS (
               SELECT owner IS DISTINCT FROM $2 AND owner IS NOT NULL AS other,
                      pg_xact_commit_timestamp(xmin) AS at
               FROM besom.partition WHERE id IN (SELECT id FROM lost_part)
             )
             SELECT {}, {}, {}, {}, {}, {}",
            micros("(SELECT pg_xact_commit_timestamp(xmin) FROM besom.fence WHERE term > $3)"),
            micros("(SELECT min(pg_xact_commit_timestamp(xmin)) FROM seen_run WHERE term > $3)"),
            micros(
                "(SELECT min(at) FROM late JOIN seen_run r ON r.run = late.run WHERE r.term > $3)"
            ),
            micros("(SELECT min(at) FROM owned WHERE other)"),
            micros("(SELECT max(at) FROM owned HAVING bool_and(other))"),
            micros(
                "(SELECT min(at) FROM late JOIN lost_item USING (tenant, key)
                  WHERE extract(epoch FROM at) * 1000000 > $4::int8)"
            ),
        );
        let row =
            self.0.query_one(sql.as_str(), &[&before.history, &gone, &before.term, &at.0]).await?;
        let instant = |index: usize| row.get::<_, Option<i64>>(index).map(Micros);
        Ok(Since {
            raised: instant(0),
            planned: instant(1),
            executed: instant(2),
            first_owned: instant(3),
            all_owned: instant(4),
            first_effect: instant(5),
        })
    }

    /// Who owns partitions under the name of a host.
    pub async fn owner_like(&self, host: &str) -> Result<String> {
        let sql = "SELECT DISTINCT owner FROM besom.partition WHERE starts_with(owner, $1 || '-')";
        let row = self.0.query_opt(sql, &[&host]).await?;
        Ok(row.with_context(|| format!("{host} owns nothing"))?.get(0))
    }

    /// Whether every one of these hosts has at least three quarters of an equal share, under
    /// one name each.
    pub async fn shared_out(&self, hosts: &[&str]) -> Result<bool> {
        // No table yet: no host has come that far.
        let there = self.0.query_one("SELECT to_regclass('besom.partition') IS NOT NULL", &[]);
        if !there.await?.get::<_, bool>(0) {
            return Ok(false);
        }
        let sql = "SELECT coalesce(owner, ''), count(*) FROM besom.partition GROUP BY owner";
        let rows = self.0.query(sql, &[]).await?;
        let owners: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let all: i64 = owners.iter().map(|(_, parts)| parts).sum();
        let enough = all * 3 / 4 / hosts.len() as i64;
        let has = |host: &&str| {
            owners.iter().any(|(o, n)| o.starts_with(&format!("{host}-")) && *n >= enough)
        };
        Ok(owners.len() == hosts.len() && hosts.iter().all(has))
    }

    /// Shares that have not ended.
    pub async fn open_shares(&self) -> Result<i64> {
        let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
        Ok(self.0.query_one(sql, &[]).await?.get(0))
    }

    /// How many shares have ended, after a look at each: once, and not before its time.
    pub async fn every_effect_once(&self) -> Result<i64> {
        let sql = "SELECT (SELECT count(*) FROM seen_share),
                          (SELECT count(DISTINCT share) FROM seen_share),
                          (SELECT count(*) FROM shares WHERE unshared_at IS NOT NULL),
                          (SELECT count(*) FROM shares
                           WHERE unshared_at < start_date + interval '7 days'),
                          (SELECT count(*) FROM besom.dead)";
        let row = self.0.query_one(sql, &[]).await?;
        let [seen, distinct, ended, early, dead] = [0, 1, 2, 3, 4].map(|i| row.get::<_, i64>(i));
        ensure!(seen == distinct, "{} effects took place twice", seen - distinct);
        ensure!(seen == ended, "{seen} effects for {ended} shares");
        ensure!(early == 0 && dead == 0, "{early} ended early, {dead} died");
        Ok(ended)
    }
}
