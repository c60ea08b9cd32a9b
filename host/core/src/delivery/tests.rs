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

fn claim(room: &[(&str, u32)]) -> Command {
    let room = room.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
    Command::Claim { room, hold: SEC * 15 }
}

#[test]
fn a_message_goes_from_its_claim_to_the_note_of_its_end_and_the_next_is_looked_for() {
    let mut m = machine(&[("t", 2)], 8);
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("t", 2)])]);
    let one = message(1, "t");
    let sent = step(&mut m, at(0), Event::Claimed(Ok(vec![one.clone()])));
    assert_eq!(sent, [Command::Send(one)]);
    assert_eq!(m.deadline(), Some(at(1)));
    let ended = step(&mut m, at(0), Event::Answered(1, replied(200)));
    let noted = Attempt { id: 1, attempt: 1, end: End::Delivered(Some(reply(200))) };
    assert_eq!(ended, [Command::Note(vec![noted])]);
    assert_eq!(step(&mut m, at(0), Event::Noted(Ok(()))), [claim(&[("t", 2)])]);
    assert_eq!(m.under_way(), 0);
}

#[test]
fn no_more_is_under_way_than_a_topic_and_the_host_allow() {
    let mut m = machine(&[("a", 2), ("b", 2)], 3);
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("a", 2), ("b", 1)])]);
    let claimed = vec![message(1, "a"), message(2, "a")];
    step(&mut m, at(0), Event::Claimed(Ok(claimed)));
    // The other topic has the first choice now, and the host's bound holds.
    assert_eq!(step(&mut m, at(1), Event::Tick), [claim(&[("b", 1)])]);
    step(&mut m, at(1), Event::Claimed(Ok(vec![message(3, "b")])));
    assert_eq!(m.deadline(), None, "full: only an answer makes room");
    assert_eq!(step(&mut m, at(9), Event::Tick), []);
}

/// A receiver that accepts connections and does not answer holds each of its places until its timeout.
#[test]
fn a_topic_that_may_take_all_places_leaves_one_to_each_other() {
    let mut m = machine(&[("a", 8), ("b", 8), ("c", 8)], 8);
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("a", 6), ("b", 1), ("c", 1)])]);
    let hang = (1..=6).map(|id| message(id, "a")).collect();
    step(&mut m, at(0), Event::Claimed(Ok(hang)));
    for id in 10..15 {
        let asked = step(&mut m, at(id), Event::Tick);
        let [Command::Claim { room, .. }] = &asked[..] else { panic!("{asked:?}") };
        let mut names: Vec<_> = room.iter().map(|(name, free)| (name.as_str(), *free)).collect();
        names.sort();
        assert_eq!(names, [("b", 1), ("c", 1)]);
        step(&mut m, at(id), Event::Claimed(Ok(vec![message(id, "b")])));
        step(&mut m, at(id), Event::Answered(id, replied(200)));
        step(&mut m, at(id), Event::Noted(Ok(())));
        step(&mut m, at(id), Event::Claimed(Ok(vec![])));
    }
    // With more topics than places, the first in turn have one each.
    let mut m = machine(&[("a", 2), ("b", 2), ("c", 2)], 2);
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("a", 1), ("b", 1)])]);
}

/// Most topics have nothing to send: they must not keep a busy one from its concurrency.
#[test]
fn a_busy_topic_has_its_places_beside_many_idle_ones() {
    let names: Vec<String> = (0..24).map(|number| format!("t{number:02}")).collect();
    let topics: Vec<_> = names.iter().map(|name| (name.as_str(), 4)).collect();
    let mut m = machine(&topics, 32);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), Event::Claimed(Ok(vec![message(1, "t07")])));
    for second in 1..30 {
        let asked = step(&mut m, at(second), Event::Tick);
        let [Command::Claim { room, .. }] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(room.iter().find(|(name, _)| name == "t07"), Some(&("t07".to_owned(), 3)));
        assert_eq!((room.len(), room.iter().map(|(_, free)| free).sum::<u32>()), (24, 31));
        step(&mut m, at(second), Event::Claimed(Ok(vec![])));
    }
}

