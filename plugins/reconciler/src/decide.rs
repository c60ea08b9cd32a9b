//! What is to be done with a workspace that is not where it is to be. Pure: instants and spans
//! are microseconds.
//!
//! ```text
//!            STOPPING                     ARCHIVING
//!  RUNNING ───────────> STANDBY ────────────────────────────> PENDING, archive_key
//!     ^                  │   ^                                   │  (shown as ARCHIVED)
//!     └──── STARTING ────┘   ├───────── RESTORING ───────────────┘
//!                            └───────── PROVISIONING ───────── PENDING, no archive_key
//! ```
//!
//! A step is two commits. The first sets `operation` and emits the call in one transaction; the
//! second, when the call was answered, sets `status` and takes `operation` back. In between,
//! `operation` belongs to the reconciler, and the latest message of the operation's topic is
//! its call: what has to be remembered of it travels in the message itself ([`Call`]).
//!
//! - **Only one step at a time**, and always from what is. What the user wants meanwhile is
//!   looked at when the operation has ended, so nothing is broken off half done.
//! - **An answer of 2xx is the end**, but for 202, which says that it is still going on: the
//!   same operation is asked about again, under its identity, for at most `operation_max`.
//! - **A failure is tried again** `failures_max` times in all; then the operation is
//!   [`FAILED`], which everybody can see, and nothing else happens to the workspace until its
//!   user wants something else or `failed_retry` has passed.
//!
//! `desired_state` is never written here: what is wanted is said by users and by
//! ttl-transitions.

/// In use.
pub const RUNNING: &str = "RUNNING";
/// Stopped and quickly back.
pub const STANDBY: &str = "STANDBY";
/// Without anything that costs: archived, or never provisioned.
pub const PENDING: &str = "PENDING";
/// No operation is under way.
pub const NONE: &str = "NONE";
/// The last operation has failed for good.
pub const FAILED: &str = "FAILED";

/// A step from one status to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// RUNNING to STANDBY.
    Stop,
    /// STANDBY to RUNNING.
    Start,
    /// STANDBY to PENDING, with an archive.
    Archive,
    /// PENDING to STANDBY, from its archive.
    Restore,
    /// PENDING to STANDBY, anew.
    Provision,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 5] = [
        Operation::Stop,
        Operation::Start,
        Operation::Archive,
        Operation::Restore,
        Operation::Provision,
    ];

    /// The word in the column `operation`.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Stop => "STOPPING",
            Operation::Start => "STARTING",
            Operation::Archive => "ARCHIVING",
            Operation::Restore => "RESTORING",
            Operation::Provision => "PROVISIONING",
        }
    }

    /// The topic of its calls.
    pub fn topic(self) -> &'static str {
        match self {
            Operation::Stop => "workspace.stop",
            Operation::Start => "workspace.start",
            Operation::Archive => "workspace.archive",
            Operation::Restore => "workspace.restore",
            Operation::Provision => "workspace.provision",
        }
    }

    /// The status that it begins with.
    pub fn from(self) -> &'static str {
        match self {
            Operation::Stop => RUNNING,
            Operation::Start | Operation::Archive => STANDBY,
            Operation::Restore | Operation::Provision => PENDING,
        }
    }

    /// The status that it leads to.
    pub fn to(self) -> &'static str {
        match self {
            Operation::Stop | Operation::Restore | Operation::Provision => STANDBY,
            Operation::Start => RUNNING,
            Operation::Archive => PENDING,
        }
    }

    /// The operation of a word, if it is one.
    pub fn of(word: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.word() == word)
    }
}

/// A workspace as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Where it is.
    pub status: String,
    /// What is being done with it.
    pub operation: String,
    /// Where it is to be.
    pub desired_state: String,
    /// Where its archive is; none: it has none.
    pub archive_key: Option<String>,
}

impl Workspace {
    /// The step that leads to where it is to be; none: it is there, or nothing leads there.
    pub fn next(&self) -> Option<Operation> {
        match (self.status.as_str(), self.desired_state.as_str()) {
            (RUNNING, STANDBY | PENDING) => Some(Operation::Stop),
            (STANDBY, RUNNING) => Some(Operation::Start),
            (STANDBY, PENDING) => Some(Operation::Archive),
            (PENDING, RUNNING | STANDBY) => match self.archive_key {
                Some(_) => Some(Operation::Restore),
                None => Some(Operation::Provision),
            },
            _ => None,
        }
    }

    /// The operation whose latest call decides about it; none: no call matters.
    pub fn call_that_matters(&self) -> Option<Operation> {
        if self.operation == FAILED { self.next() } else { Operation::of(&self.operation) }
    }

    /// Its state as people call it.
    pub fn shown(&self) -> &str {
        match (self.status.as_str(), &self.archive_key) {
            (PENDING, Some(_)) => "ARCHIVED",
            (status, _) => status,
        }
    }
}

/// A call to the orchestrator, as its message remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The same for all calls of one operation: the orchestrator does it once.
    pub operation_id: String,
    /// When the operation began.
    pub begun_us: i64,
    /// How often it has failed before this call.
    pub failures: u32,
}

/// What has become of the latest call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There is none (any more).
    Nothing,
    /// It is on its way.
    UnderWay(Call),
    /// It was answered with 2xx.
    Answered {
        /// The call.
        call: Call,
        /// When.
        at_us: i64,
        /// Of the answer: 202 is not the end.
        finished: bool,
        /// The archive that the answer names.
        archive_key: Option<String>,
    },
    /// It was refused, or nobody was there.
    Failed {
        /// The call.
        call: Call,
        /// When it was given up.
        at_us: i64,
        /// What was said.
        reason: String,
    },
}

