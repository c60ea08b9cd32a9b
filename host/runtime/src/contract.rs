//! Determines the contract version that a component was built for, from the names of its imports
//! and exports, before any of its code runs.
//!
//! Within a major version, the contract grows by import functions. So a plugin for an earlier minor
//! version runs, and one for a later minor version may need a missing import. The linker would only
//! report that no implementation matches; this module reports what to do.

use std::collections::BTreeSet;

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentExtern, ComponentItem};

use super::bounds::shown;

/// The version of `besom:task` that this host supports.
pub const CONTRACT: Version = Version { major: 1, minor: 0 };

const PACKAGE: &str = "besom:task/";
const EXPORT: &str = "housekeeping";
const FUNCTIONS: [&str; 4] = ["describe", "tenants", "scan", "act"];
const IMPORTS: [&str; 5] = ["store", "activity", "log", "deliveries", "types"];
const WASI: [&str; 6] =
    ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// A version of the contract. Patch versions change only documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Another major version is a different world.
    pub major: u64,
    /// Minor versions add imports.
    pub minor: u64,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a file is not a plugin for this host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Precompiled native code.
    #[error(
        "it is already compiled (.cwasm): use the .wasm component; the host compiles it and caches \
         the result"
    )]
    Precompiled,
    /// A core WebAssembly module.
    #[error(
        "it is a core module, not a component: build it for wasm32-wasip2, or wrap it with \
         `wasm-tools component new`"
    )]
    CoreModule,
    /// WebAssembly in the text format.
    #[error("it is in the WebAssembly text format: convert it with `wasm-tools parse`")]
    Text,
    /// Not WebAssembly.
    #[error("it is not WebAssembly: it does not begin with `\\0asm`")]
    NotWasm,
    /// The file is too large.
    #[error("it is larger than {max} bytes")]
    TooLarge {
        /// The maximum size.
        max: u64,
    },
    /// A component for another purpose.
    #[error(
        "it is a component, but not a task: it does not export `besom:task/housekeeping` (build it \
         with the world `task` of besom:task {CONTRACT})"
    )]
    NoTask,
    /// Built for an unsupported version.
    #[error(
        "built for besom:task {built_for}, but this host supports {CONTRACT}: rebuild or upgrade"
    )]
    Version {
        /// The version that it was built for.
        built_for: Version,
    },
    /// Exported functions are missing.
    #[error("`besom:task/housekeeping` lacks {}", .0.join(", "))]
    MissingExports(Vec<String>),
    /// It needs imports that tasks do not get.
    #[error("it imports {}, which this host does not offer to tasks", listed(.0))]
    UnknownImports(Vec<String>),
}

/// Maximum number of names that a message lists.
const NAMES_SHOWN: usize = 20;

fn listed(names: &[String]) -> String {
    match names.get(..NAMES_SHOWN) {
        Some(first) if first.len() < names.len() => {
            format!("{} and {} more", first.join(", "), names.len() - first.len())
        }
        Some(_) | None => names.join(", "),
    }
}

/// Checks the first bytes of a file.
pub(super) fn preamble(bytes: &[u8]) -> Result<(), Mismatch> {
    if Engine::detect_precompiled(bytes).is_some() {
        return Err(Mismatch::Precompiled);
    }
    match bytes {
        [0, b'a', b's', b'm', _, _, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', ..] => Err(Mismatch::CoreModule),
        _ if bytes.trim_ascii_start().starts_with(b"(") => Err(Mismatch::Text),
        _ => Err(Mismatch::NotWasm),
    }
}

/// Checks the names of the imports and exports.
pub(super) fn names(engine: &Engine, component: &Component) -> Result<(), Mismatch> {
    let ty = component.component_type();
    let imports: Vec<String> = ty.imports(engine).map(|(name, _)| name.to_owned()).collect();
    let mut functions = None;
    let mut exports = Vec::new();
    for (name, item) in ty.exports(engine) {
        if interface(name) == Some(EXPORT) {
            functions = Some(functions_of(engine, &item));
        }
        exports.push(name.to_owned());
    }
    check(&imports, &exports, functions.as_deref())
}

/// What a component imports: the functions of the contract as `store.get-many`, and other interfaces without
/// their versions.
pub(super) fn imports(engine: &Engine, component: &Component) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, item) in component.component_type().imports(engine) {
        match (interface(name), &item.ty) {
            (Some(ours), ComponentItem::ComponentInstance(instance)) => {
                let functions = instance
                    .exports(engine)
                    .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)));
                found.extend(functions.map(|(function, _)| format!("{ours}.{function}")));
            }
            _ => {
                found.insert(shown(name.split('@').next().unwrap_or(name)));
            }
        }
    }
    found
}

