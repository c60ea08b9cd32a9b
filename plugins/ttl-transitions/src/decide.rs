//! Decides which state a workspace should be in. Pure: instants are in microseconds, durations in
//! seconds, as in the table.
//!
//! # The two rules
//! - **RUNNING to STANDBY** when the workspace is idle: no connection and no idle timer.
//!   The idle timer is the TTL of every workspace. A `standby_ttl_seconds` above zero can only
//!   extend the wait: that time must also have passed since `last_access_at`, so that opening a
//!   workspace briefly does not shorten the time that its owner requested.
//! - **STANDBY to PENDING** when `archive_ttl_seconds` have passed since `last_access_at`. If one
//!   is null, or the former is 0 or less, the workspace is never archived.
//!
//! Both apply only while no operation is in progress and `desired_state` equals `status`. A
//! workspace with another `desired_state` is already changing, and a user's choice always wins.
//! Only `desired_state` is written: the reconciler alone writes `status`, and would undo a write by
//! any other task.
//!
//! No skip is settled, because the decision depends on time and activity, and neither changes the
//! version of a row.

/// The status of a workspace in use.
pub const RUNNING: &str = "RUNNING";
/// The status of a stopped workspace that can start quickly.
pub const STANDBY: &str = "STANDBY";
/// The desired state of a workspace to be archived.
pub const PENDING: &str = "PENDING";
/// The operation of a workspace on which the reconciler is not working.
pub const NONE: &str = "NONE";

/// A workspace as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The current state, which only the reconciler writes.
    pub status: String,
    /// The reconciler's current operation; [`NONE`] if there is none.
    pub operation: String,
    /// The state that a user or this task requests.
    pub desired_state: String,
    /// The minimum time without access before standby; none, 0 or less: only the idle timer counts.
    pub standby_ttl_s: Option<i64>,
    /// The time without access before it is archived; none, 0 or less: never.
    pub archive_ttl_s: Option<i64>,
    /// The last time that a client connected; none: never.
    pub last_access_us: Option<i64>,
}

/// The activity of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// At least one connection.
    Active,
    /// No connection, but the idle timer runs.
    Waiting,
    /// No connection and no idle timer.
    Idle,
    /// Not observed for long enough; never treated as idle.
    Unknown,
}

/// The outcome for a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Set `desired_state` to STANDBY, if the workspace is still idle at the commit.
    StandBy,
    /// Set `desired_state` to PENDING.
    Archive,
    /// Skip the item.
    Leave(Leave),
}

/// Why a workspace is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The status is neither RUNNING nor STANDBY.
    OtherStatus,
    /// The operation is not [`NONE`].
    Busy,
    /// `desired_state` differs from `status`.
    OnItsWay,
    /// At least one client is connected.
    InUse,
    /// The idle timer is running.
    Waiting,
    /// The activity is unknown, which is not idle.
    Unknown,
    /// The TTL in the row has not passed since the last access.
    Fresh,
    /// `archive_ttl_seconds` is null.
    NeverArchived,
    /// `last_access_at` is null.
    NeverAccessed,
}

impl Leave {
    /// The reason in the history.
    pub fn reason(self) -> &'static str {
        match self {
            Leave::OtherStatus => "neither RUNNING nor STANDBY",
            Leave::Busy => "an operation is in progress",
            Leave::OnItsWay => "desired_state already differs from status",
            Leave::InUse => "in use: a client is connected",
            Leave::Waiting => "the idle timer is running",
            Leave::Unknown => "activity unknown: not observed for long enough",
            Leave::Fresh => "the TTL has not passed since the last access",
            Leave::NeverArchived => "no archive_ttl_seconds",
            Leave::NeverAccessed => "no last_access_at",
        }
    }
}

/// Decides on a workspace at `now_us`. `used` matters only if it is RUNNING.
pub fn decide(workspace: &Workspace, used: Use, now_us: i64) -> Decision {
    if workspace.operation != NONE {
        return Decision::Leave(Leave::Busy);
    }
    if workspace.desired_state != workspace.status {
        return Decision::Leave(Leave::OnItsWay);
    }
    let decided = match workspace.status.as_str() {
        RUNNING => stand_by(workspace, used, now_us),
        STANDBY => archive(workspace, now_us),
        _ => Err(Leave::OtherStatus),
    };
    decided.unwrap_or_else(Decision::Leave)
}

fn stand_by(workspace: &Workspace, used: Use, now_us: i64) -> Result<Decision, Leave> {
    match used {
        Use::Active => return Err(Leave::InUse),
        Use::Waiting => return Err(Leave::Waiting),
        Use::Unknown => return Err(Leave::Unknown),
        Use::Idle => {}
    }
    let own_ttl_s = workspace.standby_ttl_s.unwrap_or(0);
    let passed = |access_us| elapsed(access_us, own_ttl_s, now_us);
    if own_ttl_s > 0 && !workspace.last_access_us.is_none_or(passed) {
        return Err(Leave::Fresh);
    }
    Ok(Decision::StandBy)
}

