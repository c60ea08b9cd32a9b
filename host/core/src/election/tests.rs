use std::time::Duration;

use super::*;

const TIMING: Timing = Timing { ttl: Duration::from_secs(15), renew: Duration::from_secs(5) };

fn fence(term: u64) -> FencingToken {
    FencingToken { term: Term(term), token_hash: [7; 32] }
}

fn at(seconds: f64) -> Mono {
    Mono::START + Duration::from_secs_f64(seconds)
}

fn step(election: &mut Election, now: f64, event: Event) -> Vec<Command> {
    let mut out = Vec::new();
    election.step(at(now), event, &mut out);
    out
}

fn won(sent: f64, term: u64) -> Event {
    Event::Campaigned { sent: at(sent), result: CampaignResult::Won(fence(term)) }
}

/// A leader elected by a campaign that was sent at 0 and raised at 0.2.
fn leader() -> Election {
    let mut election = Election::new(TIMING, at(0.0));
    assert_eq!(step(&mut election, 0.0, Event::Tick), [Command::Campaign { at_least: None }]);
    assert_eq!(step(&mut election, 0.1, won(0.0, 1)), [Command::Raise(fence(1))]);
    let raised = Event::Raised(RaiseResult::Done);
    assert_eq!(step(&mut election, 0.2, raised), [Command::Lead(fence(1))]);
    election
}

#[test]
fn a_winner_leads_only_after_the_store_knows_its_term() {
    let mut election = Election::new(TIMING, at(0.0));
    step(&mut election, 0.0, Event::Tick);
    step(&mut election, 0.1, won(0.0, 1));
    assert_eq!(election.may_begin(at(0.1)), None);
    step(&mut election, 0.2, Event::Raised(RaiseResult::Done));
    assert_eq!(election.may_begin(at(0.2)), Some(&fence(1)));
}

#[test]
fn trust_counts_from_the_sending_not_from_the_answer() {
    let mut election = leader();
    assert_eq!(step(&mut election, 5.0, Event::Tick), [Command::Renew(fence(1))]);
    // The answer comes late: the lease is good until 5 + 15, not 9 + 15.
    step(&mut election, 9.0, Event::Renewed { sent: at(5.0), kept: Some(true) });
    assert_eq!(election.trusted_for(at(9.0)), Some(Duration::from_secs(11)));
}

#[test]
fn a_leader_without_answers_begins_nothing_after_two_thirds_and_ceases_before_the_end() {
    let mut election = leader();
    assert_eq!(step(&mut election, 5.0, Event::Tick), [Command::Renew(fence(1))]);
    assert!(election.may_begin(at(9.9)).is_some());
    assert!(election.may_begin(at(10.0)).is_none());
    assert_eq!(election.deadline(), Some(at(13.0)));
    assert_eq!(
        step(&mut election, 13.0, Event::Tick),
        [Command::Cease { reason: "the lease was not renewed in time" }]
    );
    assert_eq!(election.leading(), None);
}

#[test]
fn a_failed_renewal_is_tried_again_within_the_window() {
    let mut election = leader();
    step(&mut election, 5.0, Event::Tick);
    assert_eq!(step(&mut election, 7.0, Event::Renewed { sent: at(5.0), kept: None }), []);
    assert_eq!(election.deadline(), Some(at(8.25)));
    assert_eq!(step(&mut election, 8.25, Event::Tick), [Command::Renew(fence(1))]);
}

#[test]
fn a_lost_lease_ends_the_leadership_at_once() {
    let mut election = leader();
    step(&mut election, 5.0, Event::Tick);
    assert_eq!(
        step(&mut election, 5.1, Event::Renewed { sent: at(5.0), kept: Some(false) }),
        [Command::Cease { reason: "the lease was lost" }]
    );
}

#[test]
fn a_fence_above_the_lease_is_overtaken_by_a_higher_term() {
    let mut election = Election::new(TIMING, at(0.0));
    step(&mut election, 0.0, Event::Tick);
    step(&mut election, 0.1, won(0.0, 3));
    assert_eq!(
        step(&mut election, 0.2, Event::Raised(RaiseResult::Fenced(Term(9)))),
        [Command::Resign(fence(3))]
    );
    step(&mut election, 0.3, Event::Resigned);
    assert_eq!(
        step(&mut election, 0.3, Event::Tick),
        [Command::Campaign { at_least: Some(Term(9)) }]
    );
}

