//! Facts about traces.

use std::path::PathBuf;
use std::time::Instant;

use super::*;

#[test]
fn real_traces_end_as_they_promise() {
    let shared = std::env::var_os("BESOM_SHARED_DATA").map(PathBuf::from);
    let shared = shared
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"));
    for (name, edits) in
        [("sveltecomponent", 18_335), ("friendsforever", 26_078), ("automerge-paper", 259_778)]
    {
        let path = shared.join("editing-traces").join(format!("{name}.json.gz"));
        if !path.exists() {
            continue;
        }
        let t = Instant::now();
        let trace = load(&path).unwrap();
        eprintln!("{name} load {:?}", t.elapsed());
        let log = trace.replay(&mut |_, _| ()).unwrap();
        eprintln!("{name} {} {} {:?}", log.edits.len(), log.bytes(), t.elapsed());
        assert_eq!(log.edits.len(), edits, "{name}");
    }
}
