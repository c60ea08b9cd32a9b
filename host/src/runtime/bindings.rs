//! The Rust side of `wit/`, generated. Nothing outside `runtime` names these types: the
//! rest of the host speaks `besom_core`, and `convert` stands between.
#![allow(
    missing_docs,
    unused_variables,
    unused_doc_comments,
    reason = "generated from wit/, where the words are"
)]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "task",
    imports: { default: async | trappable },
    exports: { default: async },
});
