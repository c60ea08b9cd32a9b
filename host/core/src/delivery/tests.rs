use super::*;
use crate::time::Time;

const SEC: Duration = Duration::from_secs(1);

fn rules(concurrency: u32) -> Rules {
    Rules { timeout: SEC * 10, attempts_max: 4, backoff: SEC, backoff_max: SEC * 60, concurrency }
}

fn machine(topics: &[(&str, u32)], concurrency: u32) -> Machine {
    let topics = topics.iter().map(|(name, of)| ((*name).to_owned(), rules(*of))).collect();
    Machine::new(Settings { topics, concurrency, poll: SEC }, Mono::START)
}

fn at(seconds: u64) -> Mono {
    Mono::START + SEC * u32::try_from(seconds).unwrap()
}

/// The message of the key "k" that has its id as its number.
pub(super) fn message(id: u64, topic: &str) -> Claimed {
    Claimed {
        id,
        at: Time::EPOCH,
        task: None,
        run: None,
        tenant: None,
        topic: topic.to_owned(),
        key: "k".to_owned(),
        sequence: id,
        payload: Vec::new(),
        attempt: 1,
    }
}

fn reply(status: u16) -> Reply {
    Reply { status, body: Vec::new(), cut: false }
}

fn replied(status: u16) -> Answer {
    Answer::Replied { reply: reply(status), retry_after: None }
}

fn step(machine: &mut Machine, now: Mono, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    machine.step(now, event, &mut || 0, &mut out);
    out
}

/// The command that records these results and claims messages.
fn notes(ended: Vec<Attempt>, room: &[(&str, u32)]) -> Command {
    let room = room.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
    Command::Claim { ended, claim: Claim { room, hold: SEC * 20, wait_max: SEC * 60 } }
}

fn claim(room: &[(&str, u32)]) -> Command {
    notes(vec![], room)
}

fn delivered(id: u64) -> Attempt {
    Attempt { id, attempt: 1, end: End::Delivered(Some(reply(200))) }
}

/// What is recorded and how much is claimed, by name.
fn asked(commands: &[Command]) -> (Vec<Attempt>, BTreeMap<String, u32>) {
    let [.., Command::Claim { ended, claim }] = commands else { panic!("{commands:?}") };
    (ended.clone(), claim.room.iter().cloned().collect())
}

fn sent(commands: &[Command]) -> Vec<u64> {
    let id = |command: &Command| match command {
        Command::Send(message) => Some(message.id),
        Command::Claim { .. } => None,
    };
    commands.iter().filter_map(id).collect()
}

fn claimed(ids: impl IntoIterator<Item = u64>, topic: &str) -> Event {
    Event::Claimed(Ok(ids.into_iter().map(|id| message(id, topic)).collect()))
}

#[test]
fn the_claim_of_the_next_message_records_the_result_of_the_one_before() {
    let mut m = machine(&[("t", 2)], 8);
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("t", 2)])]);
    assert_eq!(m.deadline(), None, "only the answer of the store can change anything");
    let one = message(1, "t");
    let sent = step(&mut m, at(0), Event::Claimed(Ok(vec![one.clone()])));
    assert_eq!(sent, [Command::Send(one)]);
    assert_eq!(m.deadline(), Some(at(1)));
    let ended = step(&mut m, at(2), Event::Answered(1, replied(200)));
    assert_eq!(ended, [notes(vec![delivered(1)], &[("t", 2)])]);
    assert_eq!(step(&mut m, at(2), claimed([], "t")), []);
    assert_eq!(m.deadline(), Some(at(3)));
    assert_eq!(step(&mut m, at(3), Event::Tick), [claim(&[("t", 2)])]);
}

