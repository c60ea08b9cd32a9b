//! `besom config`: prints the JSON Schema, and writes a commented configuration.

use std::io::Write as _;

use clap::Subcommand;

use super::output;
use super::{Exit, Failure, Global};
use besom_config::template::Template;
use besom_config::{schema, template};

/// `besom config`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the JSON Schema of besom.toml.
    Schema,
    /// Write a commented configuration to the path given by --config.
    Init {
        /// Print the configuration to stdout instead.
        #[arg(long)]
        stdout: bool,
    },
}

impl Verb {
    /// Prints the schema, or writes the configuration.
    pub fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Schema => {
                let text = serde_json::to_string_pretty(&schema())
                    .map_err(|e| Failure::Failed(e.to_string()))?;
                output::write(format!("{text}\n").as_bytes())?;
            }
            Verb::Init { stdout: true } => {
                output::write(template(&Template::default()).as_bytes())?;
            }
            Verb::Init { stdout: false } => {
                let path = &global.config;
                // `create_new` never overwrites: it checks and creates in one step.
                std::fs::File::create_new(path)
                    .and_then(|mut file| file.write_all(template(&Template::default()).as_bytes()))
                    .map_err(|e| match e.kind() {
                        std::io::ErrorKind::AlreadyExists => Failure::Failed(format!(
                            "{} already exists and is not overwritten; write to another file with \
                             --config, or print with --stdout",
                            path.display()
                        )),
                        _ => Failure::Failed(format!("{}: {e}", path.display())),
                    })?;
                output::show(global.output, &serde_json::json!({ "file": path }), || {
                    format!("Wrote {}\n", besom_config::printable(&path.display().to_string()))
                })?;
            }
        }
        Ok(Exit::Fine)
    }
}
