//! Adapters for election, membership, activity and delivery.

pub mod activity;
pub mod coordination;
pub mod courier;
