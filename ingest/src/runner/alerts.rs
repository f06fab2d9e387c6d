//! Alerts about a chain, each written once to the topic `alerts`. Alerts of a step are written with it.

use log::NewRecord;
use schemas::record::{Alert, Block, Held};
use schemas::{AlertKind, Partition, Topic, TxHash, UnixMicros};

use super::{Ended, Runner};
use crate::Error;
use crate::machine::{Cursor, Note};

/// Maximum age of the last read of the topic, in microseconds: another process that followed the chain may have raised
/// alerts since.
const KNOWN_MICROS_MAX: i64 = 60_000_000;
/// Subject of a halt of second checks; a halt of the whole chain has an empty subject.
pub(super) const CHECKS: &str = "checks";

/// Results of an attempt, by which alerts end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signs<'a> {
    /// Blocks were scanned, or none was left to scan.
    pub(super) is_scanned: bool,
    /// A second check succeeded, and none fails.
    pub(super) is_checked: bool,
    pub(super) is_alone: bool,
    /// Every endpoint pruned the next blocks.
    pub(super) has_gap: bool,
    pub(super) held: &'a [Held],
}

impl<'a> Signs<'a> {
    /// `None` before the first head: nothing is known of the chain.
    fn of(cursor: &'a Cursor, is_scanned: bool, is_checked: bool) -> Option<Self> {
        let has_gap = cursor.history()?.head().has_gap;
        let (is_alone, held) = (cursor.is_alone(), cursor.held());
        Some(Self { is_scanned, is_checked, is_alone, has_gap, held })
    }

    /// Returns the reason why an alert is over, if it is. Alerts about events do not end by themselves.
    fn ending(&self, alert: &Alert) -> Option<&'static str> {
        let is_about = |held: &Held| {
            let (chain, subject) = (alert.blockchain, held.transfer.tx_hash);
            alert.alert_id == Alert::id(alert.kind, chain, &subject)
        };
        let of_checks = Alert::id(AlertKind::ChainHalted, alert.blockchain, &CHECKS);
        match alert.kind {
            AlertKind::ChainHalted if alert.alert_id == of_checks => {
                self.is_checked.then_some("checked and confirmed again")
            }
            AlertKind::ChainHalted => self.is_scanned.then_some("scanned again"),
            AlertKind::ConfirmingAlone => {
                let is_over = self.is_checked && !self.is_alone;
                is_over.then_some("a second check covers what one endpoint confirmed alone")
            }
            AlertKind::PrunedHistory => {
                let is_over = self.is_scanned && !self.has_gap;
                is_over.then_some("an endpoint has the blocks that were gone")
            }
            AlertKind::DisputedTransfer => {
                (!self.held.iter().any(is_about)).then_some("the transfer is held no longer")
            }
            AlertKind::ConfirmedTransferRetracted
            | AlertKind::StaleTransfer
            | AlertKind::AmountsTaken
            | AlertKind::HeadWentBack
            | AlertKind::HeadTooFar
            | AlertKind::EndpointFailing
            | AlertKind::LateFind
            | AlertKind::ForgedTransfer
            | AlertKind::PaymentsStopped
            | AlertKind::Restored
            | AlertKind::DeadLetter
            | AlertKind::DeadWebhook => None,
        }
    }
}

