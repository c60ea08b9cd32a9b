//! Replays a trace: every transaction is applied by its author's replica at exactly the version
//! that its parents describe.
//!
//! An author is a Yjs client id. It belongs to one agent, and its transactions form a chain: if a
//! transaction of an agent has not seen the agent's previous one, a new author is created, because
//! a client id with two branches would corrupt the document. So the replica of an author never
//! contains anything that its next transaction has not seen, and only needs to receive what is
//! missing.

use super::replicas::{Replica, Version};
use super::{Error, Kind, Patch, Trace};
use crate::log::UpdateLog;

/// Maximum number of authors of one trace (agents, and branches of one agent).
pub const AUTHORS_MAX: usize = 1_024;

/// The client id of the first author; the others follow. Yjs uses 32 random bits, so a realistic id
/// takes five bytes.
const FIRST_CLIENT: u64 = 0x1DEA_0001;

/// The client id of a replica that writes nothing.
const READER_CLIENT: u64 = FIRST_CLIENT - 1;

/// Number of transactions between two progress reports.
const PROGRESS_EVERY: usize = 4_096;

/// The author of a transaction, and what was seen before it.
struct Step {
    author: u32,
    before: Version,
}

/// All steps, planned before any is executed.
struct Plan {
    steps: Vec<Step>,
    /// The number of authors.
    authors: u32,
    /// The last step of each author.
    last: Vec<usize>,
}

pub(super) fn replay(
    trace: &Trace,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<UpdateLog, Error> {
    let plan = plan(trace)?;
    let mut run = Run::new(trace, plan.authors);
    run.start()?;
    let total = plan.steps.len();
    for (number, step) in plan.steps.iter().enumerate() {
        run.step(number, step)?;
        if plan.last[step.author as usize] == number {
            run.retire(step.author);
        }
        if (number + 1) % PROGRESS_EVERY == 0 {
            progress(number + 1, total);
        }
    }
    progress(total, total);
    run.finish()
}

/// Determines the author and the version of every transaction.
fn plan(trace: &Trace) -> Result<Plan, Error> {
    // The initial text is the first transaction of author 0; in a concurrent trace, this author
    // makes no others.
    let mut root = Version::default();
    let mut chains: Vec<Chain> = Vec::new();
    if !trace.start.is_empty() {
        root.advance(0);
        let agent = (trace.kind == Kind::Sequential).then_some(0);
        chains.push(Chain { agent, length: 1, last: 0 });
    }
    let mut steps: Vec<Step> = Vec::with_capacity(trace.transactions.len());
    for (number, transaction) in trace.transactions.iter().enumerate() {
        let mut before = root.clone();
        match trace.kind {
            Kind::Sequential => steps.last().into_iter().for_each(|step| see(&mut before, step)),
            Kind::Concurrent { .. } => {
                let parents = transaction.parents.iter();
                parents.for_each(|&parent| see(&mut before, &steps[parent as usize]));
            }
        }
        let free = |(author, chain): (usize, &Chain)| {
            chain.agent == Some(transaction.agent) && before.of(author as u32) == chain.length
        };
        let author = match chains.iter().enumerate().position(free) {
            Some(author) => author,
            None if chains.len() < AUTHORS_MAX => {
                chains.push(Chain { agent: Some(transaction.agent), length: 0, last: 0 });
                chains.len() - 1
            }
            None => {
                let message = format!("more than {AUTHORS_MAX} branches are edited concurrently");
                return Err(trace.refuse(number, message));
            }
        };
        chains[author].length += 1;
        chains[author].last = number;
        steps.push(Step { author: author as u32, before });
    }
    let last = chains.iter().map(|chain| chain.last).collect();
    Ok(Plan { steps, authors: chains.len() as u32, last })
}

/// The transactions of one author.
struct Chain {
    /// `None`: the author only wrote the initial text.
    agent: Option<u32>,
    length: u32,
    last: usize,
}

/// Adds a step and what it has seen.
fn see(version: &mut Version, step: &Step) {
    let mut after = step.before.clone();
    after.advance(step.author);
    version.join(&after);
}

/// The replicas and the updates that they have sent.
struct Run<'t> {
    trace: &'t Trace,
    /// Whether the text can ever contain a character of two UTF-16 units.
    wide_characters: bool,
    /// By author; `None`: not started, or retired.
    replicas: Vec<Option<Replica>>,
    /// All updates sent, in order, with their authors.
    sent: Vec<(u32, Vec<u8>)>,
    /// By author: indexes into `sent`.
    chains: Vec<Vec<usize>>,
    /// The version that contains everything sent.
    version: Version,
}

