//! The numbers of task names: a name keeps its number, so it is read only once in a while.
//!
//! A restored database may have given a number that was lost with its name to another task. Therefore nothing
//! is remembered across the beginning of a leadership and across a report of the node, by which it learns of a
//! restore.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use besom_core::ids::TaskName;

use super::error::{Job, invalid};
use super::session::{Session, cell, params};

/// The known numbers.
#[derive(Default)]
pub(super) struct Tasks(RwLock<HashMap<TaskName, i32>>);

impl Tasks {
    fn known(&self, name: &TaskName) -> Option<i32> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn learn(&self, name: &TaskName, id: i32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), id);
    }

    /// Reads every number again.
    pub(super) fn forget(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The number of a name, if it has one.
    pub(super) async fn find(&self, session: &Session, name: &TaskName) -> Job<Option<i32>> {
        if let Some(id) = self.known(name) {
            return Ok(Some(id));
        }
        let asked = params![name.as_str().to_owned()];
        let id = session.maybe("SELECT id FROM @.task WHERE name = $1", asked, cell).await?;
        id.inspect(|id| self.learn(name, *id));
        Ok(id)
    }

    /// The number of a name; assigns one if it has none. Runs outside any transaction, so that the
    /// number is certain to be committed.
    pub(super) async fn number(&self, session: &Session, name: &TaskName) -> Job<i32> {
        if let Some(id) = self.find(session, name).await? {
            return Ok(id);
        }
        session
            .execute(
                "INSERT INTO @.task (name) VALUES ($1) ON CONFLICT DO NOTHING",
                params![name.as_str().to_owned()],
            )
            .await?;
        let id = self.find(session, name).await?;
        id.ok_or_else(|| invalid(format!("the task {name} has no number")))
    }

    /// The numbers of several names.
    pub(super) async fn numbers<'n>(
        &self,
        session: &Session,
        names: impl Iterator<Item = &'n TaskName>,
    ) -> Job<HashMap<TaskName, i32>> {
        let mut all = HashMap::new();
        for name in names {
            if !all.contains_key(name) {
                all.insert(name.clone(), self.number(session, name).await?);
            }
        }
        Ok(all)
    }
}

/// All names with their numbers.
pub(super) async fn names(session: &Session) -> Job<Vec<(i32, TaskName)>> {
    session
        .all("SELECT id, name FROM @.task ORDER BY name", params![], |r| {
            Ok((r.try_get(0)?, r.try_get::<_, String>(1)?.into()))
        })
        .await
}