impl Runner {
    /// Queues alerts for the notes of a decision. `index` is the endpoint that answered last.
    pub(super) fn note_alerts(&mut self, notes: &[Note], index: usize) {
        let name = self.chain.blockchain.as_str();
        let endpoint = self.endpoints.second_name(index).to_owned();
        let place = |block: &Block, hash: &TxHash| {
            format!("the transfer in transaction {hash} of block {} ({})", block.number, block.hash)
        };
        for note in notes {
            match note {
                Note::LateFind { block, tx_hash } => self.note_alert(
                    AlertKind::LateFind,
                    &tx_hash.to_string(),
                    format!(
                        "{} was missing when {name} was scanned, and is in a second answer of {endpoint}. It is \
                         published now, and pays its order when it is confirmed. The endpoint that was asked first shows logs too late, \
                         or leaves them out: if this comes again, set a greater chains.{name}.lag, or replace that \
                         endpoint",
                        place(block, tx_hash)
                    ),
                ),
                Note::Forged { block, tx_hash } => self.note_alert(
                    AlertKind::ForgedTransfer,
                    &tx_hash.to_string(),
                    format!(
                        "{} was published, and every endpoint of {name} denies it. It is taken back, and paid nothing. \
                         An endpoint invented it: compare what each of them answers with a block \
                         explorer, and take that one out of chains.{name}.rpc",
                        place(block, tx_hash)
                    ),
                ),
                Note::Disputed { block, tx_hash } => self.note_alert(
                    AlertKind::DisputedTransfer,
                    &tx_hash.to_string(),
                    format!(
                        "the endpoints of {name} do not agree about {}. It is held: it pays nothing, and its order does \
                         not expire, until they agree; all else is confirmed. Compare what each of them answers with a \
                         block explorer, and take the one that answers falsely out of chains.{name}.rpc, or decide with \
                         `tidemark chain resolve {name} {tx_hash} --accept` or `--reject`",
                        place(block, tx_hash)
                    ),
                ),
                Note::Gap { after } => self.note_alert(
                    AlertKind::PrunedHistory,
                    "",
                    format!(
                        "every endpoint of {name} has deleted what comes after block {}: nothing is skipped, no deposit \
                         opens on {name} meanwhile, and waiting does not help. Add an endpoint that keeps more to \
                         chains.{name}.rpc, and reload or restart",
                        after.number
                    ),
                ),
                Note::Alone { begins: true } => self.note_alert(
                    AlertKind::ConfirmingAlone,
                    "",
                    format!(
                        "no second endpoint of {name} answers: amounts below {} are confirmed by one endpoint, larger \
                         ones wait, and their orders do not expire. Repair or replace an endpoint of chains.{name}.rpc",
                        self.chain.alone
                    ),
                ),
                Note::Alone { begins: false }
                | Note::Skipped(_)
                | Note::Contradiction { .. }
                | Note::Rewound { .. }
                | Note::Omitted { .. }
                | Note::Check { .. } => {}
            }
        }
    }

    /// Queues an alert. An open one is repeated only with another message.
    pub(super) fn note_alert(&mut self, kind: AlertKind, subject: &str, message: String) {
        let (chain, now) = (Some(self.chain.blockchain), self.clock.now());
        let alert = Alert::raise(kind, chain, &subject, message, now);
        if self.open.get(&alert.alert_id).is_none_or(|known| known.message != alert.message) {
            self.open.apply(alert.clone());
            self.alerts.push(alert);
        }
    }

    pub(super) fn is_raised(&self, kind: AlertKind, subject: &str) -> bool {
        self.open.get(&Alert::id(kind, Some(self.chain.blockchain), &subject)).is_some()
    }

    /// Resolves alerts that are over, including those of other processes.
    pub(super) fn end_alerts(&mut self, cursor: &Cursor, is_scanned: bool, is_checked: bool) {
        let Some(signs) = Signs::of(cursor, is_scanned, is_checked) else { return };
        let (chain, now) = (Some(self.chain.blockchain), self.clock.now());
        let is_ours = |alert: &&Alert| alert.blockchain == chain && alert.kind.is_condition();
        let of_chain = self.open.iter().filter(is_ours);
        let ended = of_chain.filter_map(|alert| {
            let how = signs.ending(alert)?;
            let message = format!("{}: {how}", self.chain.blockchain);
            Some(alert.clone().resolve(message, now))
        });
        for alert in ended.collect::<Vec<_>>() {
            let (id, how) = (&alert.alert_id, &alert.message);
            tracing::info!(alert.id = id, "an alert is resolved: {how}");
            self.open.apply(alert.clone());
            self.alerts.push(alert);
        }
    }

