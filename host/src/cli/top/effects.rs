//! Carries out the effects that the model of the dashboard requests.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use besom_tui::console::Console;
use besom_tui::dash::{Effect, Feed, State, Tone};
use tokio::process::Command;
use tokio::sync::mpsc;

use super::link::{Address, Link};
use besom_config::diagnostic::printable;

/// Carries out an effect. Answers to queries and actions arrive later through the feed.
///
/// # Errors
/// Failures of the terminal. Other failures are shown on the screen.
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

/// Checks whether a path sent by a host may be passed to an editor. The host is not trusted: an editor
/// would run an argument such as `+!command` or `--eval`, and the path may belong to another machine.
fn own_file(address: &Address, path: &str) -> Result<(), String> {
    let shown = || printable(path);
    if let Address::Tcp(remote) = address {
        let at = &remote.at;
        return Err(format!("{} is a file on the machine at {at}: edit it there", shown()));
    }
    if !path.starts_with('/') {
        return Err(format!("{} is not an absolute path: open it yourself", shown()));
    }
    let found = std::fs::metadata(path).map_err(|error| format!("{}: {error}", shown()))?;
    let own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if !found.is_file() || !own {
        return Err(format!("{} is not your file: open it yourself", shown()));
    }
    Ok(())
}

/// Writes a new file into the working directory and returns its path. Does not overwrite an existing
/// file.
fn export(name: &str, text: &str) -> io::Result<String> {
    // The name contains keys from a database and must not become a path.
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

/// Runs a program chosen by the user, which may include arguments, on the terminal, with `input` on its
/// standard input.
async fn run(program: &str, arguments: &[&str], input: Option<&str>) -> io::Result<()> {
    let mut words = program.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).args(arguments).kill_on_drop(true);
    if let Some(input) = input {
        use tokio::io::AsyncWriteExt as _;
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A pager may exit before it has read all of the input.
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
            ("/dev/null", "not your file"),
            (dir.path().to_str().expect("UTF-8"), "not your file"),
        ] {
            let said = own_file(&here, path).expect_err(path);
            assert!(said.contains(words), "{said}");
        }
        let token = String::new();
        let remote =
            super::super::link::Remote::new("127.0.0.1:1", token, None, None).expect("an address");
        let said = own_file(&Address::Tcp(std::sync::Arc::new(remote)), file).expect_err("remote");
        assert!(said.contains("edit it there"), "{said}");
    }
}