/// The pauses of an outage are minutes long by its end: the first success ends those of the others.
#[test]
fn a_receiver_that_is_back_gets_what_waits() {
    let mut m = machine(&[("t", 8), ("u", 8)], 16);
    let fail = |m: &mut Machine, second, id, topic: &str, attempt| {
        step(m, at(second), Event::Claimed(Ok(vec![Claimed { attempt, ..message(id, topic) }])));
        step(m, at(second), Event::Answered(id, replied(503)));
        step(m, at(second), Event::Noted(Ok(())));
    };
    step(&mut m, at(0), Event::Tick);
    fail(&mut m, 0, 1, "t", 1);
    fail(&mut m, 1, 2, "t", 1);
    fail(&mut m, 2, 9, "u", 1);
    fail(&mut m, 20, 1, "t", 2);
    step(&mut m, at(21), Event::Claimed(Ok(vec![message(5, "t")])));
    let asks = Answer::Replied { reply: reply(429), retry_after: Some(SEC * 50) };
    step(&mut m, at(21), Event::Answered(5, asks));
    step(&mut m, at(21), Event::Noted(Ok(())));
    step(&mut m, at(30), Event::Claimed(Ok(vec![message(3, "t")])));
    let noted = step(&mut m, at(30), Event::Answered(3, replied(200)));
    let [Command::Note(attempts)] = &noted[..] else { panic!("{noted:?}") };
    let again = |id, attempt| {
        let end = End::Again { after: Duration::ZERO, error: "answered 503".into() };
        Attempt { id, attempt, end }
    };
    assert_eq!(
        attempts[1..],
        [again(1, 2), again(2, 1)],
        "not those of another topic, or whose receiver named a time"
    );
    step(&mut m, at(30), Event::Noted(Ok(())));
    // A message that fails beside others that get through keeps its pauses.
    fail(&mut m, 31, 1, "t", 3);
    step(&mut m, at(40), Event::Claimed(Ok(vec![message(4, "t")])));
    let noted = step(&mut m, at(40), Event::Answered(4, replied(200)));
    let [Command::Note(attempts)] = &noted[..] else { panic!("{noted:?}") };
    assert_eq!(attempts.len(), 1, "{attempts:?}");
}

/// A pause between them would bound each topic to one message in as many pauses as there are topics.
#[test]
fn topics_that_found_no_place_are_asked_for_as_soon_as_places_stay_free() {
    let mut m = machine(&[("a", 2), ("b", 2), ("c", 2), ("d", 2)], 2);
    let none = || Event::Claimed(Ok(vec![]));
    assert_eq!(step(&mut m, at(0), Event::Tick), [claim(&[("a", 1), ("b", 1)])]);
    let rest = step(&mut m, at(0), Event::Claimed(Ok(vec![message(1, "b")])));
    assert_eq!(rest, [Command::Send(message(1, "b")), claim(&[("c", 1)])]);
    assert_eq!(step(&mut m, at(0), none()), [claim(&[("d", 1)])]);
    // All were asked for: what is left waits for messages.
    assert_eq!(step(&mut m, at(0), none()), []);
    assert_eq!(m.deadline(), Some(at(1)));
    let again = step(&mut m, at(1), Event::Tick);
    let [Command::Claim { room, .. }] = &again[..] else { panic!("{again:?}") };
    assert_eq!(room.iter().map(|(_, free)| free).sum::<u32>(), 1, "b has the other place");
    // While no place is free, nothing is asked for.
    let taken = step(&mut m, at(1), Event::Claimed(Ok(vec![message(2, &room[0].0)])));
    assert_eq!(taken, [Command::Send(message(2, &room[0].0))]);
    assert_eq!(m.deadline(), None);
}

