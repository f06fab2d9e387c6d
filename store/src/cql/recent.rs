//! Cache of the chains: every open customer page polls them every few seconds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::ChainRow;

/// Maximum age of the chains. A chain changes at most once a block.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Chains as they were read, until they are too old or this process writes a chain.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of writes of chains by this process.
    written: u64,
    read: Option<(Instant, Vec<ChainRow>)>,
}

impl Recent {
    /// The chains, if cached; else the count of writes before a read, for [`Recent::keep`].
    pub(super) fn get(&self) -> Result<Vec<ChainRow>, u64> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.read {
            Some((at, chains)) if at.elapsed() < AGE_MAX => Ok(chains.clone()),
            Some(_) | None => Err(state.written),
        }
    }

    /// Keeps what was read, unless a chain was written meanwhile.
    pub(super) fn keep(&self, begun: u64, at: Instant, chains: &[ChainRow]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.written == begun {
            state.read = Some((at, chains.to_vec()));
        }
    }

    /// Drops what is cached: a chain was written, or may have been.
    pub(super) fn written(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.written += 1;
        state.read = None;
    }
}

#[cfg(test)]
mod tests {
    use schemas::record::example;

    use super::*;

    #[test]
    fn recent_chains_are_never_kept_across_a_write() {
        let (recent, chains) = (Recent::default(), vec![example::chain_progress()]);
        let begun = recent.get().unwrap_err();
        recent.keep(begun, Instant::now(), &chains);
        assert_eq!(recent.get(), Ok(chains.clone()));
        recent.written();
        let before = recent.get().unwrap_err();
        recent.written();
        recent.keep(before, Instant::now(), &chains);
        let begun = recent.get().unwrap_err();
        let old = Instant::now().checked_sub(AGE_MAX).unwrap();
        recent.keep(begun, old, &chains);
        assert!(recent.get().is_err());
    }
}
