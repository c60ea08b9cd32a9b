//! Real servers, started by the tests on free ports or sockets and stopped with them.

pub mod certificates;
pub mod guard;
pub mod kafka;
pub mod orchestrator;
pub mod postgres;
pub mod redis;
