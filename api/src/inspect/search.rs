//! Searches for orders and transfers that a text names.

use std::collections::HashMap;

use schemas::record::{Deposit, Order, Transfer};
use schemas::{DepositId, Topic, TransferId, UnixMicros, UnixSeconds};
pub use store::Subject;
use store::{OrderFilter, Page};

use super::reader::{Pages, Reader};
use super::wanted::Wanted;

/// Default period over which the topics are searched, in seconds.
pub const SINCE_SECONDS: i64 = 30 * 24 * 3600;
/// Number of newest hits to keep. Older ones are dropped once twice this number is reached.
const KEPT_MAX: usize = 1000;
/// Maximum orders per reference read from the tables.
const REFERENCES: Page = Page { limit: 50, offset: 0 };
/// Topics of transfers, one for each state. The matched ones come last: a transfer that an operator attaches was
/// unknown before, and a matched one stays matched.
pub const TRANSFERS: [Topic; 5] = [
    Topic::TransfersDetected,
    Topic::TransfersConfirmed,
    Topic::TransfersUnknown,
    Topic::TransfersFailed,
    Topic::TransfersMatched,
];

/// Subject that the text names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub subject: Subject,
    /// Creation of the subject, or of the transfer or deposit by which an order was found.
    pub at: UnixSeconds,
    /// In words.
    pub text: String,
    /// Time of the state that the words describe.
    changed_at: UnixMicros,
}

/// Hits, one per subject.
#[derive(Debug, Default)]
pub struct Hits(HashMap<Subject, Hit>);

impl Hits {
    /// `true` if nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of hits.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The hit, if there is exactly one.
    pub fn only(&self) -> Option<Subject> {
        self.0.keys().next().copied().filter(|_| self.0.len() == 1)
    }

    /// At most `max` of them, the newest first.
    pub fn newest(&self, max: usize) -> Vec<&Hit> {
        let mut all: Vec<_> = self.0.values().collect();
        all.sort_by_key(|hit| std::cmp::Reverse((hit.at, hit.subject)));
        all.truncate(max);
        all
    }

    /// Adds an order.
    pub fn order(&mut self, order: &Order) {
        let Order { order_id, status, amount_text, merchant_order_id, .. } = order;
        let text = format!("{status} {amount_text}, reference {merchant_order_id}");
        let (subject, at) = (Subject::Order(*order_id), order.created_at);
        self.add(Hit { subject, at, text, changed_at: order.updated_at });
    }

    /// Adds a transfer, or the order that it pays.
    fn transfer(&mut self, transfer: &Transfer) {
        let Transfer { transfer_id, status, value_text, observation, blockchain, .. } = transfer;
        let text = format!("{status} {value_text} {} on {blockchain}", observation.stablecoin);
        let own = Subject::Transfer(*transfer_id);
        let (at, changed_at) = (transfer.created_at, transfer.updated_at);
        match transfer.order_id {
            Some(order) => {
                self.0.remove(&own);
                let subject = Subject::Order(order);
                if !self.0.contains_key(&subject) {
                    self.add(Hit { subject, at, text, changed_at });
                }
            }
            None => self.add(Hit { subject: own, at, text, changed_at }),
        }
    }

    /// Adds a hit, unless a newer state of its subject is known: tables come before topics, whose scan may be cut off,
    /// and a transfer that failed may be in an earlier topic again.
    fn add(&mut self, hit: Hit) {
        if self.0.get(&hit.subject).is_some_and(|known| known.changed_at > hit.changed_at) {
            return;
        }
        self.0.insert(hit.subject, hit);
        if self.0.len() >= 2 * KEPT_MAX {
            let kept: Vec<_> = self.newest(KEPT_MAX).into_iter().cloned().collect();
            self.0 = kept.into_iter().map(|hit| (hit.subject, hit)).collect();
        }
    }
}

/// The order or transfer with this id, from the tables or else the topics; with that of a number, orders of this
/// reference from the tables. Without one: these, matching orders from their topic since a time, and transfers by hash,
/// address or amount.
pub fn run<P: Pages>(
    reader: &mut Reader<P>,
    wanted: &Wanted,
    since: UnixMicros,
) -> Result<Hits, P::Error> {
    let mut hits = Hits::default();
    by_id(reader, wanted, since, &mut hits)?;
    // An id takes precedence over other meanings, but shops number their orders as lanes number deposits.
    let is_id = !hits.is_empty();
    if is_id && wanted.number.is_none() {
        return Ok(hits);
    }
    let filter =
        OrderFilter { merchant_order_id: Some(wanted.text.clone()), ..OrderFilter::default() };
    let rows = reader.table(async |tables| tables.orders(filter, REFERENCES).await)?;
    rows.iter().for_each(|row| hits.order(&row.order));
    if is_id {
        return Ok(hits);
    }
    let layout = reader.layout;
    let orders = Topic::Orders.all_partitions(&layout);
    reader.scan(Topic::Orders, orders, (since, None), |_, order: Order| {
        if wanted.fits_order(&order) {
            hits.order(&order);
        }
    })?;
    for topic in TRANSFERS.into_iter().filter(|_| wanted.needs_topics()) {
        let lanes = topic.all_partitions(&layout);
        reader.scan(topic, lanes, (since, None), |_, transfer: Transfer| {
            if wanted.fits_transfer(&transfer) {
                hits.transfer(&transfer);
            }
        })?;
    }
    Ok(hits)
}

