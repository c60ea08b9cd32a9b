//! Rows are put back as they were kept: which statements that takes, and what becomes of each row.
//!
//! This module decides without a database. A store asks it for the next statement, executes it inside the commit,
//! and passes on what came of it. A row that somebody has changed since stays, and so does one that the database
//! refuses; the others are put back. A statement is for many rows. If the database refuses it, it is repeated in
//! halves until the rows that are refused are alone.
//!
//! ```text
//!   deleted   ── put ──> done, or its key is taken ── look ──> as it was, stays, or (forced) set
//!   moved     ── look at the copy ── put ── remove the copy
//!   changed   ── look ── set the columns that were set
//!   inserted  ── look ── remove
//! ```
//!
//! The latest change is taken back first, so parents come before the rows that went with them.
//!
//! What belongs together stays together. A row whose parent stays away stays away as well: it would come back under
//! whoever has the parent's key. Of the rows that an undo removes, those that refer to each other go all, or none;
//! and a row that was moved is in one of both tables, never in both. If such a part fails after others of it were
//! changed, everything is taken back to the mark before it, and done again without them.
//!
//! If only chosen rows are put back, those that went with them come along, and all others stay away.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use besom_core::collection::{Collection, Column};
use besom_core::proposal::{Condition, Restore};
use besom_core::purge;
use besom_core::undo::{BETWEEN_NOTES, Differing, FIRST_OF_THEM, STAY, UNCHOSEN, row_name};
use besom_core::value::{Field, RowKey, Value};
use besom_ports::store::{BeforeImage, Left, Restored, Staying};

pub use self::kin::Kin;
use self::kin::Place;
use crate::PARTS_MAX;

/// Maximum number of rows of one statement.
const ROWS_MAX: usize = 4_096;

/// A statement to execute. Rows are named by the keys of their images.
#[derive(Debug)]
pub enum Ask<'r> {
    /// Lock the rows with these keys in a collection, which for the copies of moved rows is another one, and read
    /// them as they are stored.
    Look {
        /// Where to look, by its name in the configuration.
        collection: &'r str,
        /// Images of one collection, whose keys name the rows.
        rows: Vec<&'r BeforeImage>,
    },
    /// Insert rows with all their columns; those whose keys or unique values are taken are left out.
    Put {
        /// The images, of one collection.
        rows: Vec<&'r BeforeImage>,
        /// The only row is not left out: the database says what is taken.
        exact: bool,
    },
    /// Set columns, the same of each row.
    Set {
        /// The images, of one collection, and the columns in the stored form.
        rows: Vec<(&'r BeforeImage, Vec<Field>)>,
    },
    /// Delete rows, but none whose removal would delete or change rows of others.
    Remove {
        /// Where to delete, by its name in the configuration.
        collection: &'r str,
        /// Images of one collection, whose keys name the rows.
        rows: Vec<&'r BeforeImage>,
    },
    /// Remember the present state of the transaction.
    Mark,
    /// Go back to the state that was remembered, and remember it further.
    Back,
    /// Forget the state that was remembered: what was done since stays.
    Keep,
}

/// What came of a statement, row by row.
#[derive(Debug)]
pub enum Answer {
    /// The rows that were looked at; `None`: there is none with that key.
    Looked(Vec<Option<Found>>),
    /// What was done.
    Done(Vec<Did>),
    /// The database refuses the statement, in these words. It has changed nothing.
    Refused(String),
    /// The same, whatever its rows are: a privilege is missing, for example.
    Denied(String),
}

/// A row that was looked at.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its columns as they are stored.
    pub row: Vec<Field>,
    /// Whether it has the values of [`Left::Set`].
    pub holds: bool,
}

/// What became of a row.
#[derive(Debug, Clone)]
pub enum Did {
    /// It was inserted, and is stored like this; `None`: with exactly the columns and values of its image.
    Put(Option<Vec<Field>>),
    /// It was changed, and is stored like this; `None`: only the columns that were set have changed.
    Set(Option<Vec<Field>>),
    /// It was removed, and was stored like this.
    Removed(Vec<Field>),
    /// There is none.
    Missing,
    /// Its key, or a unique value of it, is taken.
    Taken,
    /// The database refuses it, in these words.
    Refused(String),
    /// The same, whatever else is put back.
    Stays(String),
}

/// A row that was changed by putting rows back: what has to be kept of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Undone {
    /// It was inserted with the columns and values of the image at this place.
    Back(usize),
    /// It was changed in another way.
    Changed {
        /// The collection of the row.
        collection: String,
        /// Its key; empty if it is that of a row that was removed, whose columns are kept.
        key: RowKey,
        /// Its columns as they were stored; `None`: it did not exist.
        before: Option<Vec<Field>>,
        /// How it was left.
        left: Left,
    },
}