impl<'t> Run<'t> {
    fn new(trace: &'t Trace, authors: u32) -> Run<'t> {
        let inserted = trace.transactions.iter().flat_map(|t| &t.patches).map(|p| &p.inserted);
        let wide = |text: &String| text.chars().any(|c| c.len_utf16() == 2);
        Run {
            trace,
            wide_characters: inserted.chain([&trace.start]).any(wide),
            replicas: (0..authors).map(|_| None).collect(),
            sent: Vec::with_capacity(trace.transactions.len() + 1),
            chains: vec![Vec::new(); authors as usize],
            version: Version::default(),
        }
    }

    /// Writes the initial text of the trace.
    fn start(&mut self) -> Result<(), Error> {
        if self.trace.start.is_empty() {
            return Ok(());
        }
        let patch = Patch { position: 0, deleted: 0, inserted: self.trace.start.clone() };
        let mut replica = self.replica(0);
        let update = replica.edit(0, &[patch]).map_err(|message| self.trace.refuse(0, message))?;
        self.replicas[0] = Some(replica);
        self.send(0, update);
        Ok(())
    }

    /// Executes one transaction.
    fn step(&mut self, number: usize, step: &Step) -> Result<(), Error> {
        let refuse = |message| self.trace.refuse(number, message);
        let mut replica = match self.replicas[step.author as usize].take() {
            Some(replica) => replica,
            None => self.enter(step).map_err(refuse)?,
        };
        self.catch_up(&mut replica, &step.before).map_err(refuse)?;
        let patches = &self.trace.transactions[number].patches;
        let update = replica.edit(step.author, patches).map_err(refuse)?;
        self.replicas[step.author as usize] = Some(replica);
        self.send(step.author, update);
        Ok(())
    }

    /// A replica for an author's first transaction: a fork of the replica that contains most of
    /// what this author has seen, and nothing else.
    fn enter(&self, step: &Step) -> Result<Replica, String> {
        let others = self.replicas.iter().flatten();
        let nearest = others.filter(|r| r.within(&step.before)).max_by_key(|r| r.len());
        match nearest {
            Some(replica) => replica.fork(client(step.author)),
            None => Ok(self.replica(step.author)),
        }
    }

    /// An empty replica of an author.
    fn replica(&self, author: u32) -> Replica {
        match self.trace.kind {
            Kind::Sequential => Replica::alone(client(author)),
            Kind::Concurrent { .. } => Replica::new(client(author)),
        }
    }

    /// Lets a replica receive what it lacks of a version.
    fn catch_up(&self, replica: &mut Replica, version: &Version) -> Result<(), String> {
        let mut missing = Vec::new();
        for (author, chain) in self.chains.iter().enumerate() {
            let (has, needs) = (replica.version().of(author as u32), version.of(author as u32));
            missing.extend_from_slice(&chain[has as usize..needs.max(has) as usize]);
        }
        if missing.is_empty() {
            return Ok(());
        }
        // The order of sending is causal.
        missing.sort_unstable();
        let edits = missing.iter().map(|&at| (self.sent[at].0, self.sent[at].1.as_slice()));
        replica.receive(edits, self.wide_characters)
    }

    fn send(&mut self, author: u32, update: Vec<u8>) {
        self.chains[author as usize].push(self.sent.len());
        self.sent.push((author, update));
        self.version.advance(author);
    }

    /// Drops the replica of an author that sends nothing more, except the last one.
    fn retire(&mut self, author: u32) {
        if self.replicas.iter().flatten().nth(1).is_some() {
            self.replicas[author as usize] = None;
        }
    }

    /// Checks the final text of the last author and of a reader of the whole log.
    fn finish(mut self) -> Result<UpdateLog, Error> {
        let last = self.trace.transactions.len().saturating_sub(1);
        let refuse = |message| self.trace.refuse(last, message);
        let reader = Replica::new(READER_CLIENT);
        let writers = std::mem::take(&mut self.replicas).into_iter().flatten();
        for mut replica in writers.chain([reader]) {
            self.catch_up(&mut replica, &self.version).map_err(refuse)?;
            self.compare(&replica.text())?;
        }
        let authors = (0..self.chains.len() as u32).map(client).collect();
        let mut log = UpdateLog { authors, edits: Vec::with_capacity(self.sent.len()) };
        self.sent.into_iter().for_each(|(author, update)| log.push(author, update));
        Ok(log)
    }

    fn compare(&self, replayed: &str) -> Result<(), Error> {
        let expected = self.trace.end.as_str();
        if replayed == expected {
            return Ok(());
        }
        let same = replayed.chars().zip(expected.chars()).take_while(|(a, b)| a == b);
        Err(Error::EndContent {
            path: self.trace.path.clone(),
            at: same.count(),
            replayed: replayed.chars().count(),
            expected: expected.chars().count(),
        })
    }
}

/// The Yjs client id of an author.
fn client(author: u32) -> u64 {
    FIRST_CLIENT + u64::from(author)
}
