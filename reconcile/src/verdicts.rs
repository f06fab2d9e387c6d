//! `transfers.raw` without retracted transfers, against the verdicts of the processor.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::Transfer;
use schemas::{Blockchain, PaymentKey, TransferStatus, TxHash};

use crate::difference::DEFECT;
use crate::sum::Sums;
use crate::{Difference, Inclusion, Join, Joined, Kind};

/// Compares the raw transfers of a chain with the newest record of each transfer. `held` are the transfers that
/// endpoints disagree about. `retracted` are those that have a retract on the topic.
#[must_use]
pub fn compare_verdicts(
    chain: Blockchain,
    raw: &[Inclusion],
    transfers: &[&Transfer],
    held: &BTreeSet<PaymentKey>,
    retracted: &BTreeSet<PaymentKey>,
) -> Joined {
    let mut records: BTreeMap<PaymentKey, Vec<&Transfer>> = BTreeMap::new();
    for transfer in transfers {
        records.entry(transfer.observation.payment()).or_default().push(transfer);
    }
    let (mut sums, mut found) = (Sums::default(), Found { chain, differences: Vec::new() });
    for inclusion in raw {
        let payment = inclusion.seen.payment();
        let records = records.remove(&payment).unwrap_or_default();
        let (coin, value) = (Some(inclusion.seen.stablecoin), inclusion.seen.value);
        match verdicts(&records)[..] {
            [] if held.contains(&payment) => found.held(payment.tx_hash),
            [] => found.none(inclusion, &records),
            [transfer] => sums.add(coin, word(transfer.status), value),
            [first, second, ..] => found.two(first, second),
        }
    }
    let (left, expired): (Vec<_>, Vec<_>) =
        records.values().flat_map(|records| verdicts(records)).partition(|transfer| {
            transfer.orphaned_at.is_some() || retracted.contains(&transfer.observation.payment())
        });
    left.into_iter().for_each(|transfer| found.left(transfer));
    found.expired(&expired);
    let totals = sums.totals(Join::Verdicts, Some(chain));
    Joined { totals, differences: found.differences, waiting: 0 }
}

/// The records that have a verdict on the payment.
fn verdicts<'a>(records: &[&'a Transfer]) -> Vec<&'a Transfer> {
    records.iter().copied().filter(|transfer| !word(transfer.status).is_empty()).collect()
}

/// Name of a verdict in a total; empty without a verdict.
const fn word(status: TransferStatus) -> &'static str {
    match status {
        TransferStatus::Matched => "matched",
        TransferStatus::NoMatchedDeposit => "unknown",
        TransferStatus::WaitingForConfirmation
        | TransferStatus::WaitingForMatch
        | TransferStatus::FailedToConfirm => "",
    }
}

struct Found {
    chain: Blockchain,
    differences: Vec<Difference>,
}

impl Found {
    fn add(&mut self, kind: Kind, what: String, cure: String) {
        let (join, blockchain) = (Join::Verdicts, Some(self.chain));
        self.differences.push(Difference { join, kind, blockchain, what, cure });
    }

    fn held(&mut self, transaction: TxHash) {
        let chain = self.chain;
        let what = format!("{chain}: endpoints disagree about {transaction}: it pays nothing");
        let cure = format!("tidemark chain resolve {chain} {transaction} --accept (or --reject)");
        self.add(Kind::Held, what, cure);
    }

    fn none(&mut self, inclusion: &Inclusion, records: &[&Transfer]) {
        let state = records.last().map_or("no record", |transfer| transfer.status.as_str());
        let (seen, chain) = (inclusion.seen, self.chain);
        let what = format!(
            "{chain}: block {}: {} {} in {}: in transfers.raw, and the processor has no verdict ({state})",
            inclusion.number, seen.value, seen.stablecoin, seen.tx_hash
        );
        self.add(Kind::NoVerdict, what, "tidemark dead-letters list".to_owned());
    }

    fn two(&mut self, first: &Transfer, second: &Transfer) {
        let what = format!(
            "{}: one payment in {} has the transfers {} and {}",
            self.chain, first.observation.tx_hash, first.transfer_id, second.transfer_id
        );
        self.add(Kind::TwoVerdicts, what, DEFECT.to_owned());
    }

    fn left(&mut self, transfer: &Transfer) {
        let what = self.without_raw(transfer, "and is not on the chain any more");
        let cure = "no command mends it: ask the payer to pay again, and correct the books";
        self.add(Kind::LeftTheChain, what, cure.to_owned());
    }

    /// Reports transfers that have a verdict, but neither a raw record nor a retract: their raw records were deleted,
    /// by retention or by hand. One rewind to below the lowest of them publishes all again.
    fn expired(&mut self, transfers: &[&Transfer]) {
        let lowest = transfers.iter().map(|transfer| transfer.block.number).min();
        let below = lowest.unwrap_or_default().saturating_sub(1);
        let cure = format!(
            "the verdict holds while the chain has it: choose a later --from, or publish it again by \
             `tidemark chain rewind {} {below}`",
            self.chain
        );
        for transfer in transfers {
            let what = self.without_raw(transfer, "and its records are no longer in transfers.raw");
            self.add(Kind::NoLongerInLog, what, cure.clone());
        }
    }