/// While a transaction is under way, the places of what has ended are taken by what was claimed before.
#[test]
fn more_is_claimed_than_can_be_sent_while_a_receiver_is_quick() {
    let mut m = machine(&[("t", 2)], 8);
    step(&mut m, at(0), Event::Tick);
    assert_eq!(sent(&step(&mut m, at(0), claimed([1, 2], "t"))), [1, 2]);
    let next = step(&mut m, at(0), Event::Answered(1, replied(200)));
    assert_eq!(next, [notes(vec![delivered(1)], &[("t", 9)])]);
    assert_eq!(sent(&step(&mut m, at(0), claimed(3..12, "t"))), [3]);
    let next = step(&mut m, at(0), Event::Answered(2, replied(200)));
    assert_eq!(
        (sent(&next), asked(&next)),
        (vec![4], (vec![delivered(2)], [("t".into(), 1)].into()))
    );
    // The results of both are recorded together, once the store has answered.
    assert_eq!(sent(&step(&mut m, at(0), Event::Answered(3, replied(200)))), [5]);
    assert_eq!(sent(&step(&mut m, at(0), Event::Answered(4, replied(200)))), [6]);
    let next = step(&mut m, at(0), claimed([], "t"));
    assert_eq!(asked(&next).0, [delivered(3), delivered(4)]);
    // A receiver that has become slow, or fails, gets no more than it has places.
    for (id, answer) in [(5, replied(200)), (6, replied(503))] {
        let after = if id == 5 { 3 } else { 2 };
        step(&mut m, at(after), Event::Answered(id, answer));
        let next = step(&mut m, at(after), claimed([], "t"));
        assert_eq!(asked(&next).1, BTreeMap::new(), "{id}");
    }
    // Nor does one whose messages are large.
    let mut m = machine(&[("t", 2)], 8);
    step(&mut m, at(0), Event::Tick);
    let large = Claimed { payload: vec![0; 100_000], ..message(1, "t") };
    step(&mut m, at(0), Event::Claimed(Ok(vec![large])));
    let next = step(&mut m, at(0), Event::Answered(1, replied(200)));
    assert_eq!(asked(&next).1["t"], 2);
}

/// Its hold would end, and another claim would find it.
#[test]
fn a_message_that_finds_no_place_in_time_is_given_back() {
    let mut m = machine(&[("t", 1)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), claimed([1], "t"));
    step(&mut m, at(0), Event::Answered(1, replied(200)));
    assert_eq!(sent(&step(&mut m, at(1), claimed([2, 3], "t"))), [2]);
    step(&mut m, at(2), claimed([4], "t"));
    assert_eq!(m.deadline(), Some(at(6)), "the store has not answered");
    assert_eq!(step(&mut m, at(6), Event::Tick), []);
    let back = |id| {
        let end = End::Unsent { after: Duration::ZERO, error: NO_PLACE.into() };
        Attempt { id, attempt: 1, end }
    };
    assert_eq!(asked(&step(&mut m, at(6), claimed([], "t"))).0, [back(3)]);
    // The other one has its place in time.
    assert_eq!(sent(&step(&mut m, at(6), Event::Answered(2, replied(200)))), [4]);
}

#[test]
fn no_more_is_under_way_than_a_topic_and_the_host_allow() {
    let mut m = machine(&[("a", 2), ("b", 2)], 3);
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("a", 2), ("b", 2)])]);
    let both = vec![message(1, "a"), message(2, "a"), message(3, "b"), message(4, "b")];
    assert_eq!(sent(&step(&mut m, at(0), Event::Claimed(Ok(both)))), [3, 1, 4], "b has its turn");
    assert_eq!(m.deadline(), Some(at(5)), "all that may be is claimed");
    assert_eq!(sent(&step(&mut m, at(0), Event::Answered(3, replied(200)))), [2]);
}

/// A receiver that accepts connections and does not answer holds each of its places until its timeout.
#[test]
fn a_topic_that_may_take_all_places_leaves_one_to_each_other() {
    let mut m = machine(&[("a", 8), ("b", 8), ("c", 8)], 8);
    let all = [("a", 8), ("b", 8), ("c", 8)];
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&all)]);
    let hang = step(&mut m, at(0), claimed(1..=8, "a"));
    assert_eq!(sent(&hang), [1, 2, 3, 4, 5, 6]);
    for id in 10..14 {
        let second = id - 9;
        step(&mut m, at(second), Event::Tick);
        assert_eq!(sent(&step(&mut m, at(second), claimed([id], "b"))), [id]);
        step(&mut m, at(second), Event::Answered(id, replied(200)));
        step(&mut m, at(second), claimed([], "b"));
    }
    // With many topics, half of all places are kept.
    let names: Vec<String> = (0..24).map(|number| format!("t{number:02}")).collect();
    let topics: Vec<_> = names.iter().map(|name| (name.as_str(), 8)).collect();
    let mut m = machine(&topics, 8);
    step(&mut m, at(0), Event::Tick);
    assert_eq!(sent(&step(&mut m, at(0), claimed(1..=8, "t07"))), [1, 2, 3, 4]);
    let others = vec![message(11, "t03"), message(12, "t03"), message(13, "t04")];
    step(&mut m, at(1), Event::Tick);
    assert_eq!(sent(&step(&mut m, at(1), Event::Claimed(Ok(others)))), [11, 13]);
}

