//! Many writes, of which only failed ones are retried.

use std::future::Future;

use tokio::task::JoinSet;

use crate::Error;
use crate::error::Cause;

/// Maximum number of items under way at once.
const AT_ONCE: usize = 64;
/// Maximum number of tries. More could exceed the caller's session time-out.
const TRIES_MAX: usize = 4;

/// Runs `work` for every item, many concurrently. A transient failure ends the try: no further item starts, and the
/// next try has only the unfinished ones. So the loss of one node repeats a part of a call, not all of it.
///
/// # Errors
/// The last failure, after a try that finished no item, or after [`TRIES_MAX`] tries; an
/// [`Error::Fatal`] at once.
pub(super) async fn finish<I, F>(mut items: Vec<I>, work: impl Fn(I) -> F) -> Result<(), Error>
where
    I: Send + 'static,
    F: Future<Output = (I, Result<(), Error>)> + Send + 'static,
{
    for tries in 1.. {
        let before = items.len();
        let Some(failure) = pass(&mut items, &work).await? else { break };
        if items.len() == before || tries == TRIES_MAX {
            return Err(failure);
        }
    }
    Ok(())
}

/// Makes one try. Leaves the unfinished items in `items`, and returns the cause.
async fn pass<I, F>(items: &mut Vec<I>, work: &impl Fn(I) -> F) -> Result<Option<Error>, Error>
where
    I: Send + 'static,
    F: Future<Output = (I, Result<(), Error>)> + Send + 'static,
{
    let (mut running, mut failure) = (JoinSet::new(), None);
    let mut waiting = std::mem::take(items).into_iter();
    loop {
        while failure.is_none()
            && running.len() < AT_ONCE
            && let Some(item) = waiting.next()
        {
            running.spawn(work(item));
        }
        let Some(ended) = running.join_next().await else { break };
        let stopped = |cause| Error::Fatal(Cause::of(cause).context("a write stopped"));
        let (item, outcome) = ended.map_err(stopped)?;
        match outcome {
            Ok(()) => {}
            Err(error @ Error::Transient(_)) => {
                items.push(item);
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    items.extend(waiting);
    Ok(failure)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Number of tries of each item.
    type Tried = Arc<Mutex<BTreeMap<usize, usize>>>;

    /// Runs `count` items, each of which succeeds from the try on that `succeeds` returns for it.
    async fn run(count: usize, succeeds: fn(usize) -> usize) -> (bool, BTreeMap<usize, usize>) {
        let tried = Tried::default();
        let work = |item: usize| {
            let tried = tried.clone();
            async move {
                // Other items run meanwhile.
                tokio::task::yield_now().await;
                let mut tried = tried.lock().unwrap();
                let tries = tried.entry(item).or_default();
                *tries += 1;
                let is_done = *tries >= succeeds(item);
                let failure = || Error::Transient("a node hangs".into());
                (item, if is_done { Ok(()) } else { Err(failure()) })
            }
        };
        let is_done = finish((0..count).collect(), work).await.is_ok();
        let tried = tried.lock().unwrap().clone();
        (is_done, tried)
    }

    #[tokio::test]
    async fn what_was_done_is_not_done_again() {
        let (is_done, tried) = run(1_000, |item| if item % 600 == 7 { 2 } else { 1 }).await;
        assert!(is_done);
        assert_eq!(tried.len(), 1_000);
        for (item, tries) in tried {
            assert_eq!(tries, if item % 600 == 7 { 2 } else { 1 }, "{item}");
        }
    }

    #[tokio::test]
    async fn a_try_that_does_nothing_is_the_last() {
        let (is_done, tried) = run(1_000, |_| usize::MAX).await;
        assert!(!is_done);
        assert_eq!(tried.len(), AT_ONCE, "nothing begins after a failure");
        assert!(tried.values().all(|tries| *tries == 1));
    }

    #[tokio::test]
    async fn an_item_that_always_fails_ends_the_call() {
        let (is_done, tried) =
            run(3_000, |item| if item % 600 == 0 { usize::MAX } else { 1 }).await;
        assert!(!is_done);
        assert!(tried.values().all(|tries| *tries <= TRIES_MAX));
    }
}
