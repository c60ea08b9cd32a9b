//! Which files are loaded, and the errors of the others.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_ports::guests::{Error, Guests as _};
use besom_runtime::built_in;
use besom_runtime::{LoadError, Loaded, Metering, Runtime, Settings, Signing};
use besom_system::child;
use besom_tests::{plugin, plugin_path};

use super::host::{Nobody, behaved, call, items, limits, start, things};

/// The same bytes with another version of the contract in every name.
fn built_for(version: &str) -> Vec<u8> {
    let mut bytes = plugin("hostile");
    let mut found = 0;
    for at in 0..bytes.len() - 40 {
        if bytes[at..].starts_with(b"besom:task/") {
            let name = &mut bytes[at..at + 40];
            if let Some(offset) = name.windows(6).position(|window| window == b"@1.0.0") {
                name[offset + 1..offset + 6].copy_from_slice(version.as_bytes());
                found += 1;
            }
        }
    }
    assert!(found > 0);
    bytes
}

#[tokio::test]
async fn a_file_that_is_no_plugin_is_told_what_it_is() {
    let runtime = Runtime::start(Settings::default()).unwrap();
    let mut torn = plugin("hostile");
    torn.truncate(torn.len() / 2);
    let cases: [(Vec<u8>, &str); 7] = [
        (b"\0asm\x01\0\0\0".into(), "a core module, not a component: build it for wasm32-wasip2"),
        (b"(component)".into(), "WebAssembly text"),
        (b"#!/bin/sh".into(), "not WebAssembly"),
        (b"\0asm\x0d\0\x01\0".into(), "not a task: it does not export `besom:task/housekeeping`"),
        (torn, "cannot be compiled"),
        (
            built_for("1.1.0"),
            "built for besom:task 1.1, but this host supports 1.0: rebuild or upgrade",
        ),
        (
            built_for("2.0.0"),
            "built for besom:task 2.0, but this host supports 1.0: rebuild or upgrade",
        ),
    ];
    for (bytes, says) in cases {
        let error = runtime.load(bytes).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error} does not say {says:?}");
    }
    assert_eq!(runtime.loaded(), Vec::<String>::new());
}

#[tokio::test]
async fn a_process_that_cannot_be_started_is_no_fault_of_the_plugin() {
    let (program, processor) = ("/nowhere".into(), Duration::from_secs(60));
    let compiler = Some(child::Limits { program, memory_bytes: 2 << 30, processor });
    let runtime = Runtime::start(Settings { compiler, ..Settings::default() }).unwrap();
    let error = runtime.load(plugin("hostile")).await.unwrap_err();
    assert!(matches!(error, LoadError::Process(_)), "{error}");
    assert!(error.to_string().contains("may be tried again"), "{error}");
}

async fn load_file(runtime: &Runtime, path: impl Into<PathBuf>) -> Result<Loaded, LoadError> {
    runtime.load_signed(path, Signing::default(), |_| true).await
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_named() {
    let runtime = Runtime::start(Settings::default()).unwrap();
    let error = load_file(&runtime, "plugins.d/missing.wasm").await.unwrap_err().to_string();
    assert!(error.contains("cannot read plugins.d/missing.wasm"), "{error}");
    let runtime = Runtime::start(Settings { component_bytes_max: 10, ..Settings::default() });
    let error = load_file(&runtime.unwrap(), plugin_path("hostile")).await.unwrap_err().to_string();
    assert!(error.contains("larger than 10 bytes"), "{error}");
}

/// A component that was built for the contract 1.0 when it was frozen.
#[tokio::test]
async fn a_plugin_built_when_the_contract_was_frozen_goes_on_working() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/runtime/frozen/task-1.0.wasm");
    let runtime = Runtime::start(Settings::default()).unwrap();
    let loaded = load_file(&runtime, path).await.unwrap();
    assert_eq!(loaded.manifest.name, "hostile");
    let call = call(&loaded.digest, limits());
    let reads = ["one", "read-all", "read-columns", "count", "distinct", "read-deliveries"];
    let keys = reads.into_iter().chain(["guard-rows", "add-to-range", "extras", "words"]);
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(keys)).await.unwrap();
    assert_eq!(acted.verdicts[0], behaved());
    assert!(acted.verdicts.iter().all(Result::is_ok), "{:?}", acted.verdicts);
    let tenants = runtime.tenants(&call, things(), Arc::new(Nobody), None, 10).await.unwrap();
    assert_eq!(tenants, [Tenant::from("a"), Tenant::from("b")]);
    let tenant = Some(&tenants[1]);
    let page = runtime.scan(&call, things(), Arc::new(Nobody), tenant, None, 2).await.unwrap();
    let keys: Vec<&str> = page.candidates.iter().map(|c| c.key.as_str()).collect();
    assert_eq!((keys, page.next, page.scanned), (vec!["k0", "k1"], None, 7));
    assert!(page.candidates.iter().all(|c| c.tenant.as_ref() == tenant));
}

