//! Messages into the host's log, where they carry the task and the run.

use crate::bindings::besom::task::log::Level;
use crate::host;

macro_rules! levels {
    ($($name:ident $level:ident $doc:literal;)*) => {
        $(#[doc = $doc]
        pub fn $name(message: impl AsRef<str>) {
            host::log(Level::$level, message.as_ref());
        })*
    };
}

levels! {
    debug Debug "For whoever debugs the task.";
    info Info "What an operator may want to know.";
    warn Warn "What an operator should look at.";
    error Error "What has gone wrong.";
}
