//! State shared by the live views of one address, and of one order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use schemas::OrderId;
use tokio::time::Instant;

use crate::client::{Client, Key};
use crate::error::{Answer, Refusal};
use crate::machine::seen_transfer::Checkout;
use crate::reads::Reads;

/// Maximum live views of one address, which a shop's tills may share.
const ADDRESS_VIEWS_MAX: usize = 32;
/// Time for which a row read by one view is fresh for the others of its order.
const FRESH: Duration = Duration::from_millis(100);

/// Live views. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Views(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    by_address: HashMap<Key, usize>,
    by_order: HashMap<OrderId, Weak<Slot>>,
}

type Slot = tokio::sync::Mutex<Option<(Instant, Arc<Checkout>)>>;

/// One live view, until it is dropped.
pub(super) struct View {
    all: Views,
    of: Option<Key>,
    order_id: OrderId,
    /// `None` only while `drop` runs.
    slot: Option<Arc<Slot>>,
}

impl Views {
    /// `None` if the address has too many views.
    pub(super) fn open(&self, order_id: OrderId, client: Option<Client>) -> Option<View> {
        let of = client.map(Client::key);
        let mut all = self.all();
        if let Some(of) = of {
            let open = all.by_address.entry(of).or_default();
            if *open >= ADDRESS_VIEWS_MAX {
                return None;
            }
            *open += 1;
        }
        let known = all.by_order.get(&order_id).and_then(Weak::upgrade);
        let slot = known.unwrap_or_else(|| {
            let slot = Arc::default();
            all.by_order.insert(order_id, Arc::downgrade(&slot));
            slot
        });
        drop(all);
        Some(View { all: self.clone(), of, order_id, slot: Some(slot) })
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    /// The order in the tables, read at most once per [`FRESH`] for all of its views.
    pub(super) async fn checkout(&self, reads: &Reads) -> Answer<Arc<Checkout>> {
        let Some(slot) = &self.slot else { return Err(Refusal::Busy) };
        let mut slot = slot.lock().await;
        if let Some((at, known)) = &*slot
            && at.elapsed() < FRESH
        {
            return Ok(known.clone());
        }
        let read = Arc::new(reads.checkout(self.order_id).await?);
        *slot = Some((Instant::now(), read.clone()));
        Ok(read)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(of) = self.of
            && let Some(open) = all.by_address.get_mut(&of)
        {
            *open -= 1;
            if *open == 0 {
                all.by_address.remove(&of);
            }
        }
        // Dropped under the lock, so that the last of several concurrent drops removes the entry.
        drop(self.slot.take());
        if all.by_order.get(&self.order_id).is_some_and(|slot| slot.strong_count() == 0) {
            all.by_order.remove(&self.order_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::client::Entrance;

    #[test]
    fn views_of_one_address_are_limited() {
        let views = Views::default();
        let client = |last| {
            Some(Client::of(Entrance::Public, [198, 51, 100, last].into(), [].into_iter(), &[]))
        };
        let order = |number| OrderId(Uuid::from_u128(number));
        let mut open: Vec<_> = (0..ADDRESS_VIEWS_MAX as u128)
            .map(|number| views.open(order(number / 8), client(1)).unwrap())
            .collect();
        assert!(views.open(order(9), client(1)).is_none());
        assert!(views.open(order(9), client(2)).is_some(), "another address");
        open.pop();
        assert!(views.open(order(9), client(1)).is_some());
        drop(open);
        let all = views.all();
        assert_eq!((all.by_address.len(), all.by_order.len()), (0, 0));
    }
}