#[tokio::test]
async fn a_plugin_is_known_by_its_digest_until_it_is_unloaded() {
    let (runtime, loaded) = start(Settings::default()).await;
    assert_eq!(loaded.digest, besom_runtime::digest(&plugin("hostile")));
    assert_eq!(runtime.manifest(&loaded.digest).unwrap().name, "hostile");
    assert_eq!(load_file(&runtime, plugin_path("hostile")).await.unwrap(), loaded);
    let refused = runtime
        .load_signed(plugin_path("hostile"), Signing::default(), |_| false)
        .await
        .unwrap_err();
    assert!(matches!(&refused, LoadError::Refused { digest } if *digest == loaded.digest));
    // A patch version of the contract changes only the bytes.
    let other = runtime.load(built_for("1.0.9")).await.unwrap();
    assert_ne!(other.digest, loaded.digest);
    for digest in [&loaded.digest, &other.digest] {
        let call = call(digest, limits());
        let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(["one"])).await.unwrap();
        assert_eq!(acted.verdicts, [behaved()]);
    }
    runtime.unload(&loaded.digest);
    assert_eq!(runtime.loaded(), [other.digest]);
    let call = call(&loaded.digest, limits());
    let acted = runtime.act(&call, things(), Arc::new(Nobody), &items(["one"])).await;
    assert!(matches!(acted, Err(Error::NotLoaded(_))), "{acted:?}");
}

#[tokio::test]
async fn a_later_start_takes_the_compiled_form_and_a_user_cannot_bring_one() {
    let directory = tempfile::tempdir().unwrap();
    let settings = || Settings { cache: Some(directory.path().into()), ..Settings::default() };
    let cache = directory.path().join("compiled");
    let (first, loaded) = start(settings()).await;
    let entry = std::fs::read_dir(&cache)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "cwasm"))
        .unwrap();
    assert!(entry.file_name().unwrap().to_str().unwrap().starts_with(&loaded.digest));
    let written = std::fs::metadata(&entry).unwrap().modified().unwrap();

    let (later, again) = start(settings()).await;
    assert_eq!(again, loaded);
    assert_eq!(std::fs::metadata(&entry).unwrap().modified().unwrap(), written);
    let call = call(&loaded.digest, limits());
    let acted = later.act(&call, things(), Arc::new(Nobody), &items(["one"])).await.unwrap();
    assert_eq!(acted.verdicts, [behaved()]);

    // An authentication code of 32 bytes follows the native code.
    let mut native = std::fs::read(&entry).unwrap();
    native.truncate(native.len() - 32);
    let error = first.load(native).await.unwrap_err().to_string();
    assert!(error.contains("already compiled (.cwasm)"), "{error}");
}

#[tokio::test]
async fn the_built_in_tasks_are_embedded_and_load() {
    let cache = Some(besom_tests::compiled());
    let runtime = Runtime::start(Settings { cache, ..Settings::default() }).unwrap();
    for name in built_in::names() {
        let built_in = built_in::find(name).unwrap().expect(built_in::FIX);
        assert!(built_in.component() == plugin(name), "{name} is not the component that was built");
        let loaded = runtime.load(built_in).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(loaded.manifest.name, name);
    }
    assert_eq!(runtime.loaded().len(), built_in::names().count());
}

/// The embedded code serves the first start, which keeps it; for the other metering the plugin is compiled once.
/// Later starts use the cache.
#[tokio::test]
async fn a_built_in_task_is_compiled_once_and_only_for_the_other_metering() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("compiled");
    let kept = || {
        let entries = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|e| e == "cwasm")).count()
    };
    let plugin = built_in::find("share-expiry").unwrap().expect(built_in::FIX);
    for (metering, expected) in
        [(Metering::Fuel, 1), (Metering::Time, 2), (Metering::Time, 2), (Metering::Fuel, 2)]
    {
        let settings = Settings { cache: Some(cache.clone()), ..Settings::default() };
        let runtime = Runtime::start(settings).unwrap();
        let loaded = runtime.load_built_in(plugin, metering).await.unwrap();
        assert_eq!(
            (loaded.manifest.name.as_str(), &*loaded.digest),
            ("share-expiry", plugin.digest)
        );
        assert_eq!(kept(), expected);
    }
}
