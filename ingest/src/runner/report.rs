//! Log lines and metrics of following a chain.

use metrics::{counter, gauge, histogram};
use schemas::TxHash;
use schemas::record::{Block, ChainBody, ChainRecord};
use serde_json::json;

use super::Runner;
use crate::machine::{Answer, Ask, Cursor, Decision, History, Lost, Note, Point};
use crate::metrics as names;
use crate::tags::Found;

impl Runner {
    pub(super) fn count(&self, records: &[ChainRecord]) {
        let name = self.chain.blockchain.as_str();
        let (mut transfers, mut retracts) = (0, 0);
        for record in records {
            match record.body {
                ChainBody::Transfer(_) => transfers += 1,
                ChainBody::Retract(_) => retracts += 1,
                ChainBody::Head(_) | ChainBody::Watch(_) => {}
            }
        }
        counter!(names::STEPS_TOTAL, "blockchain" => name).increment(1);
        counter!(names::TRANSFERS_TOTAL, "blockchain" => name).increment(transfers);
        counter!(names::RETRACTS_TOTAL, "blockchain" => name).increment(retracts);
        if let Some(last) = records.last() {
            tracing::debug!(
                blockchain = name,
                block.number = last.block.number,
                transfers,
                retracts,
                "published a step of {name}"
            );
        }
    }

    pub(super) fn measure(&mut self, cursor: &Cursor, decision: &Decision) {
        let name = self.chain.blockchain.as_str();
        self.last = cursor.last_scanned().or(self.last);
        self.show(Some(cursor), self.stalled());
        gauge!(names::RANGE_BLOCKS, "blockchain" => name).set(cursor.range_blocks() as f64);
        let Some(history) = cursor.history() else { return };
        let alone = cursor.confirmed_alone();
        let more = alone.saturating_sub(self.alone) as u64;
        counter!(names::CONFIRMED_ALONE_TOTAL, "blockchain" => name).increment(more);
        self.alone = alone;
        gauge!(names::CHECKED_BLOCK, "blockchain" => name).set(cursor.checked() as f64);
        if !decision.publish.is_empty() {
            gauge!(names::HEAD_BLOCK, "blockchain" => name).set(history.last().number as f64);
            gauge!(names::FINALIZED_BLOCK, "blockchain" => name)
                .set(history.head().finalized as f64);
        }
    }

    /// Measures the lag of the last scanned block behind the endpoint's head.
    pub(super) fn measure_lag(&mut self, ask: &Ask, answer: &Answer, scanned: Option<Block>) {
        let (Some(Point::Latest), Some(Some(head))) = (ask.blocks.first(), answer.blocks.first())
        else {
            return;
        };
        let lag = scanned.map_or(0, |scanned| head.block.number.saturating_sub(scanned.number));
        let name = self.chain.blockchain.as_str();
        self.lag_blocks = Some(lag.max(0));
        gauge!(names::LAG_BLOCKS, "blockchain" => name).set(lag.max(0) as f64);
    }

    /// Publishes the state of the chain as metrics and readiness details. `cursor` is `None` before
    /// the first step, and during a halt.
    pub(super) fn show(&self, cursor: Option<&Cursor>, halted: Option<&str>) {
        let history = cursor.and_then(Cursor::history);
        let head = history.map(History::head);
        self.show_halt(halted);
        if let Some(last) = self.last {
            // Blocks and seconds stay far below 2^52, where an f64 is exact.
            gauge!(names::LAST_BLOCK_TIMESTAMP, "blockchain" => self.chain.blockchain.as_str())
                .set(last.timestamp.0 as f64);
        }
        self.detail.set(json!({
            "blockchain": self.chain.blockchain,
            "followed": true,
            "scanned": self.last.map(|block| block.number),
            "timestamp": self.last.map(|block| block.timestamp),
            "lag_blocks": self.lag_blocks,
            "checked": history.and(cursor).map(Cursor::checked),
            "vouched": history.and(cursor).map(Cursor::vouched),
            "held": head.map(|head| head.held.len()),
            "confirmed": head.and_then(|head| head.confirmed.first()).map(|tier| tier.number),
            "finalized": head.map(|head| head.finalized),
            "epoch": history.map(History::epoch),
            "halted": halted,
            "endpoints": self.endpoints.details(),
        }));
    }

    pub(super) fn show_halt(&self, halted: Option<&str>) {
        let is_halted = f64::from(u8::from(halted.is_some()));
        gauge!(names::HALTED, "blockchain" => self.chain.blockchain.as_str()).set(is_halted);
    }

