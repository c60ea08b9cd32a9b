//! The besom host: adapters, runtime, API and their wiring.
pub mod demo;
pub mod model;
pub mod ports;
pub mod task;
