//! Bounds how often the clients of one address may try secrets and signatures.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError, RwLock};

use schemas::UnixMicros;

use crate::client::Client;
use crate::error::{Answer, Refusal};
use crate::machine::limit::{Limits, Rate};
use crate::metrics;

/// The addresses that had something refused of late, and those that have shown authority. The latter are limited no more:
/// a proxy that is not named as trusted is one address for the merchant and for all who try.
pub(crate) struct Strangers {
    refused: Mutex<Limits<IpAddr>>,
    known: RwLock<HashSet<IpAddr>>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self { refused: Mutex::new(Limits::new(Rate::REFUSALS)), known: RwLock::default() }
    }
}

impl Strangers {
    /// Refuses an address that has tried too often, before anything of a request is checked.
    pub(crate) fn admit(&self, by: Option<Client>, now: UnixMicros) -> Answer<()> {
        let Some(network) = by.map(Client::network) else { return Ok(()) };
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = refused.has_room(&network, now);
        drop(refused);
        if has_room || self.is_known(network) {
            return Ok(());
        }
        metrics::refusal("address", "authority");
        Err(Refusal::TooManyOfAddress)
    }

    /// A secret or a signature of this address was wrong.
    pub(crate) fn refused(&self, by: Option<Client>, now: UnixMicros) {
        if let Some(network) = by.map(Client::network) {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).admit(network, now);
        }
    }

    /// A secret or a signature of this address was valid. Nobody else gets in here, so the set stays small.
    pub(crate) fn showed_authority(&self, by: Option<Client>) {
        if let Some(network) = by.map(Client::network)
            && !self.is_known(network)
        {
            self.known.write().unwrap_or_else(PoisonError::into_inner).insert(network);
        }
    }

    fn is_known(&self, network: IpAddr) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains(&network)
    }
}
