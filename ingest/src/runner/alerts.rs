//! What a person must know of a chain: records on `alerts`, each once. What belongs to a step is written with it.

use log::NewRecord;
use schemas::record::{Alert, Block};
use schemas::{AlertKind, Partition, Topic, TxHash};

use super::{Ended, Runner};
use crate::Error;
use crate::machine::Note;

impl Runner {
    /// Takes note of what a second check found. `index` is the endpoint that answered last.
    pub(super) fn note_alerts(&mut self, notes: &[Note], index: usize) {
        let name = self.chain.blockchain.as_str();
        let endpoint = self.endpoints.second_name(index).to_owned();
        let place = |block: &Block, hash: &TxHash| {
            format!("the transfer in transaction {hash} of block {} ({})", block.number, block.hash)
        };
        for note in notes {
            let (kind, message) = match note {
                Note::LateFind { block, tx_hash } => (
                    AlertKind::LateFind,
                    format!(
                        "{} was missing when {name} was scanned, and is in a second answer of {endpoint}. It is \
                         published now, and pays its order when it is confirmed. The endpoint that was asked first shows logs too late, \
                         or leaves them out: if this comes again, set a greater chains.{name}.lag, or replace that \
                         endpoint",
                        place(block, tx_hash)
                    ),
                ),
                Note::Forged { block, tx_hash } => (
                    AlertKind::ForgedTransfer,
                    format!(
                        "{} was published, and every endpoint of {name} denies it. It is taken back, and paid nothing. \
                         An endpoint invented it: compare what each of them answers with a block \
                         explorer, and take that one out of chains.{name}.rpc",
                        place(block, tx_hash)
                    ),
                ),
                Note::Disputed { block, tx_hash } => (
                    AlertKind::DisputedTransfer,
                    format!(
                        "the endpoints of {name} do not agree about {}. It is held: it pays nothing, and its order does \
                         not expire, until they agree; all else is confirmed. Compare what each of them answers with a \
                         block explorer, and take the one that answers falsely out of chains.{name}.rpc, or decide with \
                         `tidemark chain resolve {name} {tx_hash} --accept` or `--reject`",
                        place(block, tx_hash)
                    ),
                ),
                Note::Gap { after } => (
                    AlertKind::PrunedHistory,
                    format!(
                        "every endpoint of {name} has deleted what comes after block {}: nothing is skipped, no deposit \
                         opens on {name} meanwhile, and waiting does not help. Add an endpoint that keeps more to \
                         chains.{name}.rpc and restart",
                        after.number
                    ),
                ),
                Note::Alone { begins: true } => (
                    AlertKind::ConfirmingAlone,
                    format!(
                        "no second endpoint of {name} answers: amounts below {} are confirmed by one endpoint, larger \
                         ones wait, and their orders do not expire. Repair or replace an endpoint of chains.{name}.rpc",
                        self.chain.alone
                    ),
                ),
                Note::Alone { begins: false } => (
                    AlertKind::ConfirmingAlone,
                    format!(
                        "a second endpoint of {name} answers again, and has checked what one confirmed alone"
                    ),
                ),
                Note::Skipped(_)
                | Note::Contradiction { .. }
                | Note::Rewound { .. }
                | Note::Omitted { .. }
                | Note::Check { .. } => {
                    continue;
                }
            };
            self.note_alert(kind, message);
        }
    }

    pub(super) fn note_alert(&mut self, kind: AlertKind, message: String) {
        self.alerts.push(Alert {
            kind,
            blockchain: Some(self.chain.blockchain),
            transfer_id: None,
            order_id: None,
            message,
            raised_at: self.clock.now(),
        });
    }

    pub(super) fn encoded_alerts(&self) -> Result<Vec<NewRecord>, Error> {
        let key = self.chain.blockchain.as_str();
        let alerts = self.alerts.iter();
        let encoded = alerts.map(|a| NewRecord::encode(Topic::Alerts, Partition(0), key, a));
        encoded.collect::<Result<_, _>>().map_err(Error::Encode)
    }

    /// Writes the alerts that come with no step. What the log refuses is tried again with the next answer.
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
