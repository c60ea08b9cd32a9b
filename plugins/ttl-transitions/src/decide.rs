//! Which state a workspace is to be in. Pure: instants are microseconds, spans in seconds as
//! the table has them.
//!
//! # The two rules
//! - **RUNNING to STANDBY** when nobody uses the workspace: no connection and no idle timer.
//!   The idle timer is the TTL of every workspace. `standby_ttl_seconds`, where it is set and
//!   above zero, can only make the wait longer: that much must have passed since
//!   `last_access_at` as well, so that opening a workspace for a moment does not cut short
//!   what its owner asked for. It never makes the wait shorter than the timer.
//! - **STANDBY to PENDING** when `archive_ttl_seconds` have passed since `last_access_at`.
//!   Without either of the two a workspace is never archived.
//!
//! Both only while no operation is under way and the workspace is where it is to be: one whose
//! `desired_state` says something else is on its way already, by us or by its user, and a
//! user's choice always wins. Only `desired_state` is ever written: what writes `status` is
//! the reconciler alone, and it would undo anybody else's write.
//!
//! No skip is ever settled: what decides here is time and activity, and neither changes the
//! version of a row.

/// The status of a workspace in use.
pub const RUNNING: &str = "RUNNING";
/// The status of a workspace that is stopped and quickly back.
pub const STANDBY: &str = "STANDBY";
/// What an archived workspace is to be.
pub const PENDING: &str = "PENDING";
/// The operation of a workspace that is left alone by the reconciler.
pub const NONE: &str = "NONE";

/// A workspace as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Where it is.
    pub status: String,
    /// What the reconciler is doing with it.
    pub operation: String,
    /// Where it is to be.
    pub desired_state: String,
    /// The least time without access before it stands by; none or 0: the idle timer alone.
    pub standby_ttl_s: Option<i64>,
    /// The time without access before it is archived; none: never.
    pub archive_ttl_s: Option<i64>,
    /// The last time somebody connected; none: nobody ever did.
    pub last_access_us: Option<i64>,
}

/// Whether somebody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// At least one connection.
    Active,
    /// No connection, but the idle timer runs.
    Waiting,
    /// Neither.
    Idle,
    /// Not observed for long enough to say.
    Unknown,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Set `desired_state` to STANDBY, if nobody uses it by then.
    StandBy,
    /// Set `desired_state` to PENDING.
    Archive,
    /// Leave it.
    Leave(Leave),
}

/// Why a workspace is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Its status is neither RUNNING nor STANDBY.
    OtherStatus,
    /// An operation is under way.
    Busy,
    /// It is to be elsewhere already.
    OnItsWay,
    /// Somebody is connected.
    InUse,
    /// The idle timer runs.
    Waiting,
    /// Whether it is used is unknown, which is not idle.
    Unknown,
    /// Its own TTL has not passed.
    Fresh,
    /// It has no archive TTL.
    NeverArchived,
    /// There is no last access to count from.
    NeverAccessed,
}

impl Leave {
    /// For the history.
    pub fn reason(self) -> &'static str {
        match self {
            Leave::OtherStatus => "neither RUNNING nor STANDBY",
            Leave::Busy => "an operation is under way",
            Leave::OnItsWay => "desired_state is another already",
            Leave::InUse => "in use: somebody is connected",
            Leave::Waiting => "the idle timer is running",
            Leave::Unknown => "activity unknown: not observed for long enough",
            Leave::Fresh => "its TTL has not passed since the last access",
            Leave::NeverArchived => "no archive_ttl_seconds",
            Leave::NeverAccessed => "no last_access_at",
        }
    }
}

/// Decides about a workspace at `now_us`. `used` matters for a RUNNING one only.
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
    let ttl_s = workspace.archive_ttl_s.ok_or(Leave::NeverArchived)?;
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
            (Some(0), Some(NOW), Decision::Archive),
            (Some(i64::MAX), Some(0), Decision::Leave(Leave::Fresh)),
            (None, Some(0), Decision::Leave(Leave::NeverArchived)),
            (Some(3_600), None, Decision::Leave(Leave::NeverAccessed)),
        ] {
            let standby = Workspace {
                archive_ttl_s: ttl_s,
                last_access_us: access_us,
                ..workspace(STANDBY, STANDBY)
            };
            // Activity has no say: nobody is connected to what is not running.
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