/// What came of putting rows back.
#[derive(Debug)]
pub struct Ended {
    /// What is said about it.
    pub restored: Restored,
    /// What has to be kept of the rows that were changed, in the order of the changes.
    pub undone: Vec<Undone>,
    /// The images.
    pub images: Vec<BeforeImage>,
}

/// What is asked next. Rows are indices of images.
#[derive(Debug, Clone)]
enum Job {
    LookAtCopies(Vec<usize>),
    Put { rows: Vec<usize>, exact: bool },
    LookAtTaken(Vec<usize>),
    RemoveCopies(Vec<usize>),
    Look(Vec<usize>),
    Set { rows: Vec<usize>, whole: bool },
    Remove(Vec<usize>),
}

impl Job {
    fn rows(&mut self) -> &mut Vec<usize> {
        match self {
            Job::LookAtCopies(rows)
            | Job::Put { rows, .. }
            | Job::LookAtTaken(rows)
            | Job::RemoveCopies(rows)
            | Job::Look(rows)
            | Job::Set { rows, .. }
            | Job::Remove(rows) => rows,
        }
    }
}

/// How a row is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    MoveBack,
    Revert,
    Remove,
    /// It is put back with another row.
    Nothing,
}

fn way(image: &BeforeImage) -> Way {
    match (&image.left, image.stored.is_empty()) {
        (Left::Gone | Left::Unknown, false) => Way::Put,
        (Left::Moved(_), false) => Way::MoveBack,
        (Left::Set(_) | Left::As(_), false) => Way::Revert,
        (Left::Set(_) | Left::As(_) | Left::Unknown, true) => Way::Remove,
        (Left::Copy, _) | (Left::Gone | Left::Moved(_), true) => Way::Nothing,
    }
}

/// Whether it is a row that was deleted or moved.
fn comes_back(image: &BeforeImage) -> bool {
    matches!(way(image), Way::Put | Way::MoveBack)
}

fn name_of(image: &BeforeImage) -> String {
    row_name(&image.collection, &image.key)
}

/// The images of these rows and of those that went with them, and all others. A row that was only changed took none
/// with it.
fn parted(
    images: Vec<BeforeImage>,
    only: &BTreeSet<String>,
    kin: &Kin,
) -> (Vec<BeforeImage>, Vec<BeforeImage>) {
    let mut chosen: Vec<bool> = images.iter().map(|image| only.contains(&name_of(image))).collect();
    kin.add_below(&images, &mut chosen, |image| comes_back(image) || way(image) == Way::Remove);
    let mut at = chosen.into_iter();
    images.into_iter().partition(|_| at.next() == Some(true))
}

/// The rows that earlier attempts have put back, except for those that undos of these have taken back.
#[derive(Debug, Default)]
pub struct Earlier(HashMap<String, i32>);

impl Earlier {
    /// Adds what an attempt has changed (1), or the undo of one (-1): see [`Restore::attempts`].
    pub fn add(&mut self, changed: &[BeforeImage], count: i32) {
        for name in changed.iter().map(name_of).collect::<HashSet<String>>() {
            *self.0.entry(name).or_default() += count;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|count| *count > 0)
    }
}

/// Rows that are being put back.
#[derive(Debug)]
pub struct Restoring {
    images: Vec<BeforeImage>,
    /// The images before this one are still to be begun.
    rest: usize,
    jobs: Vec<Job>,
    current: Option<Job>,
    forced: Arc<BTreeSet<String>>,
    earlier: Earlier,
    /// Rows that were looked at.
    seen: HashMap<usize, Vec<Field>>,
    /// Moved rows whose copies are gone.
    without_copy: HashSet<usize>,
    /// Rows of the current group that were refused, each with the job that was, and why.
    refused: Vec<(usize, Job, String)>,
    /// Whether a row was changed since they were refused.
    progress: bool,
    /// When a statement was first repeated in parts.
    since: Option<Instant>,
    differing: Differing,
    out: Restored,
    undone: Vec<Undone>,
    together: Together,
}

/// What stays together.
#[derive(Debug, Default)]
struct Together {
    kin: Kin,
    /// The rows that are removed together, by the first of each family, and the family of each.
    families: HashMap<usize, Vec<usize>>,
    family: HashMap<usize, usize>,
    /// Rows that stay away, as others refer to them, and their names.
    away: HashMap<Place, String>,
    /// Rows that were purged, as others refer to them.
    purged: HashSet<Place>,
    /// Rows that stay although others of theirs were changed: why, and as they are.
    broken: Vec<(usize, String, Option<Vec<Field>>)>,
    /// Rows that are not tried, because something that belongs to them stays.
    barred: HashMap<usize, (String, Option<Vec<Field>>)>,
    section: Section,
    /// How often everything was taken back.
    times: u32,
    mark: Option<Mark>,
}