/// Most topics have nothing to send: they must not keep a busy one from its concurrency.
#[test]
fn a_busy_topic_has_its_places_beside_many_idle_ones() {
    let names: Vec<String> = (0..240).map(|number| format!("t{number:03}")).collect();
    let topics: Vec<_> = names.iter().map(|name| (name.as_str(), 4)).collect();
    let mut m = machine(&topics, 32);
    let (_, room) = asked(&step(&mut m, at(0), Event::Tick));
    assert_eq!(room.len(), 240, "each is asked for");
    assert_eq!(sent(&step(&mut m, at(0), claimed(1..=4, "t007"))), [1, 2, 3, 4]);
}

/// The pauses of an outage are minutes long by its end: the first success ends those of the others.
#[test]
fn a_receiver_that_is_back_gets_what_waits() {
    let mut m = machine(&[("t", 8), ("u", 8)], 16);
    let fail = |m: &mut Machine, second, id, topic: &str, attempt| {
        let message = Claimed { attempt, ..message(id, topic) };
        step(m, at(second), Event::Claimed(Ok(vec![message])));
        step(m, at(second), Event::Answered(id, replied(503)));
    };
    step(&mut m, at(0), Event::Tick);
    fail(&mut m, 0, 1, "t", 1);
    fail(&mut m, 1, 2, "t", 1);
    fail(&mut m, 2, 9, "u", 1);
    fail(&mut m, 20, 1, "t", 2);
    step(&mut m, at(21), claimed([5], "t"));
    let asks = Answer::Replied { reply: reply(429), retry_after: Some(SEC * 50) };
    step(&mut m, at(21), Event::Answered(5, asks));
    step(&mut m, at(30), claimed([3], "t"));
    let (attempts, _) = {
        step(&mut m, at(30), claimed([], "t"));
        asked(&step(&mut m, at(30), Event::Answered(3, replied(200))))
    };
    let again = |id, attempt| {
        let end = End::Again { after: Duration::ZERO, error: "answered 503".into() };
        Attempt { id, attempt, end }
    };
    assert_eq!(
        attempts[1..],
        [again(1, 2), again(2, 1)],
        "not those of another topic, or whose receiver named a time"
    );
    // A message that fails beside others that get through keeps its pauses.
    fail(&mut m, 31, 1, "t", 3);
    step(&mut m, at(40), claimed([4], "t"));
    step(&mut m, at(40), claimed([], "t"));
    let (attempts, _) = asked(&step(&mut m, at(40), Event::Answered(4, replied(200))));
    assert_eq!(attempts.len(), 1, "{attempts:?}");
}

#[test]
fn nothing_is_claimed_while_a_result_cannot_be_written_down() {
    let mut m = machine(&[("t", 8)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), claimed([1, 2], "t"));
    step(&mut m, at(0), Event::Answered(1, replied(200)));
    step(&mut m, at(0), Event::Answered(2, replied(404)));
    assert_eq!(step(&mut m, at(5), Event::Claimed(Err(Refused::Later))), []);
    assert_eq!(m.deadline(), Some(at(6)));
    let (both, _) = asked(&step(&mut m, at(6), Event::Tick));
    assert_eq!(both.iter().map(|attempt| attempt.id).collect::<Vec<_>>(), [1, 2]);
}

/// A claim whose answer was lost, or a hold that ended early: no message is sent twice at a time.
#[test]
fn a_message_that_is_claimed_while_it_is_being_sent_is_not_sent_again() {
    let mut m = machine(&[("t", 1)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), claimed([1], "t"));
    let again = |id, attempt| Claimed { attempt, ..message(id, "t") };
    let twice = vec![again(1, 2), again(2, 1), again(2, 2)];
    assert_eq!(step(&mut m, at(0), Event::Claimed(Ok(twice))), []);
    let ended = step(&mut m, at(0), Event::Answered(1, replied(200)));
    assert_eq!(asked(&ended).0, [Attempt { attempt: 2, ..delivered(1) }]);
    assert_eq!(ended[0], Command::Send(again(2, 2)));
}

#[test]
fn a_fenced_machine_begins_nothing_any_more() {
    let mut m = machine(&[("t", 1)], 8);
    step(&mut m, at(0), Event::Tick);
    assert_eq!(step(&mut m, at(0), Event::Claimed(Err(Refused::Fenced))), []);
    assert!(m.is_over());
    assert_eq!((m.deadline(), step(&mut m, at(99), Event::Tick)), (None, vec![]));
}

