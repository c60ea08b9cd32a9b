//! Connections that end without a close frame: clients that vanish, hosts that are killed.

use besom_tests::conformance::block_on;
use tokio::io::AsyncReadExt as _;

use super::site::{Host, KINDS, Site};
use super::tab::{Tab, frozen};

#[test]
fn a_client_that_vanished_without_a_close_is_closed_and_its_workspace_stands_by() {
    for kind in KINDS {
        block_on(async {
            let site = Site::new(kind).await;
            let host = Host::start(&site, "a").await;
            let gone = frozen(&site.socket("a"), "ws-1").await;
            site.known("a", "active").await;
            site.known("a", "waiting").await;
            site.wanted("STANDBY").await;
            // The frames that the host has sent, read without answering: empty pings, and at the
            // end a close frame with its code.
            let mut sent = Vec::new();
            gone.into_inner().read_to_end(&mut sent).await.expect("what was sent");
            let pings = sent.chunks_exact(2).take_while(|frame| *frame == [0x89, 0]).count();
            assert!(pings >= 2, "{kind:?}: {pings} pings");
            let [0x88, _, high, low, ..] = sent[2 * pings..] else { panic!("{kind:?}: {sent:?}") };
            assert_eq!(u16::from_be_bytes([high, low]), 1008, "{kind:?}");
            host.kill();
        });
    }
}

#[test]
fn connections_of_a_killed_host_expire() {
    for kind in KINDS {
        block_on(async {
            let site = Site::new(kind).await;
            let (killed, other) = (Host::start(&site, "a").await, Host::start(&site, "b").await);
            let tab = Tab::open(&site.socket("a"), "ws-1").await;
            site.known("b", "active").await;
            killed.kill();
            assert_eq!(tab.closed_by_the_host().await, None, "{kind:?}: no frame");
            site.known("b", "waiting").await;
            site.wanted("STANDBY").await;
            if let Some(redis) = &site.redis {
                super::site::wait_for("the count to go", async || {
                    (redis.command::<i64>("EXISTS ws_conn:ws-1") == 0).then_some(())
                })
                .await;
            }
            other.kill();
        });
    }
}

#[test]
fn a_host_that_stops_says_so_and_its_clients_have_time_to_come_back() {
    for kind in KINDS {
        block_on(async {
            let site = Site::new(kind).await;
            let mut stopped = Host::start(&site, "a").await;
            let other = Host::start(&site, "b").await;
            let tab = Tab::open(&site.socket("a"), "ws-1").await;
            site.known("b", "active").await;
            stopped.ask_to_stop();
            assert_eq!(tab.closed_by_the_host().await, Some(1001), "{kind:?}");
            // The connection was not reported as ended.
            let back = Tab::open(&site.socket("b"), "ws-1").await;
            site.known("b", "active").await;
            assert!(stopped.ended().await.success(), "{}", stopped.log());
            assert_eq!(site.workspace().await.desired_state, "RUNNING", "{kind:?}");
            back.close().await;
            site.wanted("STANDBY").await;
            other.kill();
        });
    }
}
