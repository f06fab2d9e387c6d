//! Passes requests one by one, so that the chain changes only between requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// The gate of all endpoints of a chain.
#[derive(Debug)]
pub struct Gate {
    permits: Semaphore,
    waiting: AtomicUsize,
}

impl Default for Gate {
    /// Closed.
    fn default() -> Self {
        Self { permits: Semaphore::new(0), waiting: AtomicUsize::new(0) }
    }
}

impl Gate {
    /// Lets this many further requests through.
    pub fn let_through(&self, requests: usize) {
        self.permits.add_permits(requests);
    }

    /// `true` if a request waits and all permits are used up.
    pub fn is_waiting(&self) -> bool {
        self.permits.available_permits() == 0 && self.waiting.load(Ordering::SeqCst) > 0
    }

    pub(super) async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(&self.waiting);
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }
}

/// A counted request, until it passes or is cancelled.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