/// Otherwise nobody could take over the partitions of a node that is gone (seed 266 of a cluster).
#[test]
fn a_leader_below_the_term_of_a_claim_campaigns_for_a_higher_one() {
    let mut election = leader();
    assert_eq!(step(&mut election, 1.0, Event::ClaimedUnder(Term(1))), []);
    assert_eq!(
        step(&mut election, 1.1, Event::ClaimedUnder(Term(4))),
        [
            Command::Cease { reason: "partitions were claimed under a later term" },
            Command::Resign(fence(1))
        ]
    );
    assert_eq!(election.leading(), None);
    step(&mut election, 1.2, Event::Resigned);
    let campaign = Command::Campaign { at_least: Some(Term(4)) };
    assert_eq!(step(&mut election, 1.2, Event::Tick), [campaign]);
    // The store's fence is lower, but the term stays above that of the claims.
    step(&mut election, 1.3, won(1.2, 5));
    step(&mut election, 1.4, Event::Raised(RaiseResult::Fenced(Term(2))));
    step(&mut election, 1.5, Event::Resigned);
    let campaign = Command::Campaign { at_least: Some(Term(4)) };
    assert_eq!(step(&mut election, 1.5, Event::Tick), [campaign]);
}

#[test]
fn a_follower_campaigns_when_the_lease_is_free_and_at_the_latest_each_renewal() {
    let mut election = Election::new(TIMING, at(0.0));
    step(&mut election, 0.0, Event::Tick);
    let held = CampaignResult::Held(Duration::from_secs(14));
    step(&mut election, 0.1, Event::Campaigned { sent: at(0.0), result: held });
    assert_eq!(election.deadline(), Some(at(5.1)));
    assert_eq!(step(&mut election, 1.0, Event::Tick), []);
    assert_eq!(step(&mut election, 1.0, Event::Vacant), [Command::Campaign { at_least: None }]);
}

#[test]
fn resigning_gives_the_lease_back_even_if_it_is_won_meanwhile() {
    let mut election = leader();
    assert_eq!(
        step(&mut election, 1.0, Event::Resign),
        [Command::Cease { reason: "resigned" }, Command::Resign(fence(1))]
    );
    assert!(!election.is_retired());
    step(&mut election, 1.1, Event::Resigned);
    assert!(election.is_retired());

    let mut election = Election::new(TIMING, at(0.0));
    step(&mut election, 0.0, Event::Tick);
    assert_eq!(step(&mut election, 0.1, Event::Resign), []);
    assert_eq!(step(&mut election, 0.2, won(0.0, 1)), [Command::Resign(fence(1))]);
}

#[test]
fn answers_to_an_earlier_life_change_nothing() {
    let mut election = leader();
    step(&mut election, 13.0, Event::Tick);
    let before = election.state.clone();
    assert_eq!(step(&mut election, 13.1, won(0.0, 1)), []);
    assert_eq!(step(&mut election, 13.1, Event::Raised(RaiseResult::Done)), []);
    assert_eq!(step(&mut election, 13.1, Event::Renewed { sent: at(5.0), kept: Some(true) }), []);
    assert_eq!(election.state, before);
}

#[test]
fn a_raise_without_an_answer_is_repeated_until_the_lease_is_too_old() {
    let mut election = Election::new(TIMING, at(0.0));
    step(&mut election, 0.0, Event::Tick);
    step(&mut election, 0.1, won(0.0, 1));
    step(&mut election, 0.2, Event::Raised(RaiseResult::Failed));
    assert_eq!(election.deadline(), Some(at(1.45)));
    assert_eq!(step(&mut election, 1.45, Event::Tick), [Command::Raise(fence(1))]);
    assert_eq!(step(&mut election, 13.0, Event::Tick), []);
    assert_eq!(step(&mut election, 13.1, Event::Raised(RaiseResult::Done)), []);
    assert_eq!(election.leading(), None);
}

#[test]
fn a_leader_whose_store_went_back_raises_its_fence_again_under_the_same_lease() {
    let mut election = leader();
    let back = step(&mut election, 3.0, Event::StoreWentBack);
    let reason = "the store is older than this leadership";
    assert_eq!(back, [Command::Cease { reason }, Command::Raise(fence(1))]);
    assert_eq!(election.may_begin(at(3.0)), None);
    assert_eq!(election.raising(), Some(&fence(1)));
    assert_eq!(step(&mut election, 3.1, Event::StoreWentBack), []);
    let raised = step(&mut election, 3.2, Event::Raised(RaiseResult::Done));
    assert_eq!(raised, [Command::Lead(fence(1))]);
    assert_eq!(election.trusted_for(at(3.2)), Some(Duration::from_secs_f64(11.8)));
}

#[test]
fn a_lease_that_may_still_be_held_is_given_up_with_the_resignation() {
    let mut election = Election::new(TIMING, at(0.0));
    step(&mut election, 0.0, Event::Tick);
    step(&mut election, 0.1, won(0.0, 1));
    // The store never answers: the node's membership still keeps the lease alive.
    step(&mut election, 13.0, Event::Tick);
    assert_eq!(step(&mut election, 13.1, Event::Resign), [Command::Resign(fence(1))]);
    step(&mut election, 13.2, Event::Resigned);
    assert!(election.is_retired());
    assert_eq!(step(&mut election, 13.3, Event::Resign), []);
}