/// A statement about the mark.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Nothing was asked yet.
    #[default]
    Begins,
    Marking,
    Running,
    GoingBack,
    Keeping,
    Ended,
}

/// What was known when the mark was set.
#[derive(Debug)]
struct Mark {
    rest: usize,
    out: Restored,
    undone: usize,
    differing: Differing,
    away: HashMap<Place, String>,
}

/// How often parts are excluded one after the other; then all that belongs to others stays.
const TIMES_MAX: u32 = 4;

/// Why a row stays that is not to be found under its key after it was written.
pub const ASTRAY: &str = "a trigger of the database removes it again, or gives it another key";

const LATE: &str = "it was not tried, because finding the rows that the database refuses takes too long; undo it again";

impl Restoring {
    /// Puts back the rows of these images, oldest first, as `restore` says, except for those of `earlier`; `kin`
    /// says which rows belong to others.
    pub fn new(
        images: Vec<BeforeImage>,
        restore: &Restore,
        earlier: Earlier,
        kin: Kin,
    ) -> Restoring {
        let purged = kin.missing(&images, &restore.purged_of);
        let (mut out, mut away) = (Restored::default(), HashMap::new());
        let (images, others) = match &restore.only {
            Some(only) => parted(images, only, &kin),
            None => (images, Vec::new()),
        };
        let mut unchosen = HashSet::new();
        for image in others.iter().filter(|image| way(image) != Way::Nothing) {
            let name = name_of(image);
            if earlier.contains(&name) {
                continue;
            }
            if comes_back(image) {
                away.extend(kin.own(image).map(|place| (place, name.clone())));
            }
            unchosen.insert(name);
        }
        if !unchosen.is_empty() {
            out.notes.push(format!("{UNCHOSEN}{}", unchosen.len()));
        }
        if let Some(only) = &restore.only {
            let found: HashSet<String> = images.iter().map(name_of).collect();
            let gone = only.iter().filter(|name| !found.contains(*name)).count();
            out.notes.extend(purge::note(gone as u64));
        }
        let images = kin.with_parents_last(images, comes_back);
        let removed = |at: &usize| way(&images[*at]) == Way::Remove;
        let removed: Vec<usize> = (0..images.len()).filter(removed).collect();
        let families = match restore.whole {
            true => HashMap::from([(0, (0..images.len()).collect())]),
            false => kin.families(&images, &removed),
        };
        let of = families.iter().flat_map(|(head, all)| all.iter().map(move |at| (*at, *head)));
        let family: HashMap<usize, usize> = of.collect();
        let moves = images.iter().any(|image| way(image) == Way::MoveBack);
        let section = if moves || !families.is_empty() { Section::Begins } else { Section::Ended };
        let together =
            Together { kin, families, family, section, purged, away, ..Together::default() };
        Restoring {
            rest: images.len(),
            images,
            jobs: Vec::new(),
            current: None,
            forced: if restore.whole { Arc::default() } else { Arc::clone(&restore.forced) },
            earlier,
            seen: HashMap::new(),
            without_copy: HashSet::new(),
            refused: Vec::new(),
            progress: false,
            since: None,
            differing: Differing::default(),
            out,
            undone: Vec::new(),
            together,
        }
    }

