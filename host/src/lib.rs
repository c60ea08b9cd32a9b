//! The besom host: adapters, runtime, API and their wiring.
pub mod model;
pub mod demo;
pub mod ports;
pub mod task;
