//! Runs a list of checks.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Runs each check by `run`, some at a time, and fails with the names of those that failed.
pub(crate) fn run_checks<C: Sync>(checks: &[(&str, C)], at_a_time: usize, run: impl Fn(&C) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some((name, check)) = checks.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let started = Instant::now();
                    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| run(check)));
                    let word = if outcome.is_ok() { "ok" } else { "FAILED" };
                    println!("{name}: {word} in {:?}", started.elapsed());
                    if outcome.is_err() {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn checks_have_names_of_their_own() {
        let log = crate::log_suite::CHECKS.iter().map(|(name, _)| name);
        let names: Vec<_> =
            log.chain(crate::store_suite::CASES.iter().map(|(name, _)| name)).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }
}