    /// The next statement; `None`: everything is done.
    pub fn ask(&mut self) -> Option<Ask<'_>> {
        if self.together.section == Section::Begins {
            self.together.section = Section::Marking;
            return Some(Ask::Mark);
        }
        while self.current.is_none() {
            match self.jobs.pop() {
                Some(mut job) => self.current = (!job.rows().is_empty()).then_some(job),
                None if self.tries_again() || self.begins() => {}
                None if self.together.section == Section::Running => {
                    let is_whole = self.together.broken.is_empty();
                    self.together.section =
                        if is_whole { Section::Keeping } else { Section::GoingBack };
                    return Some(if is_whole { Ask::Keep } else { Ask::Back });
                }
                None => return None,
            }
        }
        let of = |rows: &[usize]| rows.iter().map(|at| &self.images[*at]).collect::<Vec<_>>();
        let first = |rows: &[usize]| rows.first().map(|at| &self.images[*at]);
        Some(match self.current.as_ref()? {
            Job::LookAtCopies(rows) => {
                Ask::Look { collection: copies(first(rows)?), rows: of(rows) }
            }
            Job::LookAtTaken(rows) | Job::Look(rows) => {
                Ask::Look { collection: &first(rows)?.collection, rows: of(rows) }
            }
            Job::Put { rows, exact } => Ask::Put { rows: of(rows), exact: *exact },
            Job::Set { rows, whole } => {
                let one = |at: &usize| (&self.images[*at], self.columns(*at, *whole));
                Ask::Set { rows: rows.iter().map(one).collect() }
            }
            Job::RemoveCopies(rows) => {
                Ask::Remove { collection: copies(first(rows)?), rows: of(rows) }
            }
            Job::Remove(rows) => {
                Ask::Remove { collection: &first(rows)?.collection, rows: of(rows) }
            }
        })
    }

    /// Takes what came of the statement.
    pub fn answer(&mut self, answer: Answer) {
        let Some(job) = self.current.take() else { return self.turned() };
        match (job, answer) {
            (Job::LookAtCopies(rows), Answer::Looked(found)) => self.copies_seen(rows, found),
            (Job::LookAtTaken(rows), Answer::Looked(found)) => self.taken_seen(rows, found),
            (Job::Look(rows), Answer::Looked(found)) => self.seen(rows, found),
            (Job::Put { rows, exact }, Answer::Done(did)) => self.put(rows, exact, did),
            (mut job, Answer::Done(did)) => {
                let rows = std::mem::take(job.rows());
                for (at, did) in rows.into_iter().zip(did) {
                    self.did(&job, at, did);
                }
            }
            (mut job, Answer::Refused(said)) => {
                let is_late = self.since.get_or_insert_with(Instant::now).elapsed() > PARTS_MAX;
                let rows = job.rows();
                match rows.len() {
                    0 | 1 => {
                        if let Some(at) = rows.pop() {
                            self.refuse(&job, at, said);
                        }
                    }
                    _ if is_late => {
                        let rows = std::mem::take(rows);
                        rows.into_iter().for_each(|at| match job {
                            Job::RemoveCopies(_) => self.breaks(at, LATE.to_owned(), None),
                            _ => self.stays(at, LATE.to_owned()),
                        });
                    }
                    count => {
                        let mut second = job.clone();
                        *second.rows() = job.rows().split_off(count / 2);
                        self.jobs.extend([second, job]);
                    }
                }
            }
            (mut job, Answer::Denied(said)) => {
                let rows = std::mem::take(job.rows());
                rows.into_iter().for_each(|at| self.refuse(&job, at, said.clone()));
            }
            // An answer to another question.
            (mut job, Answer::Looked(_)) => {
                let rows = std::mem::take(job.rows());
                rows.into_iter().for_each(|at| self.stays(at, "it was not looked at".to_owned()));
            }
        }
    }

    /// What was done, and what has to be kept of it.
    pub fn end(mut self) -> Ended {
        if self.differing.rows > 0 {
            self.out.notes.push(self.differing.to_string());
        }
        Ended { restored: self.out, undone: self.undone, images: self.images }
    }

    // ---- what belongs together

    /// A statement about the mark was executed.
    fn turned(&mut self) {
        match self.together.section {
            Section::Marking => {
                let (rest, undone) = (self.rest, self.undone.len());
                let (out, differing) = (self.out.clone(), self.differing.clone());
                let away = self.together.away.clone();
                self.together.mark = Some(Mark { rest, out, undone, differing, away });
                self.together.section = Section::Running;
            }
            Section::GoingBack => {
                self.bar();
                if let Some(mark) = &self.together.mark {
                    self.rest = mark.rest;
                    self.out.clone_from(&mark.out);
                    self.differing.clone_from(&mark.differing);
                    self.undone.truncate(mark.undone);
                    self.together.away.clone_from(&mark.away);
                }
                self.without_copy.clear();
                self.together.section = Section::Running;
            }
            Section::Keeping => self.together.section = Section::Ended,
            Section::Begins | Section::Running | Section::Ended => {}
        }
    }

    /// Excludes what is broken, and what belongs to it.
    fn bar(&mut self) {
        let Together { families, family, broken, barred, times, .. } = &mut self.together;
        *times += 1;
        let broken = std::mem::take(broken);
        let failed: Vec<usize> = broken.iter().map(|(at, ..)| *at).collect();
        barred.extend(broken.into_iter().map(|(at, why, now)| (at, (why, now))));
        for at in failed {
            let of = &self.images[at];
            let why = belongs(&name_of(of));
            let all = family.get(&at).and_then(|head| families.get(head));
            for other in all.into_iter().flatten() {
                let now = as_left(&self.images[*other]);
                barred.entry(*other).or_insert_with(|| (why.clone(), now));
            }
        }
        if *times >= TIMES_MAX {
            let moved = |at: &usize| way(&self.images[*at]) == Way::MoveBack;
            let moved = (0..self.images.len()).filter(moved);
            for at in moved.chain(family.keys().copied()) {
                let now = as_left(&self.images[at]);
                barred.entry(at).or_insert_with(|| (LATE.to_owned(), now));
            }
        }
    }

    /// A row stays, and everything that belongs to it has to stay as well.
    fn breaks(&mut self, at: usize, why: String, now: Option<Vec<Field>>) {
        self.together.broken.push((at, why, now));
    }

    /// Whether a row is not tried, because something that belongs to it stays; then it is listed.
    fn is_kept_away(&mut self, at: usize) -> bool {
        if let Some((why, now)) = self.together.barred.get(&at) {
            let (why, now) = (why.clone(), now.clone());
            self.lists(at, why, now);
            return true;
        }
        let Together { kin, away, purged, .. } = &self.together;
        if away.is_empty() && purged.is_empty() || self.is_forced(at) {
            return false;
        }
        let image = &self.images[at];
        if !comes_back(image) {
            return false;
        }
        let why = kin.above(image).find_map(|place| match away.get(&place) {
            Some(name) => Some(belongs(name)),
            None => purged.contains(&place).then(|| {
                let of = &place.0;
                format!(
                    "it belongs to a row of {of} that is not part of this undo, where rows were purged: one with its key \
                     now may be another one"
                )
            }),
        });
        let Some(why) = why else { return false };
        self.lists(at, why, None);
        true
    }

    // ---- groups

    /// Begins with the next rows; false: there are none.
    fn begins(&mut self) -> bool {
        let mut rows: Vec<usize> = Vec::new();
        let (mut keys, mut group) = (HashSet::new(), HashSet::new());
        self.seen.clear();
        while let Some(at) = self.rest.checked_sub(1) {
            let image = &self.images[at];
            if let Some(first) = rows.first().map(|first| &self.images[*first])
                && (!alike(first, image) || rows.len() >= ROWS_MAX)
            {
                break;
            }
            let way = way(image);
            if way == Way::Nothing {
                self.rest = at;
                continue;
            }
            // Most rows are deleted ones, of which there is one change and no earlier attempt.
            let is_single = matches!(way, Way::Put | Way::MoveBack);
            if !is_single || !self.earlier.is_empty() {
                let name = name_of(image);
                if self.earlier.contains(&name) {
                    self.out.already += 1;
                    self.rest = at;
                    continue;
                }
                // Two changes of one row are taken back one after the other.
                if !is_single && !keys.insert(name) {
                    break;
                }
            }
            // Whether a row comes back is known before those that belong to it are tried.
            if is_single && self.together.kin.is_within(&image.collection) {
                if self.together.kin.above(image).any(|place| group.contains(&place)) {
                    break;
                }
                group.extend(self.together.kin.own(image));
            }
            self.rest = at;
            if !self.is_kept_away(at) {
                rows.push(at);
            }
        }
        // What was kept away may have been the last.
        if rows.is_empty() && self.rest > 0 {
            return true;
        }
        let Some(first) = rows.first() else { return false };
        self.jobs.push(match way(&self.images[*first]) {
            Way::Put | Way::Nothing => Job::Put { rows, exact: false },
            Way::MoveBack => Job::LookAtCopies(rows),
            Way::Revert | Way::Remove => Job::Look(rows),
        });
        true
    }

    /// Tries rows again that were refused, if others have been changed since: one may refer to another.
    fn tries_again(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        if !std::mem::take(&mut self.progress) || refused.is_empty() {
            for (at, _, said) in refused {
                self.stays(at, said);
            }
            return false;
        }
        for (at, mut job, _) in refused {
            *job.rows() = vec![at];
            self.jobs.push(job);
        }
        true
    }

    // ---- answers

    fn copies_seen(&mut self, rows: Vec<usize>, found: Vec<Option<Found>>) {
        let mut free = Vec::new();
        for (at, found) in rows.into_iter().zip(found) {
            let image = &self.images[at];
            let into = copies(image).to_owned();
            match found {
                Some(found) if is_same(&image.stored, &found.row) || self.is_forced(at) => {
                    free.push(at);
                }
                None if self.is_forced(at) => {
                    self.without_copy.insert(at);
                    free.push(at);
                }
                Some(found) => {
                    let why = format!("its row in {into:?} was changed since");
                    self.stays_as(at, why, Some(found.row));
                }
                None => self.stays_as(at, format!("its row in {into:?} is gone"), None),
            }
        }
        self.jobs.push(Job::Put { rows: free, exact: false });
    }

    fn put(&mut self, rows: Vec<usize>, exact: bool, did: Vec<Did>) {
        let (mut taken, mut copies) = (Vec::new(), Vec::new());
        let job = Job::Put { rows: Vec::new(), exact };
        for (at, did) in rows.into_iter().zip(did) {
            match did {
                Did::Taken => taken.push(at),
                Did::Put(_) if matches!(self.images[at].left, Left::Moved(_)) => {
                    self.did(&job, at, did);
                    if !self.without_copy.contains(&at) {
                        copies.push(at);
                    }
                }
                did => self.did(&job, at, did),
            }
        }
        self.jobs.extend([Job::LookAtTaken(taken), Job::RemoveCopies(copies)]);
    }

    fn taken_seen(&mut self, rows: Vec<usize>, found: Vec<Option<Found>>) {
        let mut forced = Vec::new();
        for (at, found) in rows.into_iter().zip(found) {
            match found {
                // Something else of it is taken; the database says what.
                None => self.jobs.push(Job::Put { rows: vec![at], exact: true }),
                Some(found) if is_same(&self.images[at].stored, &found.row) => {
                    self.out.already += 1;
                    self.removes_copy(at);
                }
                Some(found) if self.is_forced(at) => {
                    self.seen.insert(at, found.row);
                    forced.push(at);
                }
                Some(found) => {
                    let why = match self.images[at].left {
                        Left::Unknown => {
                            "a row with its key exists, and what the run has done to it was not recorded"
                        }
                        _ => "its key is taken by another row",
                    };
                    self.stays_as(at, why.to_owned(), Some(found.row));
                }
            }
        }
        // Each has columns of its own that differ.
        let set = |at| Job::Set { rows: vec![at], whole: true };
        self.jobs.extend(forced.into_iter().map(set));
    }

    fn seen(&mut self, rows: Vec<usize>, found: Vec<Option<Found>>) {
        let (mut set, mut remove, mut put) = (Vec::new(), Vec::new(), Vec::new());
        for (at, found) in rows.into_iter().zip(found) {
            let image = &self.images[at];
            let (reverts, forced) = (way(image) == Way::Revert, self.is_forced(at));
            let Some(Found { row, holds }) = found else {
                match (reverts, forced) {
                    (false, _) => self.out.already += 1,
                    (true, true) => put.push(at),
                    (true, false) => self.stays_as(at, "the row is gone".to_owned(), None),
                }
                continue;
            };
            let holds = match &image.left {
                Left::As(fields) => is_same(fields, &row),
                Left::Set(_) => holds,
                _ => false,
            };
            if !holds && reverts && is_same(&columns(image), &row) {
                self.out.already += 1;
            } else if holds || forced {
                self.seen.insert(at, row);
                if reverts { set.push(at) } else { remove.push(at) }
            } else {
                let why = match (&image.left, reverts) {
                    (Left::Unknown, _) => "what the run has inserted was not recorded",
                    (_, true) => "it was changed since",
                    (_, false) => "it was changed since it was inserted",
                };
                self.stays_as(at, why.to_owned(), Some(row));
            }
        }
        self.jobs.extend([
            Job::Put { rows: put, exact: false },
            Job::Set { rows: set, whole: false },
            Job::Remove(remove),
        ]);
    }

    fn did(&mut self, job: &Job, at: usize, did: Did) {
        if let Did::Put(None) = did {
            self.undone.push(Undone::Back(at));
            self.progress = true;
            self.out.rows += 1;
            return;
        }
        let image = &self.images[at];
        let (collection, key) = (image.collection.clone(), image.key.clone());
        match did {
            Did::Put(None) => {}
            Did::Put(Some(after)) => {
                self.differing
                    .add(differing(&image.stored, &after), || row_name(&collection, &key));
                let left = Left::As(after);
                self.undone.push(Undone::Changed { collection, key, before: None, left });
            }
            Did::Set(after) => {
                let whole = matches!(job, Job::Set { whole: true, .. });
                let mut set = self.columns(at, whole);
                let before = self.seen.remove(&at);
                if let Some(after) = after {
                    let other =
                        unexpected(&set, &self.images[at].stored, before.as_deref(), &after);
                    self.differing.add(other, || row_name(&collection, &key));
                    for field in &mut set {
                        let now = after.iter().find(|now| now.name == field.name);
                        now.into_iter().for_each(|now| field.value.clone_from(&now.value));
                    }
                }
                let left = Left::As(set);
                self.undone.push(Undone::Changed { collection, key, before, left });
                self.removes_copy(at);
            }
            Did::Removed(row) => {
                let is_copy = matches!(job, Job::RemoveCopies(_));
                let collection = if is_copy { copies(image).to_owned() } else { collection };
                let (key, before, left) = (RowKey::new(), Some(row), Left::Gone);
                self.undone.push(Undone::Changed { collection, key, before, left });
                self.progress = true;
                self.out.rows += u64::from(!is_copy);
                return;
            }
            Did::Missing => {
                match job {
                    Job::Remove(_) => self.out.already += 1,
                    Job::RemoveCopies(_) => self.copy_stays(at, "a trigger or a rule prevents it"),
                    _ => self.stays_as(at, "the row is gone".to_owned(), None),
                }
                return;
            }
            Did::Taken => return self.stays(at, "its key is taken by another row".to_owned()),
            Did::Refused(said) => return self.refuse(job, at, said),
            Did::Stays(said) => return self.stays(at, said),
        }
        self.progress = true;
        self.out.rows += 1;
    }

    /// A row that was moved is in its table again: it is not left in the other one.
    fn removes_copy(&mut self, at: usize) {
        let is_moved = matches!(self.images[at].left, Left::Moved(_));
        if is_moved && !self.without_copy.contains(&at) {
            self.jobs.push(Job::RemoveCopies(vec![at]));
        }
    }

    fn refuse(&mut self, job: &Job, at: usize, said: String) {
        match job {
            // What is taken stays taken.
            Job::Put { exact: true, .. } => self.stays(at, said),
            Job::RemoveCopies(_) => self.copy_stays(at, &said),
            job => self.refused.push((at, job.clone(), said)),
        }
    }

    /// The columns of an image that are set: those that the change has set, or all that differ.
    fn columns(&self, at: usize, whole: bool) -> Vec<Field> {
        let image = &self.images[at];
        match self.seen.get(&at).filter(|_| whole) {
            Some(row) => {
                let other = differing(&image.stored, row);
                image
                    .stored
                    .iter()
                    .filter(|field| other.iter().any(|name| field.name == *name))
                    .cloned()
                    .collect()
            }
            None => columns(image),
        }
    }

    fn is_forced(&self, at: usize) -> bool {
        let image = &self.images[at];
        !self.forced.is_empty() && self.forced.contains(&name_of(image))
    }

    fn copy_stays(&mut self, at: usize, said: &str) {
        let into = copies(&self.images[at]);
        let why = format!("its row in {into:?} could not be removed: {said}");
        self.breaks(at, why, None);
    }

    fn stays(&mut self, at: usize, why: String) {
        let now = self.seen.remove(&at);
        self.stays_as(at, why, now);
    }

    fn stays_as(&mut self, at: usize, why: String, now: Option<Vec<Field>>) {
        if self.together.family.contains_key(&at) {
            self.breaks(at, why.clone(), now.clone());
        }
        self.lists(at, why, now);
    }

    fn lists(&mut self, at: usize, why: String, now: Option<Vec<Field>>) {
        let image = &self.images[at];
        if !self.together.kin.is_empty() && comes_back(image) {
            let name = name_of(image);
            let Together { kin, away, .. } = &mut self.together;
            away.extend(kin.own(image).map(|place| (place, name.clone())));
        }
        let BeforeImage { collection, key, stored, .. } = &self.images[at];
        let (collection, key, kept) = (collection.clone(), key.clone(), stored.clone());
        self.out.stay.push(Staying { collection, key, why, kept, now });
    }
}

