//! Concurrency limit for lists read with one admin secret, so that a script that reads many pages leaves the tables
//! free for customers and shops.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::error::{Answer, Refusal};

/// Concurrent reads; others wait for a permit.
const AT_ONCE: usize = 2;

/// Clones share their gate.
#[derive(Debug, Clone)]
pub(crate) struct ListGate(Arc<Semaphore>);

impl Default for ListGate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl ListGate {
    /// Returns the result of a read under a permit. The permit is held until the read ends, even if the caller is gone:
    /// a started query is not cancelled.
    pub(crate) async fn take<T: Send + 'static>(
        self,
        read: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Answer<T> {
        let permit = self.0.acquire_owned().await;
        let read = tokio::spawn(async move {
            let found = read.await;
            drop(permit);
            found
        });
        read.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a list could not be read");
            Err(Refusal::Internal)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    /// Reads that each wait for a permit.
    #[derive(Clone)]
    struct Slow {
        under_way: Arc<AtomicUsize>,
        ends: Arc<Semaphore>,
    }

    impl Slow {
        async fn read(self) -> Answer<()> {
            self.under_way.fetch_add(1, Ordering::SeqCst);
            self.ends.acquire().await.unwrap().forget();
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }

        /// Number of reads under way. The test has one thread, so each read runs until it waits.
        async fn under_way(&self) -> usize {
            for _ in 0..100 {
                yield_now().await;
            }
            self.under_way.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_read_waits_until_one_before_it_ended() {
        let slow = Slow { under_way: Arc::default(), ends: Arc::new(Semaphore::new(0)) };
        let ask = |gate: &ListGate| tokio::spawn(gate.clone().take(slow.clone().read()));
        let (one, other) = (ListGate::default(), ListGate::default());
        let mut asked: Vec<_> = (0..3).map(|_| ask(&one)).collect();
        assert_eq!(slow.under_way().await, 2);
        asked.push(ask(&other));
        assert_eq!(slow.under_way().await, 3, "another secret has gate of its own");
        for asked in &asked[..2] {
            asked.abort();
        }
        assert_eq!(
            slow.under_way().await,
            3,
            "who hangs up ends no query, and the third waits for it"
        );
        slow.ends.add_permits(1);
        assert_eq!(slow.under_way().await, 3, "one ended, and the third began");
        slow.ends.add_permits(3);
        assert_eq!(slow.under_way().await, 0);
        for asked in asked.split_off(2) {
            assert!(asked.await.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn panicking_read_gives_its_turn_back() {
        let gate = ListGate::default();
        for _ in 0..3 {
            let answer: Answer<()> = gate.clone().take(async { panic!("a read") }).await;
            assert!(matches!(answer, Err(Refusal::Internal)));
        }
    }
}
