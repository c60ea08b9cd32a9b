//! Endpoints of a real host: strangers who use up its descriptors, and readers who look for secrets.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::host::Host;
use crate::load::{SECOND_US, add_share, now_us, report};
use crate::reload::shares_every;
use crate::site::{Site, wait_for};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// A hard limit of open files that a few hundred connections exceed.
const FILES_MAX: u32 = 256;
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A port that is free now; the host binds it a moment later.
fn free_port() -> u16 {
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    found.local_addr().expect("an address").port()
}

fn add_token(site: &Site) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(site.path("token"));
    file.and_then(|mut file| file.write_all(TOKEN.as_bytes())).expect("written");
}

/// One request to the admin socket: the whole answer.
fn ask(site: &Site, line: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(site.path("besom.sock")).expect("the socket answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: besom\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in time");
    assert!(answer.starts_with("HTTP/1.1 200"), "{line}: {answer}");
    answer
}

#[test]
fn strangers_who_use_up_the_descriptors_keep_nobody_else_out() {
    let ports = [free_port(), free_port()];
    let endpoints = format!(
        "[api]\ntcp = \"127.0.0.1:{}\"\nreadonly_token_file = \"token\"\n\
         [activity]\ntcp = \"127.0.0.1:{}\"\ntoken_file = \"token\"\n",
        ports[0], ports[1]
    );
    let task = shares_every("@every 1s");
    let site = Site::new(&(endpoints.clone() + &task));
    site.create_tables();
    add_token(&site);
    let mut host = Host::start_with_few_files(&site, "", FILES_MAX);
    host.leads();
    // One half says nothing, the other half begins a request.
    let connect = |port| {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        TcpStream::connect_timeout(&address, PATIENCE).ok()
    };
    let mut strangers = Vec::new();
    for n in 0..FILES_MAX {
        for port in ports {
            let Some(mut stream) = connect(port) else { continue };
            if n % 2 == 0 {
                // The host may have closed it already.
                let _ = stream.write_all(b"GET / HT");
            }
            strangers.push(stream);
        }
    }
    assert!(strangers.len() > FILES_MAX as usize, "{} connections", strangers.len());

    ask(&site, "GET /status", "");
    let answer = report(&site.path("besom-activity.sock"), "room", "connect");
    assert!(answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 2")), "activity is answered");
    let db = site.database();
    add_share(&db, "meanwhile", now_us() - SECOND_US);
    wait_for("a share to be ended", || {
        let sql = "SELECT unshared_at IS NOT NULL FROM shares WHERE share_id = 'meanwhile'";
        db.query_row(sql, [], |row| row.get::<_, bool>(0)).expect("read").then_some(())
    });
    let second = task.replace("[tasks.share-expiry]", "[tasks.second]");
    site.configure(&(endpoints + &task + &second));
    host.says("reloaded");
    assert_eq!(site.said(&["task", "pause", "second", "--reason", "a test"]).0, 0);
    assert!(host.lines(&["Too many open files"]).is_empty(), "{}", host.log());
    for stream in &strangers {
        let _ = stream.shutdown(Shutdown::Both);
    }
    host.stop();
    site.balanced();
}

/// A password that somebody writes into a URL is refused, and every view of the file leaves it out.
#[test]
fn a_password_in_the_file_is_in_no_answer_no_report_and_no_log() {
    const SECRET: &str = "hunter2-of-the-store";
    let task = shares_every("@every 1s");
    let site = Site::new(&task);
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    let url = format!("[store]\nurl = \"postgres://besom:{SECRET}@127.0.0.1:5432/product\"\n");
    let unquoted = format!("[api]\ntoken_file = {SECRET}\n");
    let table = format!("[api]\nheaders = {{ Authorization = \"{SECRET}\" }}\n");
    let typo = format!("[delivery]\npasword = \"{SECRET}\"\n");
    for wrong in [url, unquoted, table, typo] {
        let refused = host.lines(&["ERROR", "refused"]).len();
        site.configure(&(wrong + &task));
        let (code, said) = site.said(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(!said.contains(SECRET), "{said}");
        wait_for("the reload to be refused", || {
            (host.lines(&["ERROR", "refused"]).len() > refused).then_some(())
        });
        wait_for("the snapshot to name the fault", || {
            let fault = ask(&site, "GET /v1/snapshot", "");
            assert!(!fault.contains(SECRET), "{fault}");
            fault.contains("besom.toml:").then_some(())
        });
        let shown = ask(&site, "POST /v1/ask", r#"{"query":"config"}"#);
        assert!(shown.contains("share-expiry") && !shown.contains(SECRET), "{shown}");
    }
    let db = site.database();
    wait_for("the report to name the fault", || {
        let sql = "SELECT report FROM besom_node";
        let report: String = db.query_row(sql, [], |row| row.get(0)).expect("a report");
        assert!(!report.contains(SECRET), "{report}");
        report.contains("pasword").then_some(())
    });
    let told = [&["status"][..], &["commands", "ls"], &["audit"]];
    for verb in told {
        let out = site.besom(verb);
        let all = [out.stdout, out.stderr].concat();
        assert!(!String::from_utf8_lossy(&all).contains(SECRET), "{verb:?}");
    }
    let log = host.log();
    assert!(!log.contains(SECRET), "{log}");
    host.stop();
}
