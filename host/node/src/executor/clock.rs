//! The store's clock as the executor follows it.

use super::*;

impl Executor {
    /// How far the clock may go back without consequences: readings of it differ by less.
    const BACK_MAX: Duration = Duration::from_secs(1);

    /// Continues at that time.
    pub(super) fn continue_at(&mut self, now: Time, out: &mut Vec<Command>) {
        let back = self.now.since(now);
        self.now = now;
        if back > Self::BACK_MAX {
            self.clock_went_back(back, out);
        }
    }

    /// The clock was corrected. Every wait that was measured by the wrong clock would last longer by
    /// the correction: it is shortened by it. Batches that were executed as of the future are given
    /// back, and all waiting items are read again, because some were put back for the wrong time.
    fn clock_went_back(&mut self, back: Duration, out: &mut Vec<Command>) {
        let holds = self.held.values_mut().chain(self.broken.values_mut());
        holds.for_each(|hold| hold.until = hold.until - back);
        for at in [&mut self.hold_until, &mut self.committed_at] {
            *at = at.map(|at| at - back);
        }
        for flight in self.flights.values_mut() {
            flight.since = flight.since - back;
            match &mut flight.phase {
                Phase::Reading | Phase::Acting { .. } => {}
                Phase::Rationed { ask_at, .. } | Phase::Resolving { ask_at, .. } => {
                    *ask_at = ask_at.map(|at| at - back);
                }
                Phase::Committing { since, .. } => *since = *since - back,
                Phase::Held { since, until, .. } => {
                    (*since, *until) = (*since - back, *until - back);
                }
            }
        }
        let ahead = self.now + self.settings.due_ahead;
        let early = self.flights.iter().filter(|(_, flight)| {
            matches!(flight.phase, Phase::Held { .. }) && flight.not_before > ahead
        });
        let early: Vec<Ticket> = early.map(|(ticket, _)| *ticket).collect();
        for ticket in early {
            if let Some(flight) = self.flights.remove(&ticket) {
                out.push(Command::Abandon(flight.commit));
                self.release(flight);
            }
        }
        self.timers.end_pauses();
        self.retries.end_pauses();
        self.read_again();
    }
}
