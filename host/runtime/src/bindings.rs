//! The Rust bindings generated from `wit/`. Only this crate uses these types: the rest of the host
//! uses the types of `besom_core`, and `convert` translates.
#![allow(
    missing_docs,
    unused_variables,
    unused_doc_comments,
    reason = "generated from wit/, where the words are"
)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "task",
    imports: { default: async | trappable },
    exports: { default: async },
});
