//! A pooler in transaction mode: connections take turns on one server process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use besom_ports::store::Error;
use besom_postgres::PostgresStore;
use besom_tests::adapters::postgres::patient;
use besom_tests::conformance::block_on;
use besom_tests::servers::postgres::Server;

/// A message with its type; none at the end of a connection.
fn message(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut message = head.to_vec();
    message.resize(1 + length, 0);
    from.read_exact(&mut message[5..]).ok()?;
    Some(message)
}

/// The first message of a client, which has no type.
fn startup(from: &mut impl Read) -> Vec<u8> {
    let mut head = [0; 4];
    from.read_exact(&mut head).expect("a client says who it is");
    let mut message = head.to_vec();
    message.resize(u32::from_be_bytes(head) as usize, 0);
    from.read_exact(&mut message[4..]).expect("the rest of it");
    message
}

/// The server's messages until it waits for more, and whether a transaction is open then.
fn answered(server: &mut UnixStream) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    loop {
        let said = message(server).expect("the server answers");
        all.extend_from_slice(&said);
        if said[0] == b'Z' {
            return (all, said[5] != b'I');
        }
    }
}

/// The single server process, with its startup messages.
struct Shared {
    server: UnixStream,
    greeting: Vec<u8>,
}

fn serve(mut client: TcpStream, socket: &str, shared: &Mutex<Option<Shared>>) {
    let hello = startup(&mut client);
    let greeting = {
        let mut shared = shared.lock().unwrap();
        let known = shared.get_or_insert_with(|| {
            let mut server = UnixStream::connect(socket).expect("the server's socket");
            server.write_all(&hello).unwrap();
            let (greeting, _) = answered(&mut server);
            Shared { server, greeting }
        });
        known.greeting.clone()
    };
    client.write_all(&greeting).unwrap();
    let mut asked = Vec::new();
    while let Some(said) = message(&mut client) {
        if said[0] == b'X' {
            return;
        }
        asked.extend_from_slice(&said);
        if !matches!(said[0], b'S' | b'Q') {
            continue;
        }
        // Until the end of the transaction the process belongs to this client.
        let mut shared = shared.lock().unwrap();
        let server = &mut shared.as_mut().expect("it was greeted").server;
        loop {
            server.write_all(&asked).unwrap();
            asked.clear();
            let (answer, open) = answered(server);
            if client.write_all(&answer).is_err() || !open {
                break;
            }
            loop {
                let Some(said) = message(&mut client) else { return };
                asked.extend_from_slice(&said);
                if matches!(said[0], b'S' | b'Q') {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_pooler_in_transaction_mode_is_refused_with_the_fix() {
    let database = Server::shared().empty();
    let url = database.url();
    let part = |begin: &str, end: char| {
        url.split(begin).nth(1).and_then(|rest| rest.split(end).next()).expect("a part of the URL")
    };
    let (host, name) = (part("host=", '&'), part("///", '?'));
    let socket = format!("{host}/.s.PGSQL.5432");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let shared: Arc<Mutex<Option<Shared>>> = Arc::default();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, socket, shared) = (client.unwrap(), socket.clone(), Arc::clone(&shared));
            std::thread::spawn(move || serve(client, &socket, &shared));
        }
    });
    let by_pooler = format!("postgres://postgres@127.0.0.1:{port}/{name}?sslmode=disable");
    let refused = block_on(async { PostgresStore::open(&by_pooler, patient()).await.map(drop) });
    let Err(Error::Invalid(said)) = refused else { panic!("{refused:?}") };
    assert!(said.contains("pool_mode = session"), "{said}");
}
