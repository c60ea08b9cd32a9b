//! A directory with a configuration and a database with the entity model, filled by plain SQL.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use besom::cli::assembly::Assembly;
use besom::cli::open::Purpose;
use besom::cli::{Format, Global};
use besom_config::template::{Template, template};
use besom_ports::store::Store as _;
use besom_product::model::default_collections;
use besom_sqlite::{Options, SqliteStore};
use rusqlite::Connection;

/// The one tenant.
pub const TENANT: &str = "bench";

/// A directory that goes with its value.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// A new one, with the entity model and one tenant.
    pub async fn new(configuration: &Template) -> Result<Place> {
        let place = Place { dir: tempfile::tempdir()? };
        std::fs::write(place.config(), template(configuration))?;
        let store = place.store()?;
        besom_product::model::product::create_tables(&*store).await?;
        place.sql()?.execute("INSERT INTO projects VALUES (?1)", [TENANT])?;
        Ok(place)
    }

    /// The configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("besom.toml")
    }

    /// A file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The store, with the default mapping.
    pub fn store(&self) -> Result<Arc<SqliteStore>> {
        let store = SqliteStore::open(self.file("besom.db"), Options::default())?;
        store.set_collections(Arc::new(default_collections()));
        Ok(store)
    }

    /// A connection of our own.
    pub fn sql(&self) -> Result<Connection> {
        let conn = Connection::open(self.file("besom.db"))?;
        conn.busy_timeout(std::time::Duration::from_secs(10))?;
        Ok(conn)
    }

    /// A host's adapters and plugins, as the command line assembles them.
    pub async fn assembly(&self, tasks: &[&str]) -> Result<Assembly> {
        self.assembly_with(tasks, &[]).await
    }

    /// The same with settings that stand above the configuration, as `--set` has them.
    pub async fn assembly_with(&self, tasks: &[&str], set: &[String]) -> Result<Assembly> {
        let global = Global {
            config: self.config(),
            output: Format::Json,
            log: "warn".into(),
            set: set.to_vec(),
        };
        let mut assembly = Assembly::new(&global, Purpose::Serve)
            .await
            .map_err(|e| anyhow!("{e}"))
            .context("assembly")?;
        let tasks: Vec<String> = tasks.iter().map(|task| (*task).to_owned()).collect();
        assembly.only(&tasks).map_err(|e| anyhow!("{e}"))?;
        Ok(assembly)
    }
}

/// The shipped configuration with a database beside it.
pub fn shipped() -> Template {
    Template::default().with_built_in().set("host.default_mode", "\"live\"")
}