fn functions_of(engine: &Engine, item: &ComponentExtern<'_>) -> Vec<String> {
    match &item.ty {
        ComponentItem::ComponentInstance(instance) => {
            instance.exports(engine).map(|(name, _)| name.to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

fn check(
    imports: &[String],
    exports: &[String],
    functions: Option<&[String]>,
) -> Result<(), Mismatch> {
    // The version is checked first, because other mismatches may result from it.
    let versions = imports.iter().chain(exports).filter_map(|name| version(name));
    if let Some(built_for) = versions.max()
        && (built_for.major != CONTRACT.major || built_for.minor > CONTRACT.minor)
    {
        return Err(Mismatch::Version { built_for });
    }
    let Some(functions) = functions else { return Err(Mismatch::NoTask) };
    let missing: Vec<String> = FUNCTIONS
        .iter()
        .filter(|wanted| !functions.iter().any(|f| f == *wanted))
        .map(|wanted| format!("`{wanted}`"))
        .collect();
    if !missing.is_empty() {
        return Err(Mismatch::MissingExports(missing));
    }
    let unknown: Vec<String> = imports
        .iter()
        .filter(|name| match interface(name) {
            Some(ours) => !IMPORTS.contains(&ours),
            None => !WASI.iter().any(|package| name.starts_with(package)),
        })
        .map(|name| format!("`{}`", shown(name)))
        .collect();
    if !unknown.is_empty() {
        return Err(Mismatch::UnknownImports(unknown));
    }
    Ok(())
}

/// The interface of the contract that a name belongs to.
fn interface(name: &str) -> Option<&str> {
    name.strip_prefix(PACKAGE).map(|rest| rest.split('@').next().unwrap_or(rest))
}

/// The version in a name of the contract; a name without version counts as the first.
fn version(name: &str) -> Option<Version> {
    let rest = name.strip_prefix(PACKAGE)?;
    let mut numbers = rest.split_once('@').map_or("", |(_, v)| v).split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some(Version { major, minor }),
        _ => Some(Version { major: 0, minor: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::TaskPre;
    use crate::code;

    #[test]
    fn the_first_bytes_tell_what_a_file_is() {
        let cases: [(&[u8], Result<(), Mismatch>); 6] = [
            (b"\0asm\x0d\0\x01\0", Ok(())),
            (b"\0asm\x01\0\0\0", Err(Mismatch::CoreModule)),
            (b"  (component)", Err(Mismatch::Text)),
            (b"\x7fELF", Err(Mismatch::NotWasm)),
            (b"", Err(Mismatch::NotWasm)),
            (b"\0asm", Err(Mismatch::CoreModule)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(preamble(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn the_names_tell_the_version() {
        let task = ["describe", "tenants", "scan", "act"];
        let export = |v: &str| format!("besom:task/housekeeping@{v}");
        let store = |v: &str| format!("besom:task/store@{v}");
        let version = |major, minor| Mismatch::Version { built_for: Version { major, minor } };
        type Case<'a> = (Vec<String>, Vec<String>, &'a [&'a str], Result<(), Mismatch>);
        let cases: [Case<'_>; 9] = [
            (vec![store("1.0.0")], vec![export("1.0.0")], &task, Ok(())),
            (vec![store("1.0.7")], vec![export("1.0.7")], &task, Ok(())),
            (vec![store("1.1.0")], vec![export("1.0.0")], &task, Err(version(1, 1))),
            (vec![store("1.3.0")], vec![export("1.3.0")], &task, Err(version(1, 3))),
            (vec![], vec![export("2.0.0")], &task, Err(version(2, 0))),
            (vec![], vec!["besom:task/housekeeping".into()], &task, Err(version(0, 0))),
            (vec![], vec!["wasi:cli/run@0.2.0".into()], &[], Err(Mismatch::NoTask)),
            (
                vec![],
                vec![export("1.0.0")],
                &["describe", "act"],
                Err(Mismatch::MissingExports(vec!["`tenants`".into(), "`scan`".into()])),
            ),
            (
                vec!["wasi:io/poll@0.2.6".into(), "wasi:http/types@0.2.6".into()],
                vec![export("1.0.0")],
                &task,
                Err(Mismatch::UnknownImports(vec!["`wasi:http/types@0.2.6`".into()])),
            ),
        ];
        for (imports, exports, functions, expected) in cases {
            let functions: Vec<String> = functions.iter().map(|f| (*f).to_owned()).collect();
            let functions = (!functions.is_empty()).then_some(&functions[..]);
            assert_eq!(check(&imports, &exports, functions), expected, "{imports:?} {exports:?}");
        }
    }

    /// The components that were built for each version of the contract when it was frozen: the minor version, and the
    /// SHA-256 of `frozen/task-1.MINOR.wasm`. CONTRIBUTING.md says how the next one is made.
    const FROZEN: [(u64, &str); 1] =
        [(0, "c5128c584308f050fa18e80507283e601326e62ca69e87630b7c4ad89df79f5e")];

    /// What is linked and called in the tests is what plugins of users are: built once, for the contract of that time.
    #[test]
    fn each_version_of_the_contract_has_the_component_of_its_time() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen");
        let versions: Vec<u64> = FROZEN.iter().map(|(minor, _)| *minor).collect();
        let all: Vec<u64> = (0..=CONTRACT.minor).collect();
        assert_eq!(
            versions,
            all,
            "the contract is {CONTRACT}: build a component for each of its versions, and keep it in {} with its \
             SHA-256 here (CONTRIBUTING.md, \"The contract\")",
            directory.display()
        );
        let mut files: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_unstable();
        let mut named: Vec<String> =
            versions.iter().map(|minor| format!("task-1.{minor}.wasm")).collect();
        named.sort_unstable();
        assert_eq!(files, named);
        let engine = Engine::new(&code::config(false)).unwrap();
        for (minor, digest) in FROZEN {
            let bytes = std::fs::read(directory.join(format!("task-1.{minor}.wasm"))).unwrap();
            assert_eq!(
                crate::digest(&bytes),
                digest,
                "frozen/task-1.{minor}.wasm may never change: it stands for the plugins that users have built for \
                 besom:task 1.{minor} and do not build again. If this host no longer runs it, the contract is broken: \
                 mend the contract, and restore the file from the history (`git log --follow`)"
            );
            let component = Component::new(&engine, &bytes).unwrap();
            let ty = component.component_type();
            let names = ty
                .imports(&engine)
                .map(|(name, _)| name)
                .chain(ty.exports(&engine).map(|(name, _)| name));
            let built_for = names.filter_map(version).max();
            assert_eq!(built_for, Some(Version { major: CONTRACT.major, minor }));
            let linker = crate::engine::linker(&engine).unwrap();
            TaskPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        }
    }

    /// The contract 1.0 is frozen. The component was built for it when it was, and imports each of its functions,
    /// so that a change to one of them, or to a type that it names, is an error here. Extend the contract by
    /// further functions instead, and keep a component of each version.
    #[test]
    fn a_component_built_when_the_contract_was_frozen_fits_it() {
        let engine = Engine::new(&code::config(false)).unwrap();
        let component = Component::new(&engine, include_bytes!("../frozen/task-1.0.wasm")).unwrap();
        let mut imported = Vec::new();
        for (interface, item) in component.component_type().imports(&engine) {
            let Some(interface) = interface.strip_prefix(PACKAGE) else { continue };
            let functions = functions_of(&engine, &item).into_iter();
            imported.extend(functions.map(|function| format!("{interface} {function}")));
        }
        let functions = [
            "activity@1.0.0 states",
            "deliveries@1.0.0 get-many",
            "log@1.0.0 write",
            "store@1.0.0 count",
            "store@1.0.0 distinct",
            "store@1.0.0 get-many",
            "store@1.0.0 read-columns",
            "store@1.0.0 read-range",
            "store@1.0.0 tenants",
        ];
        for function in functions {
            assert!(imported.iter().any(|name| name == function), "{function}: {imported:?}");
        }
        names(&engine, &component).unwrap();
        let imported = imports(&engine, &component);
        for function in functions {
            let (interface, function) = function.split_once("@1.0.0 ").unwrap();
            assert!(imported.contains(&format!("{interface}.{function}")), "{imported:?}");
        }
        assert!(imported.iter().all(|name| !name.contains('@')), "{imported:?}");
        let linker = crate::engine::linker(&engine).unwrap();
        TaskPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
    }

    #[test]
    fn a_newer_contract_is_answered_with_what_to_do() {
        let newer = Mismatch::Version { built_for: Version { major: 1, minor: 3 } };
        let said = "built for besom:task 1.3, but this host supports 1.0: rebuild or upgrade";
        assert_eq!(newer.to_string(), said);
    }
}