/// Adds the order or the transfer that an id names; for a deposit's id, its order.
fn by_id<P: Pages>(
    reader: &mut Reader<P>,
    wanted: &Wanted,
    since: UnixMicros,
    hits: &mut Hits,
) -> Result<(), P::Error> {
    let layout = reader.layout;
    if let Some(id) = wanted.order {
        let row = reader.table(async |tables| tables.order_record(id).await)?;
        row.iter().for_each(|order| hits.order(order));
        if row.is_none() {
            let (key, partition) = (id.to_string(), layout.order(&id.to_string()));
            reader.scan(Topic::Orders, [partition], (since, Some(&key)), |_, order: Order| {
                hits.order(&order);
            })?;
        }
    }
    let Some(number) = wanted.number else { return Ok(()) };
    let id = TransferId(number);
    let row = reader.table(async |tables| tables.transfer(id).await)?;
    row.iter().for_each(|transfer| hits.transfer(transfer));
    let lane = DepositId(number).partition();
    if row.is_some() || !Topic::Deposits.all_partitions(&layout).any(|known| known == lane) {
        return Ok(());
    }
    for topic in TRANSFERS {
        reader.scan(topic, [lane], (since, None), |_, transfer: Transfer| {
            if transfer.transfer_id == id {
                hits.transfer(&transfer);
            }
        })?;
    }
    reader.scan(Topic::Deposits, [lane], (since, None), |_, deposit: Deposit| {
        if deposit.deposit_id.0 == number {
            let Deposit { order_id, state, value_text, stablecoin, blockchain, .. } = deposit;
            let text = format!("deposit {state} {value_text} {stablecoin} on {blockchain}");
            let (subject, at) = (Subject::Order(order_id), deposit.started_at);
            hits.add(Hit { subject, at, text, changed_at: deposit.updated_at });
        }
    })
}

#[cfg(test)]
mod tests {
    use schemas::{OrderId, OrderStatus, TransferStatus, record::example};
    use uuid::Uuid;

    use super::*;

    fn numbered(number: usize) -> Order {
        let id = OrderId(Uuid::from_u128(number as u128));
        let created_at = UnixSeconds(number as i64);
        Order { order_id: id, created_at, ..example::order() }
    }

    #[test]
    fn a_transfer_belongs_to_the_order_that_it_pays() {
        let mut hits = Hits::default();
        let paid = Transfer { order_id: Some(example::order().order_id), ..example::transfer() };
        hits.transfer(&Transfer { order_id: None, ..paid.clone() });
        assert_eq!(hits.only(), Some(Subject::Transfer(paid.transfer_id)));
        hits.transfer(&paid);
        hits.order(&example::order());
        assert_eq!(hits.only(), Some(Subject::Order(example::order().order_id)));
    }

    #[test]
    fn the_newest_state_of_a_hit_is_shown() {
        let mut hits = Hits::default();
        let (order, transfer) = (example::order(), example::transfer());
        let updated_at = order.updated_at.next(order.updated_at);
        let paid = Order { status: OrderStatus::Paid, updated_at, ..order.clone() };
        let updated_at = transfer.updated_at.next(transfer.updated_at);
        let status = TransferStatus::WaitingForConfirmation;
        let again = Transfer { order_id: None, status, updated_at, ..transfer.clone() };
        let status = TransferStatus::FailedToConfirm;
        let failed = Transfer { status, updated_at: transfer.updated_at, ..again.clone() };
        [paid, order].iter().for_each(|order| hits.order(order));
        [again, failed].iter().for_each(|transfer| hits.transfer(transfer));
        let newest = hits.newest(2);
        let texts: Vec<_> = newest.iter().filter_map(|hit| hit.text.split(' ').next()).collect();
        assert!(
            texts.contains(&"paid") && texts.contains(&"waiting_for_confirmation"),
            "{texts:?}"
        );
    }

    #[test]
    fn the_newest_hits_are_kept() {
        let mut hits = Hits::default();
        (0..2 * KEPT_MAX).for_each(|number| hits.order(&numbered(number)));
        assert_eq!((hits.len(), hits.only()), (KEPT_MAX, None));
        let newest: Vec<_> = hits.newest(2).iter().map(|hit| hit.at.0).collect();
        assert_eq!(newest, [2 * KEPT_MAX as i64 - 1, 2 * KEPT_MAX as i64 - 2]);
    }
}
