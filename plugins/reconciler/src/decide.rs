//! Decides the next step of a workspace that is not in its desired state. Pure: instants and
//! durations are in microseconds.
//!
//! ```text
//!            STOPPING                     ARCHIVING
//!  RUNNING ───────────> STANDBY ────────────────────────────> PENDING, archive_key
//!     ^                  │   ^                                   │  (shown as ARCHIVED)
//!     └──── STARTING ────┘   ├───────── RESTORING ───────────────┘
//!                            └───────── PROVISIONING ───────── PENDING, no archive_key
//! ```
//!
//! A step is two commits. The first sets `operation` and emits the call in one transaction. The
//! second, after the answer, sets `status` and resets `operation`. In between, `operation` belongs
//! to the reconciler, and the latest message of the operation's topic is its call. The message
//! carries the state that has to be remembered ([`Call`]).
//!
//! - **One step at a time**, always from the current status. A new desired state is considered
//!   when the operation has ended, so no operation is interrupted.
//! - **A 2xx answer ends the operation**, except for 202, which means that it is still in progress:
//!   the call is repeated, with the same identity, for at most `operation_max`.
//! - **A failed call is repeated** until `failures_max` calls have failed. Then the operation is
//!   [`FAILED`], which is visible in the table, and the workspace does not change until its user
//!   requests another state or `failed_retry` has passed.
//!
//! Users and `ttl-transitions` write `desired_state`; it is never written here.

/// The status of a workspace in use.
pub const RUNNING: &str = "RUNNING";
/// The status of a stopped workspace that can start quickly.
pub const STANDBY: &str = "STANDBY";
/// The status of a workspace without running resources: archived, or never provisioned.
pub const PENDING: &str = "PENDING";
/// The operation of a workspace without a current operation.
pub const NONE: &str = "NONE";
/// The operation of a workspace whose last operation has failed too often.
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
    /// PENDING to STANDBY, without an archive.
    Provision,
}

impl Operation {
    /// All operations.
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

    /// The topic of the operation's calls, one per operation so that each can have its own route.
    pub fn topic(self) -> &'static str {
        match self {
            Operation::Stop => "workspace.stop",
            Operation::Start => "workspace.start",
            Operation::Archive => "workspace.archive",
            Operation::Restore => "workspace.restore",
            Operation::Provision => "workspace.provision",
        }
    }

    /// The status in which the operation starts.
    pub fn from(self) -> &'static str {
        match self {
            Operation::Stop => RUNNING,
            Operation::Start | Operation::Archive => STANDBY,
            Operation::Restore | Operation::Provision => PENDING,
        }
    }

    /// The status in which the operation ends.
    pub fn to(self) -> &'static str {
        match self {
            Operation::Stop | Operation::Restore | Operation::Provision => STANDBY,
            Operation::Start => RUNNING,
            Operation::Archive => PENDING,
        }
    }

    /// The operation with this [`Operation::word`], if there is one.
    pub fn of(word: &str) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.word() == word)
    }
}

/// A workspace as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The current state, which only the reconciler writes.
    pub status: String,
    /// The word of the current operation, [`NONE`] or [`FAILED`].
    pub operation: String,
    /// The state that a user or `ttl-transitions` requests.
    pub desired_state: String,
    /// The orchestrator's key of the archive; none: there is no archive.
    pub archive_key: Option<String>,
}

impl Workspace {
    /// The next step towards the desired state; none if it is reached or unreachable.
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

    /// The operation whose latest call the decision depends on; none: no call is relevant.
    pub fn call_that_matters(&self) -> Option<Operation> {
        if self.operation == FAILED { self.next() } else { Operation::of(&self.operation) }
    }

    /// The state as shown to operators.
    pub fn shown(&self) -> &str {
        match (self.status.as_str(), &self.archive_key) {
            (PENDING, Some(_)) => "ARCHIVED",
            (status, _) => status,
        }
    }
}