/// Nothing is put back, for this reason.
pub fn nothing(why: &str) -> Restored {
    Restored { notes: vec![format!("{STAY}{why}")], ..Restored::default() }
}

/// Why nothing is put back of an item of which nothing is kept any more.
pub const REMOVED: &str = "what was kept of them was removed";

/// Why nothing is put back into a collection that the mapping lacks.
pub fn unmapped(collection: &str) -> String {
    format!("the collection {collection:?} is no longer mapped")
}

/// Why nothing is put back into a table that the database lacks.
pub fn absent(table: &str) -> String {
    format!("there is no table {table:?}")
}

/// The note on columns that a table has lost; `None`: it has lost none.
pub fn lost(collection: &str, columns: &[&str]) -> Option<String> {
    let names = columns.join(", ");
    let note =
        || format!("{collection:?} no longer has {names}: the values stay with what was kept");
    (!columns.is_empty()).then(note)
}

/// The key of a row in a table: its own, or that of its copy. `stored` tells the value of a column in the row.
pub fn key_in(
    image: &BeforeImage,
    collection: &Collection,
    stored: impl Fn(&str, Column) -> Option<Value>,
) -> RowKey {
    if collection.name == image.collection {
        return image.key.clone();
    }
    let value = |name: &String| stored(name, *collection.columns.get(name)?);
    collection.key.iter().map(|name| value(name).unwrap_or(Value::Null)).collect()
}

