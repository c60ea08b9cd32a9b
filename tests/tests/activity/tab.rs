//! A browser's tab: a WebSocket that answers pings until it is closed or lost.

use std::path::Path;

use futures::StreamExt as _;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// How a tab ends.
enum Way {
    /// With a close frame.
    Closed,
    /// Without a close frame, as when the network is gone.
    Lost,
}

/// A tab that is open.
pub struct Tab {
    end: oneshot::Sender<Way>,
    task: JoinHandle<Option<CloseFrame>>,
}

/// A socket that is not read: it answers no ping.
pub type Frozen = WebSocketStream<UnixStream>;

/// Opens a socket that is not read.
pub async fn frozen(socket: &Path, id: &str) -> Frozen {
    let stream = UnixStream::connect(socket).await.expect("the endpoint listens");
    let url = format!("ws://localhost/activity/{id}/ws");
    tokio_tungstenite::client_async(url, stream).await.expect("a WebSocket").0
}

impl Tab {
    /// Opens a tab of a workspace.
    pub async fn open(socket: &Path, id: &str) -> Tab {
        let mut stream = frozen(socket, id).await;
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    way = &mut ended => match way {
                        Ok(Way::Lost) => return None,
                        Ok(Way::Closed) | Err(_) => {
                            stream.close(None).await.expect("it takes the frame");
                            while stream.next().await.is_some_and(|message| message.is_ok()) {}
                            return None;
                        }
                    },
                    // Reading answers the pings.
                    message = stream.next() => match message {
                        Some(Ok(Message::Close(frame))) => return frame,
                        Some(Ok(_)) => {}
                        None | Some(Err(_)) => return None,
                    },
                }
            }
        });
        Tab { end, task }
    }

    /// Closes it.
    pub async fn close(self) {
        assert!(self.end.send(Way::Closed).is_ok(), "it is open");
        self.task.await.expect("its task ends");
    }

    /// Cuts its network.
    pub async fn lose(self) {
        assert!(self.end.send(Way::Lost).is_ok(), "it is open");
        self.task.await.expect("its task ends");
    }

    /// The code with which the host closes it.
    pub async fn closed_by_the_host(self) -> Option<u16> {
        let Tab { end, task } = self;
        let frame = task.await.expect("its task ends");
        drop(end);
        frame.map(|frame| frame.code.into())
    }
}