/// A token that cannot be read, for example. The topic waits as a whole, not each of its messages in turn.
#[test]
fn what_cannot_be_sent_uses_no_attempt_and_its_topic_waits() {
    let unsent = |id| Event::Answered(id, Answer::Unsent("token_file t: no".into()));
    let ended = |id, half_seconds| Attempt {
        id,
        attempt: 4,
        end: End::Unsent { after: SEC * half_seconds / 2, error: "token_file t: no".into() },
    };
    let last = |ids: &[u64]| {
        let of = |id: &u64| Claimed { attempt: 4, ..message(*id, "t") };
        Event::Claimed(Ok(ids.iter().map(of).collect()))
    };
    let mut m = machine(&[("t", 2), ("u", 2)], 8);
    step(&mut m, at(0), Event::Tick);
    assert_eq!(sent(&step(&mut m, at(0), last(&[1, 2, 3]))), [1, 2]);
    let both = step(&mut m, at(0), unsent(1));
    assert_eq!(both, [notes(vec![ended(1, 1), ended(3, 1)], &[("u", 2)])], "only its topic waits");
    assert_eq!(step(&mut m, at(0), unsent(2)), []);
    assert_eq!(step(&mut m, at(0), last(&[])), [notes(vec![ended(2, 1)], &[("u", 2)])]);
    assert_eq!(step(&mut m, at(0), last(&[])), []);
    assert_eq!(m.deadline(), Some(Mono::START + SEC / 2));
    assert_eq!(step(&mut m, at(1), Event::Tick), [claim(&[("u", 2), ("t", 2)])]);
    step(&mut m, at(1), last(&[1]));
    assert_eq!(asked(&step(&mut m, at(1), unsent(1))).0, [ended(1, 2)], "twice as long");
    step(&mut m, at(1), last(&[]));
    step(&mut m, at(2), Event::Tick);
    step(&mut m, at(2), last(&[1]));
    step(&mut m, at(2), Event::Answered(1, replied(200)));
    step(&mut m, at(2), last(&[2]));
    assert_eq!(asked(&step(&mut m, at(2), unsent(2))).0, [ended(2, 1)], "anew");
}

/// A token that was revoked says nothing about the messages: none of them is given up for it.
#[test]
fn a_receiver_that_does_not_accept_the_token_gets_each_message_later() {
    let mut m = machine(&[("t", 2)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), Event::Claimed(Ok(vec![Claimed { attempt: 4, ..message(1, "t") }])));
    let (attempts, _) = asked(&step(&mut m, at(0), Event::Answered(1, replied(401))));
    let error = "answered 401: the receiver does not accept the token".to_owned();
    assert_eq!(attempts[0].end, End::Unsent { after: SEC / 2, error });
}

#[test]
fn a_store_that_is_away_is_asked_again_after_a_while() {
    let mut m = machine(&[("t", 1)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(3), Event::Claimed(Err(Refused::Later)));
    assert_eq!(m.deadline(), Some(at(4)));
    assert_eq!(step(&mut m, at(4), Event::Tick), [claim(&[("t", 1)])]);
}

#[test]
fn an_answer_is_an_end_or_a_reason_to_try_again() {
    let again = |seconds: u64, error: &str| End::Again {
        after: Duration::from_secs(seconds) / 2,
        error: error.to_owned(),
    };
    let over =
        |error: &str, status| End::GivenUp { error: error.to_owned(), reply: Some(reply(status)) };
    let asked = |seconds| Answer::Replied { reply: reply(503), retry_after: Some(SEC * seconds) };
    let cases = [
        (1, replied(200), End::Delivered(Some(reply(200)))),
        (4, replied(204), End::Delivered(Some(reply(204)))),
        (1, replied(500), again(1, "answered 500")),
        (2, replied(503), again(2, "answered 503")),
        (3, replied(429), again(4, "answered 429")),
        (4, replied(500), over("answered 500 (attempt 4 of 4)", 500)),
        (1, replied(400), over("answered 400", 400)),
        (1, replied(422), over("answered 422", 422)),
        (1, replied(409), again(1, "answered 409")),
        (1, replied(302), again(1, "answered 302: redirects are not followed")),
        (2, replied(404), again(2, "answered 404")),
        (4, replied(404), over("answered 404 (attempt 4 of 4)", 404)),
        (1, Answer::Failed("away".into()), again(1, "away")),
        (
            4,
            Answer::Failed("away".into()),
            End::GivenUp { error: "away (attempt 4 of 4)".into(), reply: None },
        ),
        (1, asked(20), End::Again { after: SEC * 20, error: "answered 503".into() }),
        (1, asked(9_999), End::Again { after: SEC * 60, error: "answered 503".into() }),
    ];
    for (attempt, answer, expected) in cases {
        assert_eq!(judge(&rules(1), attempt, answer.clone(), 0), expected, "{answer:?}");
    }
}
