//! Sends lines to Besom's intake, each with its number. The intake stores a number once, so a request
//! without an answer is sent again, and a client that was killed goes on after the last stored number.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{LINES, text};

/// How many lines are in one request.
const BATCH: usize = 50;
/// How long an answer is awaited.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The Unix socket of the host's activity endpoint.
    #[arg(long, default_value = "besom-activity.sock")]
    socket: PathBuf,
    /// The client's name; with --massive, its beginning.
    #[arg(long, default_value = "client")]
    name: String,
    /// Send a text instead of what is typed.
    #[arg(long)]
    massive: bool,
    /// With --massive: how many clients send it.
    #[arg(long, default_value_t = 10)]
    clients: usize,
    /// With --massive: the text. Without a file, lines are made up.
    #[arg(long)]
    text: Option<PathBuf>,
    /// With --massive: how many lines.
    #[arg(long, default_value_t = 4_422)]
    lines: usize,
}

/// The names of the clients.
pub(crate) fn names(name: &str, clients: usize) -> impl Iterator<Item = String> {
    (0..clients).map(move |number| format!("{name}-{number}"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.massive {
        let lines = text::lines(arguments.text.as_deref(), arguments.lines)?;
        return std::thread::scope(|scope| {
            let all: Vec<_> = names(&arguments.name, arguments.clients)
                .map(|name| (name, &lines, &arguments.socket))
                .map(|(name, lines, socket)| scope.spawn(move || send(socket, &name, lines)))
                .collect();
            all.into_iter().try_for_each(|one| one.join().expect("no client panics"))
        });
    }
    let mut number = last(&arguments.socket, &arguments.name)?;
    for line in std::io::stdin().lock().lines() {
        number += 1;
        store(&arguments.socket, &arguments.name, number, &[line?])?;
    }
    Ok(())
}

/// Sends what is not stored yet.
fn send(socket: &Path, name: &str, lines: &[String]) -> Result<()> {
    let stored = usize::try_from(last(socket, name)?)?;
    let rest = lines.get(stored..).context("more lines are stored than this text has")?;
    for (place, batch) in rest.chunks(BATCH).enumerate() {
        store(socket, name, (stored + place * BATCH + 1) as u64, batch)?;
    }
    Ok(())
}

/// Stores lines, the first with this number, however often it takes.
fn store(socket: &Path, name: &str, first: u64, lines: &[String]) -> Result<()> {
    let message = |(number, line)| json!({"key": name, "number": number, "data": line});
    let body: Vec<Value> = (first..).zip(lines).map(message).collect();
    let body = Value::from(body).to_string();
    loop {
        match ask(socket, "POST", &format!("/feed/{LINES}"), &body) {
            Ok((200 | 201, _)) => return Ok(()),
            Ok((status, answer)) if status != 503 => bail!("{name}: {status} {answer}"),
            Ok(_) | Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// The last number that is stored of a client.
pub(crate) fn last(socket: &Path, name: &str) -> Result<u64> {
    loop {
        match ask(socket, "GET", &format!("/feed/{LINES}/{name}"), "") {
            Ok((200, answer)) => {
                let answer: Value = serde_json::from_str(&answer)?;
                return answer["last"].as_u64().context("an answer without `last`");
            }
            Ok((status, answer)) if status != 503 => bail!("{name}: {status} {answer}"),
            Ok(_) | Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// One request.
fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
