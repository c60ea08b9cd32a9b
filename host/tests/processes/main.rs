//! The real binary as processes, as operators and scripts use it, and after crashes.
//!
//! One file per subject; `site` is the directory of a host, `host` the process.

mod brakes;
mod cancel;
mod cascades;
mod checks;
mod contract;
mod dwarf;
mod held;
mod host;
mod isolation;
mod kill;
mod kill_modes;
mod leadership;
mod life;
mod load;
mod modes;
mod newest;
mod odd_values;
mod pass;
mod plugins;
mod quotas;
mod refused;
mod reload;
mod replaced;
mod replay;
mod replayed;
mod reviews;
mod site;
mod strangers;
mod telling;
#[path = "../common/terminal.rs"]
mod terminal;
mod top;
mod undo;
mod undone_documents;
#[path = "../common/wait.rs"]
mod wait;
