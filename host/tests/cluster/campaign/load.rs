//! The product at work during the campaign: shares that fall due within seconds, some extended
//! and some ended by the product right before their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls};

/// How often the product writes.
const EVERY: Duration = Duration::from_millis(100);

/// How long a write may take.
const WRITE_MAX: Duration = Duration::from_secs(2);

/// New shares, extended shares, shares that the product ends, each by one statement.
const WRITES: [&str; 3] = [
    "INSERT INTO shares (project_id, share_id, file_id, start_date)
     SELECT 'tenant-' || n % 4, gen_random_uuid()::text, 'f',
            now() - interval '7 days' + (2 + 5 * random()) * interval '1 second'
     FROM generate_series(1, 6) n",
    "UPDATE shares SET start_date = start_date + interval '3 seconds'
     WHERE (project_id, share_id) IN
           (SELECT project_id, share_id FROM shares
            WHERE unshared_at IS NULL AND start_date <= now() - interval '7 days' + interval '400 ms'
              AND start_date > now() - interval '7 days' LIMIT 2)",
    "UPDATE shares SET unshared_at = now()
     WHERE (project_id, share_id) IN
           (SELECT project_id, share_id FROM shares
            WHERE unshared_at IS NULL AND start_date <= now() - interval '7 days' + interval '300 ms'
              AND start_date > now() - interval '7 days' LIMIT 1)",
];

/// The running product.
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts it on that database. Writes that the server refuses during a fault are dropped.
    pub fn start(database: Config) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let runtime = Runtime::new().expect("a runtime");
            let mut client: Option<Client> = None;
            while !stopped.load(Ordering::SeqCst) {
                client = client.filter(|client| !client.is_closed());
                if client.is_none() {
                    client = runtime.block_on(connect(&database));
                }
                if let Some(client) = &client {
                    runtime.block_on(write(client));
                }
                thread::sleep(EVERY);
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

async fn write(client: &Client) {
    for sql in WRITES {
        // It does not wait for a frozen server; the next round tries again.
        let _ = tokio::time::timeout(WRITE_MAX, client.batch_execute(sql)).await;
    }
}

async fn connect(database: &Config) -> Option<Client> {
    let (client, connection) = database.connect(NoTls).await.ok()?;
    tokio::spawn(connection);
    client.batch_execute("SET lock_timeout = '500ms'").await.ok()?;
    Some(client)
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