    pub(super) fn report_tags(&self, index: usize, found: &[Found]) {
        let (name, endpoint) = (self.chain.blockchain.as_str(), self.endpoints.name(index));
        for (tag, fault, is_new) in found {
            let (tag, fault) = (tag.name(), fault.name());
            counter!(
                names::TAG_FAULTS_TOTAL,
                "blockchain" => name, "tag" => tag, "fault" => fault
            )
            .increment(1);
            if *is_new {
                tracing::error!(
                    blockchain = name,
                    endpoint,
                    tag,
                    fault,
                    "transfers on {name} wait for a tag that the endpoint does not serve as usual: check its \
                     plan and the chain, or set other confirmations"
                );
            }
        }
    }

    pub(super) fn log_start(&self, history: Option<&History>, lost: Option<Lost>) {
        let name = self.chain.blockchain.as_str();
        let endpoint = self.endpoints.first_name();
        match (history, lost) {
            (Some(history), _) => tracing::info!(
                blockchain = name,
                endpoint,
                block.number = history.last().number,
                epoch = history.epoch().0,
                "following {name} from the last published head"
            ),
            (None, Some(Lost { epoch, number, .. })) => tracing::error!(
                blockchain = name,
                endpoint,
                block.number = number,
                epoch = epoch.0,
                "the records of {name} are gone or older than its progress: the blocks after this one are scanned \
                 again, in a new epoch. If the chain left what was final, run `tidemark chain rewind {name} HEIGHT` with the \
                 newest block that both forks have"
            ),
            (None, None) => tracing::info!(
                blockchain = name,
                endpoint,
                "following {name} for the first time: the log has no record of it"
            ),
        }
    }

    pub(super) fn report_notes(&self, notes: &[Note]) {
        let name = self.chain.blockchain.as_str();
        let differs = |kind, block, tx_hash| self.report_check(kind, block, tx_hash);
        for note in notes {
            match note {
                Note::Skipped(skipped) => {
                    counter!(names::SKIPPED_TOTAL, "blockchain" => name).increment(1);
                    tracing::error!(
                        blockchain = name,
                        contract = %skipped.contract,
                        txn_hash = %skipped.tx_hash,
                        log_index = skipped.log_index,
                        "transfer skipped: its value exceeds what an amount can hold; check the \
                         contract and its decimals in the configuration"
                    );
                }
                Note::Rewound { from, to, retracted } => {
                    let depth = from.number.saturating_sub(to.number);
                    histogram!(names::REORG_DEPTH_BLOCKS, "blockchain" => name)
                        .record(depth as f64);
                    tracing::warn!(
                        blockchain = name,
                        from.number = from.number,
                        from.hash = %from.hash,
                        to.number = to.number,
                        to.hash = %to.hash,
                        retracted,
                        "{name} was reorganised: rewinding to the newest block that is still canonical"
                    );
                }
                Note::LateFind { block, tx_hash } => differs("late_find", block, Some(tx_hash)),
                Note::Omitted { block, tx_hash } => differs("omitted", block, Some(tx_hash)),
                Note::Disputed { block, tx_hash } => differs("disputed", block, Some(tx_hash)),
                Note::Forged { block, tx_hash } => differs("forged", block, Some(tx_hash)),
                Note::Contradiction { block } => differs("contradiction", block, None),
                Note::Gap { after } => tracing::error!(
                    blockchain = name,
                    block.number = after.number,
                    "the blocks of {name} after this one are gone from every endpoint: add one that has them"
                ),
                Note::Alone { begins } => {
                    gauge!(names::ALONE, "blockchain" => name).set(f64::from(u8::from(*begins)));
                    tracing::warn!(
                        blockchain = name,
                        begins,
                        "one endpoint of {name} confirms alone: no other answers"
                    );
                }
                Note::Check { why, block } => differs(why.kind(), block, None),
            }
        }
    }

    fn report_check(&self, kind: &'static str, block: &Block, tx_hash: Option<&TxHash>) {
        let name = self.chain.blockchain.as_str();
        if kind == "disputed" {
            tracing::error!(
                blockchain = name,
                "a transfer of {name} is held while its endpoints disagree; find out which one answers falsely and take \
                 it out of `rpc`"
            );
        }
        counter!(names::CHECK_DIFFERENCES_TOTAL, "blockchain" => name, "kind" => kind).increment(1);
        tracing::warn!(
            blockchain = name,
            kind,
            block.number = block.number,
            block.hash = %block.hash,
            txn_hash = tx_hash.map(|hash| hash.to_string()),
            "answers about a block of {name} differ"
        );
    }
}
