//! Computes the order in which a document shows its content, by integrating a model as Yjs does.
//!
//! Decides, for every shared type, the order of its list and the unit shown for each of its keys.
//! Does not interpret contents. The result is compared with the order that yrs computes
//! ([`super::library::misplaced`]).
//!
//! ```text
//! Model ──cut──> fragments ──integrate──> a list per type and key ──walk──> steps:
//!   parent "t" · list · content · content · key "k" · content · parent (nested) · …
//! ```

use std::collections::HashMap;

use super::content::Kind;
use super::fragment::{Fragment, fragments};
use super::home::Home;
use super::integration::{Integration, NONE};
use super::model::Model;
use super::names::{Id, Names, Text};

/// The reason why a model cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The model has more than [`super::fragment::FRAGMENTS_MAX`] fragments.
    TooLarge,
    /// Changes depend on each other in a cycle.
    Circle,
}

/// A shared type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A root of the document, by name.
    Root(Text),
    /// A nested type, by the unit that contains it.
    Item(Id),
}

/// A step of the walk through a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A shared type. Nested types follow in the order in which the walk finds them.
    Parent(Holder),
    /// The list of the type, or one of its keys.
    Slot(Text),
    /// The next content of the list or of the key, by its index.
    Content(u32),
}

/// A model with its order.
pub struct Layout<'m> {
    fragments: Vec<Fragment<'m>>,
    steps: Vec<Step>,
}

impl<'m> Layout<'m> {
    /// Integrates a model and walks through the result.
    pub fn of(names: &Names, model: &'m Model) -> Result<Layout<'m>, Unfit> {
        let fragments = fragments(model)?;
        let mut integration = Integration::new(names, fragments);
        integration.run()?;
        let next = std::mem::take(&mut integration.next);
        let first = std::mem::take(&mut integration.first);
        let fragments = integration.into_fragments();
        let steps = walk(names, &fragments, &next, &first);
        Ok(Layout { fragments, steps })
    }

    /// Whether integrating the units in the order of their arrival gives the same layout. This
    /// holds unless a unit was modified after its insertion; otherwise each replica shows the
    /// version that it received first.
    pub fn is_settled(names: &Names, model: &'m Model) -> Result<bool, Unfit> {
        if let [] | [_] = model.arrivals[..] {
            // The units of one client have only one order.
            return Ok(true);
        }
        let mut fresh = Integration::new(names, fragments(model)?);
        fresh.run()?;
        let next = std::mem::take(&mut fresh.next);
        let first = std::mem::take(&mut fresh.first);
        let mut come = Integration::new(names, fresh.into_fragments());
        come.run_as_come(&model.arrivals)?;
        Ok(come.next == next && come.first == first)
    }

    /// All steps to living content, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The fragment of a [`Step::Content`].
    pub fn fragment(&self, index: u32) -> &Fragment<'m> {
        &self.fragments[index as usize]
    }

    /// The number of living units.
    pub fn units(&self) -> u64 {
        let len = |step: &Step| match *step {
            Step::Content(index) => u64::from(self.fragment(index).len),
            Step::Parent(_) | Step::Slot(_) => 0,
        };
        self.steps.iter().map(len).sum()
    }
}

/// Walks from the roots, by name, through all living content: of each type first its list,
/// then its keys, by name.
fn walk(
    names: &Names,
    fragments: &[Fragment<'_>],
    next: &[u32],
    first: &HashMap<Home, u32>,
) -> Vec<Step> {
    let mut slots: HashMap<Holder, Vec<(Text, u32)>> = HashMap::new();
    for (&home, &first) in first {
        let (holder, key) = match home {
            Home::Root(name, key) => (Holder::Root(name), key),
            Home::Item(id, key) => (Holder::Item(id), key),
            Home::Lost => continue,
        };
        slots.entry(holder).or_default().push((key, first));
    }
    let name = |text: Text| text.is_some().then(|| names.text_of(text));
    for slots in slots.values_mut() {
        slots.sort_unstable_by_key(|&(key, _)| name(key));
    }
    let mut holders: Vec<Holder> =
        slots.keys().copied().filter(|holder| matches!(holder, Holder::Root(_))).collect();
    holders.sort_unstable_by_key(|&holder| match holder {
        Holder::Root(text) => name(text),
        Holder::Item(_) => None,
    });

    let mut steps = Vec::new();
    let mut at = 0;
    while let Some(&holder) = holders.get(at) {
        at += 1;
        let before = steps.len();
        steps.push(Step::Parent(holder));
        for &(key, first) in slots.get(&holder).map_or(&[][..], Vec::as_slice) {
            let start = steps.len();
            steps.push(Step::Slot(key));
            let list = std::iter::successors(Some(first), |&index| {
                Some(next[index as usize]).filter(|&next| next != NONE)
            });
            let shown: Vec<u32> =
                if key.is_some() { list.last().into_iter().collect() } else { list.collect() };
            for index in shown {
                let fragment = &fragments[index as usize];
                if fragment.deleted {
                    continue;
                }
                steps.push(Step::Content(index));
                if fragment.kind == Kind::Type {
                    holders.push(Holder::Item(fragment.id()));
                }
            }
            if steps.len() == start + 1 {
                steps.pop();
            }
        }
        // An empty root does not exist; an empty nested type does.
        if steps.len() == before + 1 && matches!(holder, Holder::Root(_)) {
            steps.pop();
        }
    }
    steps
}
