//! Output to Redis Cluster: what a message writes, and the position of its key, in one script on the key's slot.
//!
//! All names that belong to a key end with its [`tag`]. The hash `feed:position:CONSUMER:TOPIC:{tag}` has how far
//! the key was taken, and the script applies a message only if its number is above that. So a message that comes
//! again, from this consumer or from a former owner of the partition, changes nothing.
//!
//! The hash `feed:offset:{CONSUMER:TOPIC:PARTITION}` has how far a partition was read, which is written after
//! the keys. Who begins with a partition raises its `owner`. A consumer that has lost the partition without
//! knowing it finds another number than its own, and commits nothing.
//!
//! The scripts do not roll back: commands that took effect before one that Redis refuses remain.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use redis::cluster::{ClusterConnection, cluster_pipe};
use redis::{Cmd, RedisError, RedisResult, cmd};

use crate::Error;
use crate::message::Message;
use crate::order::{Key, Position};
use crate::sink::{Batch, Kept, Progress, SetAside, Sink, Start, lost};

/// Applies the messages of one key. KEYS: the hash of the position, and all that is written. ARGV: the last
/// number as the consumer knows it, the position afterwards, and the messages with their commands.
const APPLY: &str = include_str!("redis/apply.lua");
/// KEYS: the hash of the partition. ARGV: owner, next, and `lost_below` if it changes.
const PROGRESS: &str = "
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'next', ARGV[2])
if ARGV[3] then redis.call('HSET', KEYS[1], 'lost_below', ARGV[3]) end
return 1";
/// The arguments that a command may have: Lua takes no more than 8,000.
const ARGUMENTS_MAX: usize = 4_000;

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Error {
        Error::Again(format!("Redis: {error}"))
    }
}

/// A command that writes to one key of Redis, which is in the slot of the message's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    name: String,
    on: String,
    arguments: Vec<Vec<u8>>,
}

impl Command {
    /// The command `name`, with [`name(on, key)`](name) as its first argument. `on` is without `{`.
    pub fn new(name: &str, on: &str) -> Command {
        Command { name: name.to_owned(), on: on.to_owned(), arguments: Vec::new() }
    }

    /// With a further argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Command {
        self.arguments.push(argument.as_ref().to_vec());
        self
    }

    /// Why no script can have it.
    fn fault(&self) -> Option<String> {
        let Command { name, on, arguments } = self;
        match arguments.len() {
            _ if on.contains('{') => Some(format!("{name} {on}: the name has a {{")),
            more if more > ARGUMENTS_MAX => {
                Some(format!("{name} {on} has {more} arguments, more than {ARGUMENTS_MAX}"))
            }
            _ => None,
        }
    }
}

/// The hash tag of all that belongs to a key: its text, after the tenant's and a slash if it has one. `%`, `/`,
/// `{` and `}` are percent-encoded, and `%` alone stands for an empty key.
pub fn tag(key: &Key) -> String {
    let encoded = |text: &str| {
        let mut encoded = text.replace('%', "%25");
        for (plain, code) in [("/", "%2F"), ("{", "%7B"), ("}", "%7D")] {
            encoded = encoded.replace(plain, code);
        }
        encoded
    };
    match (key.tenant.as_str(), key.key.as_str()) {
        ("", "") => "%".into(),
        ("", key) => encoded(key),
        (tenant, key) => format!("{}/{}", encoded(tenant), encoded(key)),
    }
}

/// The name in Redis of what a [`Command`] writes to: `on:{tag}`.
pub fn name(on: &str, key: &Key) -> String {
    format!("{on}:{{{}}}", tag(key))
}

/// Applies messages with the commands that `handle` makes of them. An error of `handle` sets the message aside.
pub struct RedisSink<C, F> {
    connect: C,
    consumer: String,
    handle: F,
    /// How many have to confirm the output, within which time.
    replicas: (u32, Duration),
    life: Option<Life>,
    /// The owner's number of each partition that this consumer has.
    owners: BTreeMap<i32, i64>,
    /// The last number of each key, as this consumer knows it, and its partition since its first commit.
    lasts: HashMap<Key, (u64, Option<i32>)>,
}

/// A connection, and the digests of the scripts.
struct Life {
    connection: ClusterConnection,
    apply: String,
    progress: String,
}

