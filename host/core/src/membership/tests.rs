use super::*;

const TIMING: Timing = Timing { ttl: Duration::from_secs(15), renew: Duration::from_secs(5) };

fn at(seconds: f64) -> Mono {
    Mono::START + Duration::from_secs_f64(seconds)
}

fn step(membership: &mut Membership, now: f64, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    membership.step(at(now), event, &mut out);
    out
}

/// A member whose join was sent at 0 and answered at 0.1.
fn member() -> Membership {
    let mut membership = Membership::new(TIMING, at(0.0));
    assert_eq!(step(&mut membership, 0.0, Event::Tick), [Command::Join]);
    let joined = Event::Joined { sent: at(0.0), joined: true };
    assert_eq!(step(&mut membership, 0.1, joined), [Command::Inside]);
    membership
}

#[test]
fn trust_counts_from_the_sending_not_from_the_answer() {
    let mut membership = member();
    assert_eq!(step(&mut membership, 5.0, Event::Tick), [Command::Keep]);
    step(&mut membership, 9.0, Event::Kept { sent: at(5.0), kept: Some(true) });
    assert_eq!(membership.trusted_for(at(9.0)), Some(Duration::from_secs(11)));
}

#[test]
fn a_member_without_answers_begins_nothing_after_two_thirds_and_ceases_before_the_end() {
    let mut membership = member();
    assert_eq!(step(&mut membership, 5.0, Event::Tick), [Command::Keep]);
    assert!(membership.may_begin(at(9.9)));
    assert!(!membership.may_begin(at(10.0)));
    assert_eq!(membership.deadline(), Some(at(13.0)));
    assert_eq!(
        step(&mut membership, 13.0, Event::Tick),
        [Command::Cease { reason: "the membership was not renewed in time" }]
    );
    assert!(!membership.is_inside());
}

#[test]
fn a_renewal_without_an_answer_is_tried_again_within_the_window() {
    let mut membership = member();
    step(&mut membership, 5.0, Event::Tick);
    assert_eq!(step(&mut membership, 7.0, Event::Kept { sent: at(5.0), kept: None }), []);
    assert_eq!(membership.deadline(), Some(at(8.25)));
    assert_eq!(step(&mut membership, 8.25, Event::Tick), [Command::Keep]);
}

#[test]
fn a_lost_membership_ceases_at_once_and_joins_again() {
    let mut membership = member();
    step(&mut membership, 5.0, Event::Tick);
    let lost = Event::Kept { sent: at(5.0), kept: Some(false) };
    let ceased = Command::Cease { reason: "the membership was lost" };
    assert_eq!(step(&mut membership, 5.1, lost), [ceased]);
    assert_eq!(step(&mut membership, 6.35, Event::Tick), [Command::Join]);
}

#[test]
fn a_join_that_is_answered_too_late_does_not_count() {
    let mut membership = Membership::new(TIMING, at(0.0));
    step(&mut membership, 0.0, Event::Tick);
    let joined = Event::Joined { sent: at(0.0), joined: true };
    assert_eq!(step(&mut membership, 13.0, joined), []);
    assert!(!membership.is_inside());
    assert_eq!(membership.deadline(), Some(at(14.25)));
}

#[test]
fn an_answer_to_an_earlier_membership_does_not_prolong_this_one() {
    let mut membership = member();
    step(&mut membership, 13.0, Event::Tick);
    step(&mut membership, 14.25, Event::Tick);
    step(&mut membership, 14.3, Event::Joined { sent: at(14.25), joined: true });
    step(&mut membership, 14.4, Event::Kept { sent: at(5.0), kept: Some(true) });
    assert_eq!(membership.trusted_for(at(14.4)), Some(Duration::from_secs_f64(14.85)));
}

#[test]
fn leaving_gives_the_lease_back_and_never_joins_again() {
    let mut membership = member();
    let left = [Command::Cease { reason: "left" }, Command::Leave];
    assert_eq!(step(&mut membership, 1.0, Event::Leave), left);
    assert!(!membership.is_gone());
    assert_eq!(step(&mut membership, 1.1, Event::Left), []);
    assert!(membership.is_gone());
    assert_eq!(step(&mut membership, 60.0, Event::Tick), []);
}

#[test]
fn leaving_during_a_join_gives_back_what_it_brings() {
    for joined in [true, false] {
        let mut membership = Membership::new(TIMING, at(0.0));
        step(&mut membership, 0.0, Event::Tick);
        assert_eq!(step(&mut membership, 0.1, Event::Leave), []);
        let answer = Event::Joined { sent: at(0.0), joined };
        assert_eq!(step(&mut membership, 0.2, answer), [Command::Leave]);
        step(&mut membership, 0.3, Event::Left);
        assert!(membership.is_gone());
    }
}

#[test]
fn a_node_that_never_joined_leaves_at_once() {
    let mut membership = Membership::new(TIMING, at(0.0));
    assert_eq!(step(&mut membership, 0.0, Event::Leave), []);
    assert!(membership.is_gone());
}
