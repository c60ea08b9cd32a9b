//! What Besom's suites share.

mod plugin;
pub mod sim;

pub use plugin::{plugin, plugin_path};