/// The bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Between two questions about an operation that is going on.
    pub ask_every_us: i64,
    /// An operation takes at most so long.
    pub operation_max_us: i64,
    /// Failed calls before the operation is [`FAILED`].
    pub failures_max: u32,
    /// Between a failed call and the next.
    pub retry_after_us: i64,
    /// After so long, what is [`FAILED`] is begun anew.
    pub failed_retry_us: i64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Set `operation` and call, under a new identity.
    Begin(Operation),
    /// Call again, under the same identity.
    Again(Operation, Call),
    /// The operation has ended: set `status` and take `operation` back.
    Finish {
        /// Which.
        operation: Operation,
        /// Its call.
        call: Call,
        /// What `archive_key` is from now on.
        archive_key: Option<String>,
    },
    /// Set `operation` to [`FAILED`].
    Fail(Operation, Call, String),
    /// Set `operation` to [`NONE`]: there is nothing (more) to be done.
    Clear,
    /// Leave it.
    Leave(Leave),
}

/// Why a workspace is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It is where it is to be.
    Settled,
    /// Nothing leads from its status to the one desired.
    NoWay,
    /// Its operation does not begin with its status, or is none of ours.
    OddOperation,
    /// Its call is on its way.
    UnderWay,
    /// The orchestrator is at it; it is asked again later.
    GoingOn,
    /// A call has failed; the next comes later.
    Waiting,
    /// The operation has failed not long ago.
    Failed,
}

impl Leave {
    /// For the history.
    pub fn reason(self) -> &'static str {
        match self {
            Leave::Settled => "it is where it is to be",
            Leave::NoWay => "nothing leads from its status to the desired one",
            Leave::OddOperation => "its operation does not fit its status",
            Leave::UnderWay => "the call is on its way",
            Leave::GoingOn => "the orchestrator is at it",
            Leave::Waiting => "a call has failed; the next comes later",
            Leave::Failed => "the operation has failed; it is begun anew later",
        }
    }
}

/// Decides about a workspace at `now_us`. `sent` is about [`Workspace::call_that_matters`].
pub fn decide(workspace: &Workspace, sent: &Sent, bounds: &Bounds, now_us: i64) -> Decision {
    match workspace.operation.as_str() {
        NONE => match workspace.next() {
            Some(operation) => Decision::Begin(operation),
            None if workspace.status == workspace.desired_state => Decision::Leave(Leave::Settled),
            None => Decision::Leave(Leave::NoWay),
        },
        FAILED => failed(workspace, sent, bounds, now_us),
        word => match Operation::of(word) {
            Some(operation) if workspace.status == operation.from() => {
                under_way(operation, sent, bounds, now_us)
            }
            Some(operation) if workspace.status == operation.to() => Decision::Clear,
            Some(_) | None => Decision::Leave(Leave::OddOperation),
        },
    }
}

fn failed(workspace: &Workspace, sent: &Sent, bounds: &Bounds, now_us: i64) -> Decision {
    let Some(operation) = workspace.next() else { return Decision::Clear };
    match sent {
        Sent::UnderWay(_) => Decision::Leave(Leave::Failed),
        Sent::Answered { at_us, .. } | Sent::Failed { at_us, .. }
            if now_us.saturating_sub(*at_us) < bounds.failed_retry_us =>
        {
            Decision::Leave(Leave::Failed)
        }
        Sent::Nothing | Sent::Answered { .. } | Sent::Failed { .. } => Decision::Begin(operation),
    }
}

fn under_way(operation: Operation, sent: &Sent, bounds: &Bounds, now_us: i64) -> Decision {
    match sent {
        // Its message was forgotten, or somebody has set the operation by hand.
        Sent::Nothing => Decision::Begin(operation),
        Sent::UnderWay(_) => Decision::Leave(Leave::UnderWay),
        Sent::Answered { call, at_us, finished: false, .. } => {
            if now_us.saturating_sub(call.begun_us) >= bounds.operation_max_us {
                let reason = "it was not finished within operation_max".to_owned();
                return Decision::Fail(operation, call.clone(), reason);
            }
            if now_us.saturating_sub(*at_us) < bounds.ask_every_us {
                return Decision::Leave(Leave::GoingOn);
            }
            Decision::Again(operation, call.clone())
        }
        Sent::Answered { call, at_us, finished: true, archive_key } => {
            if operation == Operation::Archive && archive_key.is_none() {
                let reason = "the answer names no archive_key";
                return again_or_fail(operation, call, *at_us, reason, bounds, now_us);
            }
            let archive_key =
                if operation == Operation::Archive { archive_key.clone() } else { None };
            Decision::Finish { operation, call: call.clone(), archive_key }
        }
        Sent::Failed { call, at_us, reason } => {
            again_or_fail(operation, call, *at_us, reason, bounds, now_us)
        }
    }
}

fn again_or_fail(
    operation: Operation,
    call: &Call,
    at_us: i64,
    reason: &str,
    bounds: &Bounds,
    now_us: i64,
) -> Decision {
    let failures = call.failures.saturating_add(1);
    if failures >= bounds.failures_max {
        return Decision::Fail(operation, call.clone(), reason.to_owned());
    }
    if now_us.saturating_sub(at_us) < bounds.retry_after_us {
        return Decision::Leave(Leave::Waiting);
    }
    Decision::Again(operation, Call { failures, ..call.clone() })
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
