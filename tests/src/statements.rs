//! The SQL statements of a store, read from its sources, so that statements that no test executes
//! are checked too.

use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

const VERBS: [&str; 5] = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "];

/// The whole statements in the sources of a store (`sqlite`, `postgres`), with their files. Those that
/// are put together from parts are left out: the conformance suite executes them.
///
/// # Panics
/// If a source cannot be read.
pub fn of(store: &str) -> Vec<(String, String)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/stores").join(store).join("src");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a store's directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("a source is read");
            let file = path.file_name().expect("a name").to_string_lossy();
            // Tests have their own tables.
            let end = source.find("\n#[cfg(test)]\nmod ").unwrap_or(source.len());
            literals(source[..end].parse().expect("a source is Rust"), &mut |text| {
                if is_whole(&text) {
                    found.push((file.clone().into_owned(), text));
                }
            });
        }
    }
    assert!(found.len() > 100, "the statements were found: {}", found.len());
    found
}

/// A part ends in a space, or has places for other parts.
fn is_whole(text: &str) -> bool {
    VERBS.iter().any(|verb| text.starts_with(verb))
        && !text.contains('{')
        && !text.ends_with(char::is_whitespace)
}

fn literals(stream: TokenStream, take: &mut impl FnMut(String)) {
    for tree in stream {
        match tree {
            TokenTree::Group(group) => literals(group.stream(), take),
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    take(text.value());
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}