/// The part of a call to the orchestrator that its message carries back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The same for all calls of one operation, which the orchestrator executes only once.
    pub operation_id: String,
    /// When the operation began.
    pub begun_us: i64,
    /// How many calls of the operation failed before this one.
    pub failures: u32,
}

/// The state of the latest call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There is no call, or it was pruned.
    Nothing,
    /// The call waits for delivery.
    UnderWay(Call),
    /// The call was answered with 2xx.
    Answered {
        /// The call that was answered.
        call: Call,
        /// When the answer arrived.
        at_us: i64,
        /// False if the answer is 202: the operation is still in progress.
        finished: bool,
        /// The archive key in the answer.
        archive_key: Option<String>,
    },
    /// The delivery was given up: the call was refused or not answered.
    Failed {
        /// The call whose delivery was given up.
        call: Call,
        /// When the delivery was given up.
        at_us: i64,
        /// The error, with the content of the last answer.
        reason: String,
    },
}

/// The limits of the task's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The time between two calls about an operation in progress.
    pub ask_every_us: i64,
    /// The maximum duration of an operation.
    pub operation_max_us: i64,
    /// The number of failed calls after which the operation is [`FAILED`].
    pub failures_max: u32,
    /// The time between a failed call and the next call.
    pub retry_after_us: i64,
    /// The time after which a [`FAILED`] operation is started again.
    pub failed_retry_us: i64,
}

/// The outcome for a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Set `operation` and call, with a new identity.
    Begin(Operation),
    /// Call again, with the same identity.
    Again(Operation, Call),
    /// The operation has succeeded: set `status` and reset `operation`.
    Finish {
        /// The operation that has succeeded.
        operation: Operation,
        /// The call that was answered.
        call: Call,
        /// The new value of `archive_key`.
        archive_key: Option<String>,
    },
    /// Set `operation` to [`FAILED`].
    Fail(Operation, Call, String),
    /// Set `operation` to [`NONE`]: no step is needed any more.
    Clear,
    /// Skip the item.
    Leave(Leave),
}

/// Why a workspace is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The workspace is in its desired state.
    Settled,
    /// No operation leads from the status to the desired state.
    NoWay,
    /// The operation does not start in the status, or is unknown.
    OddOperation,
    /// The call waits for delivery.
    UnderWay,
    /// The orchestrator is working on it, and is called again after `ask_every`.
    GoingOn,
    /// A call has failed, and the next one follows after `retry_after`.
    Waiting,
    /// The operation has failed, and starts again after `failed_retry`.
    Failed,
}

impl Leave {
    /// The reason in the history.
    pub fn reason(self) -> &'static str {
        match self {
            Leave::Settled => "already in its desired state",
            Leave::NoWay => "no operation leads from its status to the desired state",
            Leave::OddOperation => "its operation does not fit its status",
            Leave::UnderWay => "the call waits for delivery",
            Leave::GoingOn => "the orchestrator is working on it",
            Leave::Waiting => "a call has failed and is repeated later",
            Leave::Failed => "the operation has failed and starts again later",
        }
    }
}

/// Decides on a workspace at `now_us`. `sent` is the state of the latest call of
/// [`Workspace::call_that_matters`].
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
        // The message was pruned, or the product has set the operation.
        Sent::Nothing => Decision::Begin(operation),
        Sent::UnderWay(_) => Decision::Leave(Leave::UnderWay),
        Sent::Answered { call, at_us, finished: false, .. } => {
            if now_us.saturating_sub(call.begun_us) >= bounds.operation_max_us {
                let reason = "not finished within operation_max".to_owned();
                return Decision::Fail(operation, call.clone(), reason);
            }
            if now_us.saturating_sub(*at_us) < bounds.ask_every_us {
                return Decision::Leave(Leave::GoingOn);
            }
            Decision::Again(operation, call.clone())
        }
        Sent::Answered { call, at_us, finished: true, archive_key } => {
            if operation == Operation::Archive && archive_key.is_none() {
                let reason = "the answer contains no archive_key";
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
