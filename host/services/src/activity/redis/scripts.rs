//! The Lua scripts. Each one is an atomic step on the keys of one slot.

use std::sync::LazyLock;

use redis::{Cmd, Pipeline, Script, cmd, pipe};

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: LazyLock<(&str, Script)> = LazyLock::new(|| {
            let code = concat!(
                include_str!("scripts/shared.lua"),
                include_str!(concat!("scripts/", $file))
            );
            (code, Script::new(code))
        });
    };
}

script!(OPEN, "open.lua");
script!(CLOSE, "close.lua");
script!(READ, "read.lua");
script!(OBSERVE, "observe.lua");

/// Loads the scripts into a server.
pub(super) fn load() -> Pipeline {
    let mut pipeline = pipe();
    for (code, _) in [&*OPEN, &*CLOSE, &*READ, &*OBSERVE] {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(*code);
    }
    pipeline
}

fn call(script: &LazyLock<(&str, Script)>, keys: &[&str]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(script.1.get_hash()).arg(keys.len()).arg(keys);
    command
}

/// Records that a connection is open.
pub(super) fn open(keys: &[&str], connection: &str, heartbeat_ms: u64, idle_ms: u64) -> Cmd {
    let mut command = call(&OPEN, keys);
    command.arg(connection).arg(heartbeat_ms).arg(idle_ms);
    command
}

/// Records that a connection was closed. `timed`: its timer has been set.
pub(super) fn close(keys: &[&str], connection: &str, idle_ms: u64, timed: bool) -> Cmd {
    let mut command = call(&CLOSE, keys);
    command.arg(connection).arg(idle_ms).arg(u8::from(timed));
    command
}

/// Reads the state of a key.
pub(super) fn read(keys: &[&str], idle_ms: u64) -> Cmd {
    let mut command = call(&READ, keys);
    command.arg(idle_ms);
    command
}

/// Checks whether a server has kept everything that was written to it.
pub(super) fn observe(marker: &str, gap_ms: u64, listening: bool) -> Cmd {
    let mut command = call(&OBSERVE, &[marker]);
    command.arg(gap_ms).arg(u8::from(listening));
    command
}
