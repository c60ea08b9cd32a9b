//! The besom host: adapters, runtime, API and their wiring.
pub mod activity;
pub mod api;
pub mod built_in;
pub mod cli;
pub mod config;
pub mod coordination;
pub mod courier;
pub mod demo;
pub mod doc;
pub mod gather;
pub mod host;
pub mod model;
pub mod node;
pub mod ports;
pub mod runtime;
pub mod store;
pub mod task;
