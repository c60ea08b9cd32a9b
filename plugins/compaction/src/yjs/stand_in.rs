//! Builds models with stand-in contents of the same length.
//!
//! Decides nothing about the document. The place of a unit and its deletion do not depend on its
//! content, so yrs can compute both with contents that it always reads, whatever the
//! document contains: JSON texts, hooks, halves of surrogate pairs.

use super::content::Kind;
use super::model::{Client, Model, Run};
use super::names::Id;

/// The maximum number of units with stand-ins: yrs keeps a value for each.
pub const UNITS_MAX: u64 = 4 * 1024 * 1024;

/// The number of units with a content.
pub fn units(model: &Model) -> u64 {
    let runs = model.clients.iter().flat_map(|client| &client.runs);
    runs.filter(|run| run.kind.has_content()).map(|run| u64::from(run.len)).sum()
}

/// A letter for every unit, an array for every type.
pub fn letters(model: &Model) -> Model {
    stand_in(model, Kind::String, |_, len, arena| {
        arena.resize(arena.len() + len as usize, b'x');
    })
}

/// Its number for every unit ([`Numbers`]), an array for every type.
pub fn numbers(model: &Model, numbers: &Numbers) -> Model {
    const BIG_INTEGER: u8 = 122;
    stand_in(model, Kind::Any, |id, len, arena| {
        for number in (numbers.of(id)..).take(len as usize) {
            arena.push(BIG_INTEGER);
            arena.extend_from_slice(&number.to_be_bytes());
        }
    })
}

/// A number for each unit of a model.
pub struct Numbers(Vec<u64>);

impl Numbers {
    /// The numbers of all units, by client and clock.
    pub fn new(model: &Model) -> Numbers {
        let mut next = 0;
        let first = |client: &Client| {
            let first = next;
            next += u64::from(client.end());
            first
        };
        Numbers(model.clients.iter().map(first).collect())
    }

    /// The number of a unit.
    pub fn of(&self, id: Id) -> u64 {
        self.0[id.client as usize] + u64::from(id.clock)
    }
}

fn stand_in(model: &Model, kind: Kind, mut write: impl FnMut(Id, u32, &mut Vec<u8>)) -> Model {
    const ARRAY: u8 = 0;
    let mut clients = Vec::with_capacity(model.clients.len());
    for (number, former) in model.clients.iter().enumerate() {
        let number = number as u32;
        let mut client = Client {
            explicit: former.explicit.clone(),
            deleted: former.deleted.clone(),
            ..Client::default()
        };
        for run in &former.runs {
            let start = client.arena.len() as u32;
            let kind = match run.kind {
                Kind::Gc | Kind::Deleted => run.kind,
                Kind::Type => {
                    client.arena.push(ARRAY);
                    Kind::Type
                }
                _ => {
                    write(Id { client: number, clock: run.clock }, run.len, &mut client.arena);
                    kind
                }
            };
            let bytes = (start, client.arena.len() as u32);
            client.push(number, Run { kind, bytes, ..*run });
        }
        clients.push(client);
    }
    Model { clients, keeps_deleted: model.keeps_deleted, ..Model::default() }
}