fn archive(workspace: &Workspace, now_us: i64) -> Result<Decision, Leave> {
    let ttl_s = workspace.archive_ttl_s.filter(|ttl_s| *ttl_s > 0).ok_or(Leave::NeverArchived)?;
    let access_us = workspace.last_access_us.ok_or(Leave::NeverAccessed)?;
    if elapsed(access_us, ttl_s, now_us) { Ok(Decision::Archive) } else { Err(Leave::Fresh) }
}

/// Whether `now - since >= ttl`.
fn elapsed(since_us: i64, ttl_s: i64, now_us: i64) -> bool {
    now_us.saturating_sub(since_us) >= ttl_s.saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_750_000_000_000_000;
    const S: i64 = 1_000_000;

    fn workspace(status: &str, desired_state: &str) -> Workspace {
        Workspace {
            status: status.into(),
            operation: NONE.into(),
            desired_state: desired_state.into(),
            standby_ttl_s: None,
            archive_ttl_s: Some(3_600),
            last_access_us: Some(NOW - 3_600 * S),
        }
    }

    #[test]
    fn a_running_workspace_stands_by_only_when_it_is_idle() {
        let running = workspace(RUNNING, RUNNING);
        for (used, expected) in [
            (Use::Idle, Decision::StandBy),
            (Use::Active, Decision::Leave(Leave::InUse)),
            (Use::Waiting, Decision::Leave(Leave::Waiting)),
            (Use::Unknown, Decision::Leave(Leave::Unknown)),
        ] {
            assert_eq!(decide(&running, used, NOW), expected, "{used:?}");
        }
    }

    #[test]
    fn a_standby_ttl_of_its_own_lengthens_the_wait_and_never_shortens_it() {
        for (ttl_s, access_us, used, expected) in [
            (None, Some(NOW), Use::Idle, Decision::StandBy),
            (Some(0), Some(NOW), Use::Idle, Decision::StandBy),
            (Some(-1), Some(NOW), Use::Idle, Decision::StandBy),
            (Some(600), Some(NOW - 600 * S), Use::Idle, Decision::StandBy),
            (Some(600), Some(NOW - 600 * S + 1), Use::Idle, Decision::Leave(Leave::Fresh)),
            (Some(600), None, Use::Idle, Decision::StandBy),
            (Some(i64::MAX), Some(0), Use::Idle, Decision::Leave(Leave::Fresh)),
            (Some(1), Some(0), Use::Waiting, Decision::Leave(Leave::Waiting)),
        ] {
            let running = Workspace {
                standby_ttl_s: ttl_s,
                last_access_us: access_us,
                ..workspace(RUNNING, RUNNING)
            };
            assert_eq!(decide(&running, used, NOW), expected, "{ttl_s:?} {access_us:?}");
        }
    }

    #[test]
    fn a_standby_workspace_is_archived_when_its_ttl_has_passed() {
        for (ttl_s, access_us, expected) in [
            (Some(3_600), Some(NOW - 3_600 * S), Decision::Archive),
            (Some(3_600), Some(NOW - 3_600 * S + 1), Decision::Leave(Leave::Fresh)),
            (Some(3_600), Some(NOW + S), Decision::Leave(Leave::Fresh)),
            (Some(1), Some(NOW - S), Decision::Archive),
            (Some(0), Some(0), Decision::Leave(Leave::NeverArchived)),
            (Some(-1), Some(0), Decision::Leave(Leave::NeverArchived)),
            (Some(i64::MAX), Some(0), Decision::Leave(Leave::Fresh)),
            (None, Some(0), Decision::Leave(Leave::NeverArchived)),
            (Some(3_600), None, Decision::Leave(Leave::NeverAccessed)),
        ] {
            let standby = Workspace {
                archive_ttl_s: ttl_s,
                last_access_us: access_us,
                ..workspace(STANDBY, STANDBY)
            };
            // Activity is ignored: a client cannot be connected to a workspace that is not running.
            for used in [Use::Idle, Use::Active, Use::Unknown] {
                assert_eq!(decide(&standby, used, NOW), expected, "{ttl_s:?} {access_us:?}");
            }
        }
    }

    #[test]
    fn what_is_busy_on_its_way_or_elsewhere_is_left_alone() {
        let busy = |status| Workspace { operation: "STARTING".into(), ..workspace(status, status) };
        for (workspace, expected) in [
            (busy(RUNNING), Leave::Busy),
            (busy(STANDBY), Leave::Busy),
            (workspace(RUNNING, STANDBY), Leave::OnItsWay),
            (workspace(STANDBY, PENDING), Leave::OnItsWay),
            // A user wakes or archives it: that choice is not overwritten.
            (workspace(STANDBY, RUNNING), Leave::OnItsWay),
            (workspace(RUNNING, PENDING), Leave::OnItsWay),
            (workspace(PENDING, PENDING), Leave::OtherStatus),
            (workspace("ERROR", "ERROR"), Leave::OtherStatus),
        ] {
            let decision = decide(&workspace, Use::Idle, NOW);
            assert_eq!(decision, Decision::Leave(expected), "{workspace:?}");
        }
    }
}
