//! An installation restored from a backup, without all later records.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use processor::machine::matching;
use schemas::{Blockchain, DepositId, FulfillmentId, Incarnation, OrderId, PaymentKey, TransferId};

use super::delivered::Delivered;
use super::pipeline::Pipeline;
use super::violation::{Violation, holds};

impl Pipeline {
    /// Continues from a backup as after `tidemark restore`.
    pub fn begin_anew(&mut self, incarnation: Incarnation) {
        self.lanes.iter_mut().for_each(|lane| lane.driver.begin_anew(incarnation));
        self.anew.push((self.delivered.len(), incarnation));
    }
}

/// Object of each id, over all copies of an installation.
#[derive(Debug, Clone, Default)]
pub struct Names {
    transfers: HashMap<TransferId, (Blockchain, PaymentKey)>,
    deposits: HashMap<DepositId, (OrderId, i32)>,
    fulfillments: HashMap<FulfillmentId, (PaymentKey, Option<OrderId>)>,
}

impl Names {
    /// Adds the ids that a copy published.
    pub fn add(&mut self, delivered: &[Delivered]) -> Result<(), Violation> {
        for effect in delivered.iter().flat_map(Delivered::of_lane) {
            match effect {
                matching::Effect::Transfer(_, transfer) => {
                    let payment = transfer.observation.payment();
                    let named = (transfer.blockchain, payment);
                    one(&mut self.transfers, transfer.transfer_id, named)?;
                    if let Some(id) = transfer.fulfillment_id {
                        one(&mut self.fulfillments, id, (payment, transfer.order_id))?;
                    }
                }
                matching::Effect::Deposit(deposit) => {
                    let named = (deposit.order_id, deposit.slot);
                    one(&mut self.deposits, deposit.deposit_id, named)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn one<Id: Hash + Eq + Copy + Debug, T: PartialEq + Copy + Debug>(
    names: &mut HashMap<Id, T>,
    id: Id,
    named: T,
) -> Result<(), Violation> {
    let first = *names.entry(id).or_insert(named);
    holds!(15, first == named, "{id:?} names {first:?} and {named:?}");
    Ok(())
}
