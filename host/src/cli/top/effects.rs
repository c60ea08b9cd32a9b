//! What the model wants done outside of itself.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use besom_tui::console::Console;
use besom_tui::dash::{Effect, Feed, State, Tone};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::link::{Address, Link};
use crate::config::diagnostic::printable;

/// Carries one out. Questions and actions are answered later, over the feed.
///
/// # Errors
/// The terminal's. What else goes wrong is said on the screen.
pub async fn carry_out(
    effect: Effect,
    link: &Link,
    feed: &mpsc::Sender<Feed>,
    console: &mut Console,
    state: &mut State,
) -> io::Result<()> {
    match effect {
        Effect::Quit => {}
        Effect::Ask { ticket, query } => {
            let (link, feed) = (link.clone(), feed.clone());
            tokio::spawn(async move {
                let answer = link.ask(&query).await;
                // The dashboard may have been left.
                let _ = feed.send(Feed::Answer { ticket, answer }).await;
            });
        }
        Effect::Act { ticket, action, reason } => {
            let (link, feed) = (link.clone(), feed.clone());
            tokio::spawn(async move {
                let answer = link.act(action, reason).await;
                let _ = feed.send(Feed::Answer { ticket, answer }).await;
            });
        }
        Effect::Copy(text) => console.copy(&text)?,
        Effect::Bell => console.bell()?,
        Effect::Mouse(on) => console.mouse(on)?,
        Effect::Export { name, text } => match export(&name, &text) {
            Ok(path) => state.say(Tone::Good, format!("written to {path}")),
            Err(error) => state.say(Tone::Bad, format!("{name}: {error}")),
        },
        Effect::Editor { path, line } => match own_file(link.address(), &path) {
            Ok(()) => {
                let editor = chosen(&["VISUAL", "EDITOR"], "vi");
                let at = format!("+{line}");
                let ran = console.lend(run(&editor, &[&at, &path], None)).await?;
                say(state, &editor, ran);
            }
            Err(why) => state.say(Tone::Bad, why),
        },
        Effect::Pager(text) => {
            let pager = chosen(&["PAGER"], "less");
            let ran = console.lend(run(&pager, &[], Some(&text))).await?;
            say(state, &pager, ran);
        }
    }
    Ok(())
}

/// Whether a path that a host names may be handed to an editor. A path is a host's word: as an
/// argument, `+!command` or `--eval` would be run, and a host of another machine means a file
/// of that machine.
fn own_file(address: &Address, path: &str) -> Result<(), String> {
    let shown = || printable(path);
    if let Address::Tcp(remote) = address {
        let at = &remote.at;
        return Err(format!("{} is a file of the machine at {at}: edit it there", shown()));
    }
    if !path.starts_with('/') {
        return Err(format!("{} is not an absolute path: open it yourself", shown()));
    }
    let found = std::fs::metadata(path).map_err(|error| format!("{}: {error}", shown()))?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if !found.is_file() || !own {
        return Err(format!("{} is not a file of yours: open it yourself", shown()));
    }
    Ok(())
}

/// Writes a new file into the working directory; one that is there is left as it is.
fn export(name: &str, text: &str) -> io::Result<String> {
    // A name, not a path: it is made of keys that come from a database.
    let name: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    let mut path = Path::new(".").join(name.trim_start_matches('.'));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    for number in 2..=1_000 {
        match std::fs::File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return Ok(path.display().to_string());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                path.set_file_name(format!("{stem}-{number}.{ending}"));
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

fn chosen(variables: &[&str], otherwise: &str) -> String {
    let named = variables.iter().filter_map(|name| std::env::var(name).ok());
    named.into_iter().find(|value| !value.trim().is_empty()).unwrap_or_else(|| otherwise.to_owned())
}

/// Runs a program that the user has chosen, which may come with arguments of its own, on the
/// terminal; `input` comes by its standard input.
async fn run(program: &str, arguments: &[&str], input: Option<&str>) -> io::Result<()> {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).args(arguments).kill_on_drop(true);
    if let Some(input) = input {
        use tokio::io::AsyncWriteExt as _;
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A pager that is left early does not read to the end.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait().await.map(|_| ())
    } else {
        command.status().await.map(|_| ())
    }
}

fn say(state: &mut State, program: &str, ran: io::Result<()>) {
    if let Err(error) = ran {
        state.say(Tone::Bad, format!("{program}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_no_command_and_no_file_of_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("besom.toml");
        std::fs::write(&file, "").expect("written");
        let file = file.to_str().expect("UTF-8");
        let here = Address::Unix("/run/besom.sock".into());
        assert_eq!(own_file(&here, file), Ok(()));
        for (path, words) in [
            ("+!touch PWNED", "not an absolute path"),
            ("--eval", "not an absolute path"),
            ("besom.toml", "not an absolute path"),
            ("/no/such/file", "No such file"),
            ("/dev/null", "not a file of yours"),
            (dir.path().to_str().expect("UTF-8"), "not a file of yours"),
        ] {
            let said = own_file(&here, path).expect_err(path);
            assert!(said.contains(words), "{said}");
        }
        let token = String::new();
        let remote =
            super::super::link::Remote::new("127.0.0.1:1", token, None).expect("an address");
        let said = own_file(&Address::Tcp(std::sync::Arc::new(remote)), file).expect_err("remote");
        assert!(said.contains("edit it there"), "{said}");
    }
}
