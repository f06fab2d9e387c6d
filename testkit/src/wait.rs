//! Waiting for a condition, never for time.

use std::future::Future;
use std::time::{Duration, Instant};

/// Longer than anything takes that is waited for, on a busy machine too: it costs only when red.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `check` finds something.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut check: impl FnMut() -> F,
) -> T {
    let search = async {
        let mut ticks = tokio::time::interval(CHECK_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(found) = check().await {
                return found;
            }
        }
    };
    match tokio::time::timeout(DEADLINE, search).await {
        Ok(found) => found,
        Err(_) => panic!("waited {DEADLINE:?} in vain for {what}"),
    }
}

/// Blocks until `check` is true.
pub fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let started = Instant::now();
    while !check() {
        assert!(started.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain until {what}");
        std::thread::park_timeout(CHECK_INTERVAL);
    }
}