/// A message of a batch: with its commands, or set aside.
struct Item<'a> {
    message: &'a Message,
    /// Whether the position of its key moves with it.
    counts: bool,
    what: Result<Vec<Command>, String>,
}

impl<C, F> RedisSink<C, F>
where
    C: FnMut() -> RedisResult<ClusterConnection>,
    F: FnMut(&Message) -> Result<Vec<Command>, String>,
{
    /// `connect` is called whenever the feed begins anew. `consumer` names who reads, so that several can
    /// keep their positions in one cluster; it is without `{` and `}`.
    ///
    /// # Errors
    /// The name has a brace.
    pub fn new(connect: C, consumer: &str, handle: F) -> Result<Self, Error> {
        if consumer.contains(['{', '}']) {
            return Err(Error::Stop(format!(
                "the consumer {consumer}: a name with a brace would be a hash tag of Redis"
            )));
        }
        let (consumer, owners, lasts) = (consumer.to_owned(), BTreeMap::new(), HashMap::new());
        Ok(RedisSink {
            connect,
            consumer,
            handle,
            replicas: (0, Duration::ZERO),
            life: None,
            owners,
            lasts,
        })
    }

    /// So many replicas of each primary have to confirm the output within this time, before the feed goes
    /// past it (`WAIT`); otherwise it begins anew.
    #[must_use]
    pub fn with_replicas(mut self, replicas: u32, within: Duration) -> Self {
        self.replicas = (replicas, within);
        self
    }

    fn life(&mut self) -> &mut Life {
        self.life.as_mut().expect("the feed has begun")
    }

    fn position_name(&self, topic: &str, key: &Key) -> String {
        name(&format!("feed:position:{}:{topic}", self.consumer), key)
    }

    fn offset_name(&self, topic: &str, partition: i32) -> String {
        format!("feed:offset:{{{}:{topic}:{partition}}}", self.consumer)
    }

    /// What is set aside: a hash for each message, which is the same if it is written again.
    fn letter(&self, topic: &str, message: &Message, reason: &str) -> Command {
        let Message { partition, offset, .. } = message;
        let on = format!("feed:dead:{}:{topic}:{partition}:{offset}", self.consumer);
        Command::new("HSET", &on)
            .arg("partition")
            .arg(partition.to_string())
            .arg("offset")
            .arg(offset.to_string())
            .arg("tenant")
            .arg(&message.key.tenant)
            .arg("key")
            .arg(&message.key.key)
            .arg("number")
            .arg(message.number.to_string())
            .arg("payload")
            .arg(&message.payload)
            .arg("reason")
            .arg(reason)
    }

    /// The script for a key.
    fn script(
        &mut self,
        topic: &str,
        key: &Key,
        items: &[Item<'_>],
        position: Option<&Position>,
    ) -> Cmd {
        let mut names = vec![self.position_name(topic, key)];
        let mut words: Vec<Vec<u8>> = Vec::new();
        let number = |number: usize| number.to_string().into_bytes();
        let before = position.and_then(|_| Some(self.lasts.get(key)?.0));
        words.push(before.map_or_else(Vec::new, |last| last.to_string().into_bytes()));
        for text in position.map_or_else(Default::default, texts) {
            words.push(text.into_bytes());
        }
        words.push(number(items.len()));
        for Item { message, counts, what } in items {
            let letter;
            let (kind, commands) = match what {
                Ok(commands) => ("message", commands.as_slice()),
                Err(reason) => {
                    letter = [self.letter(topic, message, reason)];
                    ("letter", letter.as_slice())
                }
            };
            let Message { partition, offset, number: taken, .. } = message;
            let taken = if *counts { taken.to_string() } else { String::new() };
            for text in [kind, &taken, &partition.to_string(), &offset.to_string()] {
                words.push(text.as_bytes().to_vec());
            }
            words.push(number(commands.len()));
            for Command { name: verb, on, arguments } in commands {
                let name = name(on, key);
                let place = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                words.push(number(arguments.len() + 2));
                words.push(verb.as_bytes().to_vec());
                words.push(number(place + 1));
                words.extend(arguments.iter().cloned());
            }
        }
        let mut script = cmd("EVALSHA");
        script.arg(&self.life().apply).arg(names.len()).arg(names).arg(words);
        script
    }

    /// Applies the messages of all keys, each key in its order.
    fn apply(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut all: BTreeMap<&Key, Vec<Item<'_>>> = BTreeMap::new();
        for message in batch.accepted {
            let what = (self.handle)(message).and_then(|commands| {
                let fault = commands.iter().find_map(Command::fault);
                fault.map_or(Ok(commands), Err)
            });
            all.entry(&message.key).or_default().push(Item { message, counts: true, what });
        }
        for SetAside { message, reason } in batch.set_aside {
            let what = Err(reason.clone());
            all.entry(&message.key).or_default().push(Item { message, counts: false, what });
        }
        let positions: BTreeMap<&Key, &Position> =
            batch.positions.iter().map(|(_, key, position)| (key, position)).collect();
        while !all.is_empty() {
            let mut scripts = cluster_pipe();
            for (key, items) in &all {
                let position = positions.get(key).copied();
                scripts.add_command(self.script(batch.topic, key, items, position));
            }
            let answers: Vec<Vec<String>> = scripts.query(&mut self.life().connection)?;
            let mut open = BTreeMap::new();
            for ((key, mut items), answer) in all.into_iter().zip(answers) {
                let [what, place, said] = answer.as_slice() else {
                    return Err(Error::Stop(format!("the script of the feed answers {answer:?}")));
                };
                match what.as_str() {
                    "done" => {}
                    // The second try sets it aside.
                    "refused" => {
                        let place = place.parse::<usize>().map_err(unreadable)?;
                        items[place - 1].what = Err(said.clone());
                        open.insert(key, items);
                    }
                    "behind" => {
                        let from = said.parse::<i64>().map_err(unreadable)? + 1;
                        let partition = items[0].message.partition;
                        self.again_from(batch.topic, partition, from)?;
                        return Err(Error::Again(format!(
                            "Redis has lost what it had committed of the key {}: {}, partition {partition} \
                             is read again from offset {from}",
                            key.key, batch.topic
                        )));
                    }
                    _ => return Err(Error::Again(said.clone())),
                }
            }
            all = open;
        }
        for (partition, key, position) in batch.positions {
            self.lasts.insert(key.clone(), (position.last, Some(*partition)));
        }
        Ok(())
    }

    fn await_replicas(&mut self) -> Result<(), Error> {
        let (wanted, within) = self.replicas;
        if wanted == 0 {
            return Ok(());
        }
        let mut wait = cmd("WAIT");
        // 0 would wait for ever.
        wait.arg(wanted).arg(within.as_millis().max(1).to_string());
        let found: u32 = wait.query(&mut self.life().connection)?;
        if found < wanted {
            let why = format!("{found} replicas have confirmed the output, of {wanted}");
            return Err(Error::Again(why));
        }
        Ok(())
    }

    fn progress(&mut self, topic: &str, partition: i32, next: i64) -> Cmd {
        let name = self.offset_name(topic, partition);
        let owner = self.owners.get(&partition).copied().unwrap_or_default();
        let mut script = cmd("EVALSHA");
        script.arg(&self.life().progress).arg(1).arg(name).arg(owner).arg(next);
        script
    }

    /// Asks for each partition, and ends if an answer is not the one of its owner.
    fn owned(
        &mut self,
        topic: &str,
        partitions: &[Progress],
        mut ask: impl FnMut(&mut Self, &Progress) -> (Cmd, Option<i64>),
    ) -> Result<(), Error> {
        if partitions.is_empty() {
            return Ok(());
        }
        let mut all = cluster_pipe();
        let mut expected = Vec::new();
        for one in partitions {
            let (command, answer) = ask(self, one);
            all.add_command(command);
            expected.push(answer);
        }
        let answers: Vec<Option<i64>> = all.query(&mut self.life().connection)?;
        let differs = answers.iter().zip(&expected).position(|(answer, mine)| answer != mine);
        differs.map_or(Ok(()), |place| Err(lost(topic, partitions[place].partition)))
    }
}

impl<C, F> Sink for RedisSink<C, F>
where
    C: FnMut() -> RedisResult<ClusterConnection>,
    F: FnMut(&Message) -> Result<Vec<Command>, String>,
{
    fn begin(&mut self) -> Result<(), Error> {
        self.owners.clear();
        self.lasts.clear();
        self.life = None;
        let mut connection = (self.connect)()?;
        // WAIT covers only what its own connection has written. So one that breaks between the output and WAIT
        // is an error, and is not replaced in silence.
        connection.set_auto_reconnect(false);
        // On all servers; one that takes over later has none, and the feed begins anew.
        let mut load = |script| cmd("SCRIPT").arg("LOAD").arg(script).query(&mut connection);
        let (apply, progress) = (load(APPLY)?, load(PROGRESS)?);
        self.life = Some(Life { connection, apply, progress });
        Ok(())
    }

    fn start(&mut self, topic: &str, partition: i32) -> Result<Start, Error> {
        let name = self.offset_name(topic, partition);
        let connection = &mut self.life().connection;
        let owner: i64 = cmd("HINCRBY").arg(&name).arg("owner").arg(1).query(connection)?;
        let (next, lost_below): (Option<i64>, Option<i64>) =
            cmd("HMGET").arg(&name).arg("next").arg("lost_below").query(connection)?;
        self.owners.insert(partition, owner);
        let (next, lost_below) = (next.unwrap_or_default(), lost_below.unwrap_or_default());
        Ok(Start::Kept(Kept { next, lost_below }))
    }

    fn end(&mut self, partition: i32) {
        self.owners.remove(&partition);
        self.lasts.retain(|_, (_, of)| *of != Some(partition));
    }

    fn again_from(&mut self, topic: &str, partition: i32, offset: i64) -> Result<bool, Error> {
        let to = Kept { next: offset, lost_below: 0 };
        self.owned(topic, &[Progress { partition, to }], |sink, one| {
            (sink.progress(topic, one.partition, one.to.next), Some(1))
        })?;
        Ok(true)
    }

    fn positions(&mut self, topic: &str, keys: &[Key]) -> Result<Vec<(Key, Position)>, Error> {
        let mut all = cluster_pipe();
        for key in keys {
            let fields = ["last", "offset", "recent", "of", "time"];
            all.cmd("HMGET").arg(self.position_name(topic, key)).arg(&fields);
        }
        let answers: Vec<Vec<Option<String>>> = all.query(&mut self.life().connection)?;
        let mut positions = Vec::new();
        for (key, answer) in keys.iter().zip(answers) {
            let position = position(&answer).map_err(|error| {
                let name = self.position_name(topic, key);
                Error::Stop(format!("{name}: {error}"))
            })?;
            let last = position.as_ref().map_or(0, |position| position.last);
            self.lasts.insert(key.clone(), (last, None));
            positions.extend(position.map(|position| (key.clone(), position)));
        }
        Ok(positions)
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let topic = batch.topic;
        self.owned(topic, batch.progress, |sink, one| {
            let mut owner = cmd("HGET");
            owner.arg(sink.offset_name(topic, one.partition)).arg("owner");
            // Without a number of its own, nothing is this consumer's.
            (owner, Some(sink.owners.get(&one.partition).copied().unwrap_or(-1)))
        })?;
        self.apply(batch)?;
        self.await_replicas()?;
        self.owned(topic, batch.progress, |sink, one| {
            let mut script = sink.progress(topic, one.partition, one.to.next);
            script.arg(one.to.lost_below);
            (script, Some(1))
        })
    }
}

/// A position as the hash has it: last, offset, digests, time.
fn texts(position: &Position) -> [String; 4] {
    let recent: Vec<String> = position.recent.iter().map(u64::to_string).collect();
    [
        position.last.to_string(),
        position.offset.to_string(),
        recent.join(" "),
        position.time.to_string(),
    ]
}

/// The position that a hash has.
///
/// # Errors
/// It is none.
fn position(fields: &[Option<String>]) -> Result<Option<Position>, std::num::ParseIntError> {
    let [Some(last), offset, recent, of, time] = fields else { return Ok(None) };
    let offset = offset.as_ref().map_or(Ok(-1), |offset| offset.parse())?;
    // The digests belong to another number if the consumer has ended between two scripts.
    let recent = recent.as_ref().filter(|_| of.as_ref() == Some(last));
    let recent = recent.iter().flat_map(|recent| recent.split_whitespace());
    let recent = recent.map(str::parse).collect::<Result<_, _>>()?;
    let time = time.as_ref().map_or(Ok(0), |time| time.parse())?;
    Ok(Some(Position { last: last.parse()?, offset, recent, time }))
}

fn unreadable(error: std::num::ParseIntError) -> Error {
    Error::Stop(format!("an answer of the script of the feed: {error}"))
}