    /// Text about a transfer that has a verdict and no raw record.
    fn without_raw(&self, transfer: &Transfer, why: &str) -> String {
        let seen = transfer.observation;
        let order = match (transfer.order_id, transfer.status) {
            (Some(order), TransferStatus::Matched) => format!(", and order {order} is paid by it"),
            _ => String::new(),
        };
        format!(
            "{}: transfer {} of {} {} in {} has a verdict {why}{order}",
            self.chain, transfer.transfer_id, seen.value, seen.stablecoin, seen.tx_hash
        )
    }
}

#[cfg(test)]
mod tests {
    use schemas::TransferId;
    use schemas::record::example;

    use super::*;

    fn kinds(raw: &[Inclusion], transfers: &[Transfer], held: &[PaymentKey]) -> Vec<Kind> {
        let transfers: Vec<_> = transfers.iter().collect();
        let held = held.iter().copied().collect();
        let none = BTreeSet::new();
        let joined = compare_verdicts(Blockchain::Eth, raw, &transfers, &held, &none);
        joined.differences.iter().map(|difference| difference.kind).collect()
    }

    #[test]
    fn each_transfer_has_exactly_one_verdict() {
        let transfer = |status| Transfer { status, ..example::transfer() };
        let raw = [{
            let Transfer { block, observation, .. } = example::transfer();
            Inclusion { number: block.number, hash: block.hash, seen: observation }
        }];
        let (matched, unknown) = (TransferStatus::Matched, TransferStatus::NoMatchedDeposit);
        assert_eq!(kinds(&raw, &[transfer(matched)], &[]), []);
        assert_eq!(kinds(&raw, &[transfer(unknown)], &[]), []);
        assert_eq!(kinds(&raw, &[], &[]), [Kind::NoVerdict]);
        let failed = transfer(TransferStatus::FailedToConfirm);
        assert_eq!(kinds(&raw, std::slice::from_ref(&failed), &[]), [Kind::NoVerdict]);
        assert_eq!(kinds(&[], &[failed], &[]), [], "it was orphaned");
        let waits = transfer(TransferStatus::WaitingForConfirmation);
        assert_eq!(kinds(&raw, &[waits], &[raw[0].seen.payment()]), [Kind::Held]);
        let other = Transfer { transfer_id: TransferId(9), ..transfer(unknown) };
        assert_eq!(kinds(&raw, &[transfer(matched), other], &[]), [Kind::TwoVerdicts]);
    }

    #[test]
    fn expired_records_do_not_mean_a_lost_payment() {
        let matched = Transfer { status: TransferStatus::Matched, ..example::transfer() };
        let compare = |transfer: &Transfer, retracted: &[PaymentKey]| {
            let retracted = retracted.iter().copied().collect();
            let none = BTreeSet::new();
            let joined = compare_verdicts(Blockchain::Eth, &[], &[transfer], &none, &retracted);
            let [difference] = &joined.differences[..] else { panic!("{joined:?}") };
            difference.clone()
        };
        let left = compare(&matched, &[matched.observation.payment()]);
        assert_eq!(left.kind, Kind::LeftTheChain);
        let orphaned_at = Some(matched.block.timestamp);
        let orphaned = Transfer { orphaned_at, ..matched.clone() };
        assert_eq!(compare(&orphaned, &[]), left);
        assert!(left.what.contains("is not on the chain any more"), "{}", left.what);
        assert!(left.cure.contains("ask the payer to pay again"), "{}", left.cure);
        let expired = compare(&matched, &[]);
        assert_eq!(expired.kind, Kind::NoLongerInLog);
        assert!(expired.what.contains("no longer in transfers.raw"), "{}", expired.what);
        let rewind = format!("`tidemark chain rewind eth {}`", matched.block.number - 1);
        assert!(expired.cure.ends_with(&rewind), "{}", expired.cure);
        assert!(!expired.cure.contains("pay again"), "{}", expired.cure);
    }

    #[test]
    fn one_rewind_brings_all_expired_records_back() {
        let lost = |ordinal: i32, number: i64| {
            let mut transfer = Transfer { status: TransferStatus::Matched, ..example::transfer() };
            transfer.transfer_id = TransferId(i64::from(ordinal));
            transfer.observation.ordinal = ordinal;
            transfer.block.number = number;
            transfer
        };
        let lost = [lost(1, 30), lost(2, 20), lost(3, 25)];
        let (transfers, none): (Vec<_>, _) = (lost.iter().collect(), BTreeSet::new());
        let joined = compare_verdicts(Blockchain::Eth, &[], &transfers, &BTreeSet::new(), &none);
        let cures: Vec<_> = joined.differences.iter().map(|one| &one.cure).collect();
        assert_eq!(cures.len(), 3);
        assert!(
            cures.iter().all(|cure| cure.ends_with("`tidemark chain rewind eth 19`")),
            "{cures:?}"
        );
    }
}
