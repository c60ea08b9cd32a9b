//! A forwarder between one host and one server. While it is cut, it holds everything back in both
//! directions and closes nothing, like a network that loses packets.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often a connection that is held back checks whether it may continue.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The forwarder of one host to one server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    /// Forwards a free port of 127.0.0.1 to this port.
    pub fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let cut = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&cut);
        // The threads end with the test process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                thread::spawn(move || forward(client, server, &state));
            }
        });
        Proxy { port, cut }
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Holds everything back, or continues to forward.
    pub fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }
}

fn forward(client: TcpStream, server: u16, cut: &Arc<AtomicBool>) {
    hold(cut);
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    let halves = client.try_clone().and_then(|c| Ok((c, server.try_clone()?)));
    let Ok((client_again, server_again)) = halves else { return };
    let state = Arc::clone(cut);
    let back = thread::spawn(move || pump(server_again, client_again, &state));
    pump(client, server, cut);
    let _ = back.join();
}

fn pump(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut bytes = [0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        hold(cut);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // The end of a connection does not pass while the proxy is cut.
    hold(cut);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn hold(cut: &AtomicBool) {
    while cut.load(Ordering::SeqCst) {
        thread::sleep(LOOK_EVERY);
    }
}
