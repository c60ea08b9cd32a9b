//! Behaviour that only a server has: it is unavailable, refuses, is killed, has limits, and sends
//! notifications.

#[path = "postgres_server/bounds.rs"]
mod bounds;
#[path = "postgres_server/checks.rs"]
mod checks;
#[path = "postgres_server/commands.rs"]
mod commands;
#[path = "postgres_server/crash.rs"]
mod crash;
#[path = "postgres_server/frozen.rs"]
mod frozen;
#[path = "postgres_server/granted.rs"]
mod granted;
#[path = "postgres_server/jobs.rs"]
mod jobs;
#[path = "postgres_server/lease.rs"]
mod lease;
#[path = "postgres_server/migrations.rs"]
mod migrations;
#[path = "postgres_server/newest.rs"]
mod newest;
#[path = "postgres_server/nudges.rs"]
mod nudges;
#[path = "postgres_server/numbers.rs"]
mod numbers;
#[path = "postgres_server/plans.rs"]
mod plans;
#[path = "postgres_server/pooler.rs"]
mod pooler;
#[path = "postgres_server/ranges.rs"]
mod ranges;
#[path = "postgres_server/refusals.rs"]
mod refusals;
#[path = "postgres_server/shapes.rs"]
mod shapes;
#[path = "postgres_server/strain.rs"]
mod strain;
#[path = "postgres_server/ties.rs"]
mod ties;
#[path = "postgres_server/types.rs"]
mod types;
#[path = "postgres_server/undone.rs"]
mod undone;
#[path = "postgres_server/views.rs"]
mod views;
#[path = "postgres_server/whole.rs"]
mod whole;
