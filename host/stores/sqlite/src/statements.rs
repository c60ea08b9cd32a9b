//! One call per statement: finds it in the connection's cache, or prepares it, and executes it.
//!
//! What executes a statement many times, or stops reading in the midst of its rows, prepares it itself.

use std::borrow::Borrow;

use rusqlite::{Connection, Error, Params, Result as Sql, Row};

/// Statements of a connection, from its cache. A caller's `read` decides what an error is.
pub(super) trait Statements: Borrow<Connection> {
    /// Executes a statement; returns the number of changed rows.
    fn run(&self, sql: &str, params: impl Params) -> Sql<usize> {
        self.borrow().prepare_cached(sql)?.execute(params)
    }

    /// Whether a statement returns a row.
    fn exists(&self, sql: &str, params: impl Params) -> Sql<bool> {
        self.borrow().prepare_cached(sql)?.exists(params)
    }

    /// The first row, if there is one.
    fn first<T, E: From<Error>>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.borrow().prepare_cached(sql)?.query(params)?.next()?.map(read).transpose()
    }

    /// The first row; it is an error if there is none.
    fn one<T, E: From<Error>>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.first(sql, params, read)?.ok_or_else(|| Error::QueryReturnedNoRows.into())
    }

    /// Reads the rows one after the other.
    fn each<E: From<Error>>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut statement = self.borrow().prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            read(row)?;
        }
        Ok(())
    }

    /// All rows.
    fn all<T, E: From<Error>>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut all = Vec::new();
        self.each(sql, params, |row| read(row).map(|read| all.push(read)))?;
        Ok(all)
    }
}

impl Statements for Connection {}