    /// Reads alerts of other processes, if the last read is old. A transient failure is retried at the next call.
    pub(super) async fn read_alerts(&mut self) -> Result<(), Ended> {
        let now = self.clock.now();
        if self.alerts_read_at.is_some_and(|at| is_fresh(at, now)) {
            return Ok(());
        }
        let (log, mut open) = (self.log.clone(), self.open.clone());
        let read = tokio::task::spawn_blocking(move || open.refresh(&*log).map(|()| open));
        match read.await.map_err(Error::from)? {
            Ok(open) => (self.open, self.alerts_read_at) = (open, Some(now)),
            Err(log::Error::Transient(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn encoded_alerts(&self) -> Result<Vec<NewRecord>, Error> {
        let key = self.chain.blockchain.as_str();
        let alerts = self.alerts.iter();
        let encoded = alerts.map(|a| NewRecord::encode(Topic::Alerts, Partition(0), key, a));
        Ok(encoded.collect::<Result<_, _>>()?)
    }

    /// Writes the alerts that belong to no step. After a failure they are retried with the next answer.
    pub(super) async fn send_alerts(&mut self) -> Result<(), Ended> {
        if self.alerts.is_empty() {
            return Ok(());
        }
        match self.log.produce(self.encoded_alerts()?).await {
            Ok(()) => self.alerts.clear(),
            Err(error) => {
                let name = self.chain.blockchain.as_str();
                tracing::warn!(blockchain = name, %error, "an alert is not on the log yet");
            }
        }
        Ok(())
    }
}

/// Returns `true` if a read is recent; `false` after the clock was set back.
fn is_fresh(read_at: UnixMicros, now: UnixMicros) -> bool {
    (0..KNOWN_MICROS_MAX).contains(&now.0.saturating_sub(read_at.0))
}

#[cfg(test)]
mod tests {
    use schemas::Blockchain;
    use schemas::record::example;

    use super::*;

    const AT: UnixMicros = UnixMicros(1_790_000_000_000_000);

    fn alert(kind: AlertKind, subject: &str) -> Alert {
        Alert::raise(kind, Some(Blockchain::Eth), &subject, String::new(), AT)
    }

    #[test]
    fn what_others_raise_is_read_each_minute() {
        let later = |micros| UnixMicros(AT.0 + micros);
        assert!(is_fresh(AT, later(KNOWN_MICROS_MAX - 1)));
        assert!(!is_fresh(AT, later(KNOWN_MICROS_MAX)) && !is_fresh(AT, later(-1)));
    }

    /// Each condition ends by its own sign, and by no other; events by none.
    #[test]
    fn each_kind_ends_by_its_own_sign() {
        let observation = example::transfer().observation;
        let hash = observation.tx_hash.to_string();
        let block = example::chain_record().block;
        let held = [Held { block, transfer: observation }];
        // No condition has ended.
        let none = Signs {
            is_scanned: false,
            is_checked: false,
            is_alone: true,
            has_gap: true,
            held: &held,
        };
        let scanned = Signs { is_scanned: true, ..none };
        let checked = Signs { is_checked: true, ..none };
        let two = Signs { is_alone: false, ..checked };
        let whole = Signs { has_gap: false, ..scanned };
        let released = Signs { held: &[], ..none };
        let all = [none, scanned, checked, two, whole, released];
        for (kind, subject, ends) in [
            (AlertKind::ChainHalted, "", [false, true, false, false, true, false]),
            (AlertKind::ChainHalted, CHECKS, [false, false, true, true, false, false]),
            (AlertKind::ConfirmingAlone, "", [false, false, false, true, false, false]),
            (AlertKind::PrunedHistory, "", [false, false, false, false, true, false]),
            (AlertKind::DisputedTransfer, hash.as_str(), [false, false, false, false, false, true]),
            (AlertKind::DisputedTransfer, "0x12", [true; 6]),
        ] {
            let alert = alert(kind, subject);
            let found = all.map(|signs| signs.ending(&alert).is_some());
            assert_eq!(found, ends, "{}", alert.alert_id);
        }
        let perfect = Signs {
            is_scanned: true,
            is_checked: true,
            is_alone: false,
            has_gap: false,
            held: &[],
        };
        for kind in AlertKind::ALL.iter().filter(|kind| !kind.is_condition()) {
            assert_eq!(perfect.ending(&alert(*kind, "x")), None, "{kind}");
        }
    }
}
