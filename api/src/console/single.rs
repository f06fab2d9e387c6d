//! Shared reads: however many pages are open within a few seconds, the log and the tables are read once.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use schemas::UnixMicros;
use tokio::task::AbortHandle;

use crate::error::{Answer, Refusal};

/// Time for which a reading is shared, from its start, in microseconds. A reading in progress is shared for longer.
const SHARED_MICROS: i64 = 3_000_000;

struct Reading<T> {
    begun_at: UnixMicros,
    task: AbortHandle,
    found: Shared<BoxFuture<'static, Answer<Arc<T>>>>,
}

/// Last reading. A failed one is shared too, so that not every page reads an unresponsive source.
pub(crate) struct Single<T>(Mutex<Option<Reading<T>>>);

impl<T> Default for Single<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Send + Sync + 'static> Single<T> {
    /// Returns the last reading if it is recent or in progress. Otherwise begins one, which completes even if all
    /// waiters have gone.
    pub(crate) async fn get(
        &self,
        now: UnixMicros,
        read: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Answer<Arc<T>> {
        let is_new = |last: &Reading<T>| {
            let age = now.0.saturating_sub(last.begun_at.0);
            !last.task.is_finished() || (0..SHARED_MICROS).contains(&age)
        };
        let found = {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !last.as_ref().is_some_and(is_new) {
                *last = Some(begin(now, read));
            }
            last.as_ref().map(|last| last.found.clone())
        };
        found.ok_or(Refusal::Internal)?.await
    }
}

fn begin<T: Send + Sync + 'static>(
    begun_at: UnixMicros,
    read: impl Future<Output = Answer<T>> + Send + 'static,
) -> Reading<T> {
    let reading = tokio::spawn(read);
    let task = reading.abort_handle();
    let found = reading.map(|ended| match ended {
        Ok(found) => found.map(Arc::new),
        Err(error) => {
            tracing::error!(%error, "the overview of the console could not be read");
            Err(Refusal::Internal)
        }
    });
    Reading { begun_at, task, found: found.boxed().shared() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    const NOW: UnixMicros = UnixMicros(1_790_000_000_000_000);

    /// Readings that each wait for a permit.
    #[derive(Clone)]
    struct Slow {
        count: Arc<AtomicUsize>,
        ends: Arc<Semaphore>,
    }

    impl Slow {
        async fn read(self) -> Answer<usize> {
            let number = self.count.fetch_add(1, Ordering::SeqCst);
            self.ends.acquire().await.unwrap().forget();
            if number == 1 { Err(Refusal::Internal) } else { Ok(number) }
        }
    }

    #[tokio::test]
    async fn many_pages_are_one_reading() {
        let slow = Slow { count: Arc::default(), ends: Arc::new(Semaphore::new(0)) };
        let single: Arc<Single<usize>> = Arc::default();
        let ask = |after: i64| {
            let (single, slow) = (single.clone(), slow.clone());
            let now = UnixMicros(NOW.0 + after);
            tokio::spawn(async move { single.get(now, slow.read()).await.map(|found| *found) })
        };
        // A reading in progress is joined, however old.
        let asked: Vec<_> = [0, 1, SHARED_MICROS, 10 * SHARED_MICROS].map(ask).into();
        // The test has one thread: after these yields the first read has begun and the others have joined it.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        slow.ends.add_permits(1);
        for asked in asked {
            assert_eq!(asked.await.unwrap(), Ok(0));
        }
        assert_eq!(ask(SHARED_MICROS - 1).await.unwrap(), Ok(0));
        slow.ends.add_permits(1);
        let failed = Err(Refusal::Internal);
        assert_eq!(ask(SHARED_MICROS).await.unwrap(), failed);
        assert_eq!(ask(SHARED_MICROS + 1).await.unwrap(), failed, "a failure is shared, too");
        slow.ends.add_permits(2);
        assert_eq!(ask(2 * SHARED_MICROS).await.unwrap(), Ok(2));
        assert_eq!(ask(0).await.unwrap(), Ok(3), "the clock was set back");
    }
}