/// What a row of a collection has to meet if it is as the change has left it, as far as a statement compares it.
pub fn compared(image: &BeforeImage, collection: &str) -> Vec<Condition> {
    match &image.left {
        Left::Set(fields) if image.collection == collection => {
            fields.iter().map(|f| Condition::equal(f.name.as_str(), f.value.clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// The reason of a history row; `None`: every row is back as it was.
pub fn said(restored: &Restored) -> Option<String> {
    let mut words = Vec::new();
    if let Some(first) = restored.stay.first() {
        let name = row_name(&first.collection, &first.key);
        // The words of the database are one note, and no end of it.
        let why = first.why.replace(BETWEEN_NOTES, ", ");
        words.push(match restored.stay.len() {
            1 => format!("{STAY}{name}: {why}"),
            count => format!("{STAY}{count}{FIRST_OF_THEM}{name}: {why}"),
        });
    }
    words.extend(restored.notes.iter().cloned());
    (!words.is_empty()).then(|| words.join(BETWEEN_NOTES))
}

/// The collection that has the copy of a moved row.
fn copies(image: &BeforeImage) -> &str {
    match &image.left {
        Left::Moved(into) => into,
        _ => &image.collection,
    }
}

/// Whether two images can be put back by one statement.
fn alike(one: &BeforeImage, other: &BeforeImage) -> bool {
    let names = |of: &[Field], others: &[Field]| {
        of.iter().map(|field| &field.name).eq(others.iter().map(|field| &field.name))
    };
    let set = || match (&one.left, &other.left) {
        // What is compared is part of the statement.
        (Left::Set(of), Left::Set(others)) => of == others,
        (Left::As(of), Left::As(others)) => names(of, others),
        (Left::Set(_) | Left::As(_), _) | (_, Left::Set(_) | Left::As(_)) => false,
        _ => true,
    };
    way(other) == Way::Nothing
        || (one.collection == other.collection
            && one.tenant == other.tenant
            && way(one) == way(other)
            && copies(one) == copies(other)
            && set()
            && one.stored.len() == other.stored.len())
}

/// Why a row stays that belongs to one that stays.
fn belongs(name: &str) -> String {
    format!("it belongs to {name}, which stays as it is")
}

/// A row that is to be removed, as it was inserted.
fn as_left(image: &BeforeImage) -> Option<Vec<Field>> {
    match (&image.left, way(image)) {
        (Left::As(fields), Way::Remove) => Some(fields.clone()),
        _ => None,
    }
}

/// The columns that have other values after a change than before it, and than they were set to. A column that the
/// database computes gets the value back that it had.
fn unexpected(
    set: &[Field],
    kept: &[Field],
    before: Option<&[Field]>,
    after: &[Field],
) -> Vec<String> {
    let value =
        |of: &[Field], name: &str| of.iter().find(|f| f.name == name).map(|f| f.value.clone());
    let is_expected = |now: &&Field| match value(set, &now.name) {
        Some(to) => to == now.value,
        None => {
            let known = [before.and_then(|row| value(row, &now.name)), value(kept, &now.name)];
            known.contains(&Some(now.value.clone()))
        }
    };
    after.iter().filter(|now| !is_expected(now)).map(|now| now.name.to_string()).collect()
}

/// The columns of an image that the change has set, as they were.
fn columns(image: &BeforeImage) -> Vec<Field> {
    let set = |field: &&Field| match &image.left {
        Left::Set(fields) | Left::As(fields) => fields.iter().any(|of| of.name == field.name),
        _ => false,
    };
    image.stored.iter().filter(set).cloned().collect()
}

/// Whether a row has these values, as far as it has the columns.
fn is_same(fields: &[Field], row: &[Field]) -> bool {
    differing(fields, row).is_empty()
}

fn differing(fields: &[Field], row: &[Field]) -> Vec<String> {
    // The columns are the same and in one order, unless the table has changed.
    let is_alike = fields.len() == row.len()
        && fields.iter().zip(row).all(|(one, other)| one.name == other.name);
    let other = |(at, field): (usize, &Field)| {
        let now = match is_alike {
            true => row.get(at),
            false => row.iter().find(|now| now.name == field.name),
        };
        now.filter(|now| now.value != field.value).map(|now| now.name.to_string())
    };
    fields.iter().enumerate().filter_map(other).collect()
}

mod kin;
#[cfg(test)]
mod tests;
