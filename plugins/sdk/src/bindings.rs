//! The generated bindings of the world `task`. The other modules wrap them; tasks do not need
//! to name this module.

#![allow(missing_docs, reason = "generated: the contract is documented in wit/")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::semicolon_if_nothing_returned,
    reason = "generated"
)]

wit_bindgen::generate!({
    path: "../../wit",
    world: "task",
    pub_export_macro: true,
    export_macro_name: "export_world",
    default_bindings_module: "besom_sdk::bindings",
    additional_derives: [PartialEq],
    generate_all,
});