#[test]
fn nothing_is_claimed_while_a_result_cannot_be_written_down() {
    let mut m = machine(&[("t", 8)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), Event::Claimed(Ok(vec![message(1, "t"), message(2, "t")])));
    step(&mut m, at(0), Event::Answered(1, replied(200)));
    step(&mut m, at(0), Event::Answered(2, replied(404)));
    assert_eq!(step(&mut m, at(5), Event::Noted(Err(Refused::Later))), []);
    assert_eq!(m.deadline(), Some(at(6)));
    let out = step(&mut m, at(6), Event::Tick);
    let [Command::Note(both)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(both.iter().map(|attempt| attempt.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(step(&mut m, at(6), Event::Noted(Ok(()))), [claim(&[("t", 8)])]);
}

#[test]
fn a_fenced_machine_begins_nothing_any_more() {
    for fenced in [Event::Claimed(Err(Refused::Fenced)), Event::Noted(Err(Refused::Fenced))] {
        let mut m = machine(&[("t", 1)], 8);
        step(&mut m, at(0), Event::Tick);
        assert_eq!(step(&mut m, at(0), fenced), []);
        assert!(m.is_fenced());
        assert_eq!((m.deadline(), step(&mut m, at(99), Event::Tick)), (None, vec![]));
    }
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
    let last = |id| Claimed { attempt: 4, ..message(id, "t") };
    let mut m = machine(&[("t", 2), ("u", 2)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), Event::Claimed(Ok(vec![last(1), last(2)])));
    assert_eq!(step(&mut m, at(0), unsent(1)), [Command::Note(vec![ended(1, 1)])]);
    assert_eq!(step(&mut m, at(0), unsent(2)), [], "both count once");
    assert_eq!(step(&mut m, at(0), Event::Noted(Ok(()))), [Command::Note(vec![ended(2, 1)])]);
    let others = step(&mut m, at(0), Event::Noted(Ok(())));
    assert_eq!(others, [claim(&[("u", 2)])], "only its own topic waits");
    assert_eq!(step(&mut m, at(0), Event::Claimed(Ok(vec![]))), []);
    assert_eq!(m.deadline(), Some(Mono::START + SEC / 2));
    assert_eq!(step(&mut m, at(1), Event::Tick), [claim(&[("t", 2), ("u", 2)])]);
    step(&mut m, at(1), Event::Claimed(Ok(vec![last(1)])));
    assert_eq!(step(&mut m, at(1), unsent(1)), [Command::Note(vec![ended(1, 2)])], "twice as long");
    step(&mut m, at(1), Event::Noted(Ok(())));
    step(&mut m, at(1), Event::Claimed(Ok(vec![])));
    step(&mut m, at(2), Event::Tick);
    step(&mut m, at(2), Event::Claimed(Ok(vec![last(1)])));
    step(&mut m, at(2), Event::Answered(1, replied(200)));
    step(&mut m, at(2), Event::Noted(Ok(())));
    step(&mut m, at(2), Event::Claimed(Ok(vec![last(2)])));
    assert_eq!(step(&mut m, at(2), unsent(2)), [Command::Note(vec![ended(2, 1)])], "anew");
}

/// A token that was revoked says nothing about the messages: none of them is given up for it.
#[test]
fn a_receiver_that_does_not_accept_the_token_gets_each_message_later() {
    let mut m = machine(&[("t", 2)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), Event::Claimed(Ok(vec![Claimed { attempt: 4, ..message(1, "t") }])));
    let said = step(&mut m, at(0), Event::Answered(1, replied(401)));
    let [Command::Note(attempts)] = &said[..] else { panic!("{said:?}") };
    let error = "answered 401: the receiver does not accept the token".to_owned();
    assert_eq!(attempts[0].end, End::Unsent { after: SEC / 2, error });
}

#[test]
fn a_store_that_is_away_is_asked_again_after_a_while() {
    let mut m = machine(&[("t", 1)], 8);
    step(&mut m, at(0), Event::Tick);
    step(&mut m, at(0), Event::Claimed(Err(Refused::Later)));
    assert_eq!(m.deadline(), Some(at(1)));
    assert_eq!(step(&mut m, at(1), Event::Tick), [claim(&[("t", 1)])]);
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
