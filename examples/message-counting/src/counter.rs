//! Counts the lines of each client, and passes each line on under its text: count, lines and offsets are
//! one transaction of Kafka.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use besom_feed::kafka::{KafkaSink, Record};
use besom_feed::{Message, Settings, run as feed};

use crate::{COUNTS, Consuming, DEAD, LINES, TEXTS};

pub(crate) fn settings(consuming: &Consuming) -> Settings {
    let settings = Settings::new(&consuming.brokers, LINES, "counter");
    Settings { instance: consuming.instance.clone(), ..settings }
}

fn count(message: &Message, count: &mut String) -> Result<Vec<Record>, String> {
    let line: String = serde_json::from_slice(&message.payload).map_err(|e| e.to_string())?;
    let before: u64 = if count.is_empty() { 0 } else { count.parse().map_err(|_| "no count")? };
    *count = (before + 1).to_string();
    let number = message.number.to_string().into_bytes();
    let headers = vec![("number".to_owned(), number)];
    let payload = message.key.key.clone().into_bytes();
    Ok(vec![Record { topic: TEXTS.to_owned(), key: line, payload, headers }])
}

pub(crate) fn run(consuming: &Consuming) -> Result<()> {
    let settings = settings(consuming);
    let mut sink = KafkaSink::new(&settings, COUNTS, DEAD, count);
    let mut tell = crate::tell(&settings);
    Ok(feed(&settings, &mut sink, &mut tell, &AtomicBool::new(false))?)
}
