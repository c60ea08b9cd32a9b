//! Retries until a server can be reached, with growing pauses and a time limit, and says what a start waits for.

use std::pin::pin;
use std::time::{Duration, Instant};

use besom_core::backoff::Backoff;

use super::Failure;

/// The pauses between attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Repeats `attempt` while it fails with [`Failure::Unreachable`], for at most `max`.
///
/// # Errors
/// Any other failure of `attempt`; after `max`, [`Failure::Unreachable`] with the name of the key that
/// sets the limit.
pub async fn patiently<T>(
    max: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let since = Instant::now();
    let mut failures = 0;
    loop {
        let words = match attempt().await {
            Err(Failure::Unreachable(words)) => words,
            done => return done,
        };
        let left = max.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(Failure::Unreachable(format!(
                "{words}; gave up after {max:?} (host.connect_wait_max)"
            )));
        }
        tracing::warn!("{words}; retrying for {} s", left.as_secs_f64().ceil());
        tokio::time::sleep(PAUSES.pause(failures, 0).min(left)).await;
        failures += 1;
    }
}

/// How often it is said that a step of the start goes on.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Waits for a step of the start, for at most `max`, and logs every five seconds that it goes on: a server may
/// neither answer nor close the connection.
///
/// # Errors
/// After `max`, [`Failure::Unreachable`] with the name of the key that sets the limit.
pub async fn telling<T>(
    step: &str,
    max: Duration,
    done: impl Future<Output = T>,
) -> Result<T, Failure> {
    let (mut done, since) = (pin!(done), Instant::now());
    loop {
        let left = max.saturating_sub(since.elapsed());
        if let Ok(done) = tokio::time::timeout(SAY_EVERY.min(left), &mut done).await {
            return Ok(done);
        }
        if since.elapsed() >= max {
            return Err(Failure::Unreachable(format!(
                "{step}: a server does not answer; gave up after {max:?} (host.connect_wait_max)"
            )));
        }
        let seconds = since.elapsed().as_secs();
        tracing::warn!("still starting: {step} has taken {seconds} s; is a server not answering?");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;
    use besom_ports::store;

    #[tokio::test]
    async fn what_comes_back_in_time_is_waited_for() {
        let mut attempts = 0;
        let done = patiently(Duration::from_secs(60), async || {
            attempts += 1;
            if attempts < 2 { Err(Failure::Unreachable("away".into())) } else { Ok(attempts) }
        });
        assert_eq!(done.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn what_stays_away_is_given_up_with_the_setting_that_says_when() {
        let never = async || Err::<(), _>(Failure::Unreachable("the server is away".into()));
        let failure = patiently(Duration::from_millis(20), never).await.unwrap_err();
        assert!(matches!(&failure, Failure::Unreachable(_)), "{failure}");
        let words = failure.to_string();
        assert!(words.contains("the server is away"), "{words}");
        assert!(words.contains("connect_wait_max"), "{words}");
    }

    #[tokio::test]
    async fn a_refusal_is_not_tried_again() {
        let mut attempts = 0;
        let refused = patiently(Duration::from_secs(60), async || {
            attempts += 1;
            Err::<(), _>(Failure::from(store::Error::Denied("wrong password".into())))
        });
        let failure = refused.await.unwrap_err();
        assert!(matches!(failure, Failure::Denied(_)), "{failure}");
        assert_eq!(Exit::from(failure), Exit::Unreachable);
        assert_eq!(attempts, 1);
    }

    #[tokio::test]
    async fn a_step_without_an_answer_is_given_up_with_the_setting_that_says_when() {
        let max = Duration::from_millis(20);
        let failure = telling("joining", max, std::future::pending::<()>()).await.unwrap_err();
        assert!(matches!(&failure, Failure::Unreachable(_)), "{failure}");
        let words = failure.to_string();
        assert!(words.starts_with("joining: a server does not answer"), "{words}");
        assert!(words.contains("connect_wait_max"), "{words}");
        assert_eq!(telling("joining", max, async { 7 }).await.unwrap(), 7);
    }
}
