//! Outcomes of transactions, requested by their blocks: the receipts of whole blocks as a second source of logs, and a
//! block's list of transactions as proof about one without a receipt.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use schemas::{BlockHash, TxHash};

use super::wire::{self, Call, Listed, WireOutcome};
use super::{Endpoint, Failure};
use crate::machine::{Answer, Ask, EventLog, Outcome, Point, Proof, Receipt, Refusal, Span};

/// Our logs, and all blocks whose receipts were read.
pub(super) type OutcomeLogs = (Vec<EventLog>, Vec<(i64, BlockHash)>);

const fn is_by_receipts(span: &Span) -> bool {
    matches!(span, Span::Receipts { .. })
}

/// Returns `true` if the endpoint sent an answer that cannot be parsed; a refusal is not one.
fn is_unreadable(failure: &Failure) -> bool {
    matches!(failure.refusal, Refusal::Transient) && failure.message.starts_with("malformed")
}

const fn is_large(failure: &Failure) -> bool {
    matches!(failure.refusal, Refusal::Size { .. })
}

impl Endpoint {
    /// Fetches an answer, with the logs of [`Span::Receipts`] from the receipts of whole blocks
    /// where the endpoint serves these.
    pub(super) async fn fetch_by_outcomes(&self, ask: &Ask) -> Result<Answer, Failure> {
        if !ask.logs.iter().any(is_by_receipts) || !self.has_outcomes() {
            return self.fetch_in_parts(ask).await;
        }
        let mut plain = ask.clone();
        plain.logs.retain(|span| !is_by_receipts(span));
        let mut answer = self.fetch_in_parts(&plain).await?;
        let mut logs = std::mem::take(&mut answer.logs).into_iter();
        for span in &ask.logs {
            let found = match span {
                Span::Receipts { from, to } => match self.fetch_outcome_logs(*from, *to).await {
                    Err(_) if !self.has_outcomes() => return self.fetch_in_parts(ask).await,
                    // Receipts of some blocks can never be read, or are too large even for a single block.
                    Err(failure)
                        if !self.has_native()
                            && (is_unreadable(&failure) || from == to && is_large(&failure)) =>
                    {
                        tracing::warn!(
                            endpoint = self.name,
                            cause = failure.message,
                            "the receipts of a block cannot be had: it is checked by eth_getLogs"
                        );
                        return self.fetch_in_parts(ask).await;
                    }
                    fetched => {
                        let (logs, read) = fetched?;
                        answer.read.extend(read);
                        logs
                    }
                },
                Span::Range { .. } | Span::Block(_) => logs.next().ok_or_else(Failure::missing)?,
            };
            answer.logs.push(found);
        }
        answer.by_receipts = true;
        Ok(answer)
    }

    /// Returns `true` if the receipts of whole blocks are served, as far as is known.
    fn has_outcomes(&self) -> bool {
        self.has_native() || self.outcomes.is_expected(Instant::now())
    }

    /// Our logs of the transactions that succeeded, from one height to another, and all blocks read.
    async fn fetch_outcome_logs(&self, from: i64, to: i64) -> Result<OutcomeLogs, Failure> {
        if let Some(native) = self.native() {
            let fetched = self.fetch_final_logs(native, from, to).await;
            if fetched.is_ok() || self.has_native() {
                return fetched;
            }
        }
        let (mut logs, mut read) = (Vec::new(), Vec::new());
        for number in from..=to {
            let span = Span::Receipts { from: number, to: number };
            let Some(outcomes) = self.fetch_outcomes_of(span).await? else {
                return Err(self.note_null(number).await);
            };
            let hash = match outcomes.first() {
                Some((_, receipt)) => receipt.block_hash,
                None => self.expect_empty(number).await?,
            };
            read.push((number, hash));
            logs.extend(self.moved(outcomes));
        }
        Ok((logs, read))
    }

    /// Our logs in the receipts of transactions that succeeded.
    pub(super) fn moved(
        &self,
        outcomes: Vec<(TxHash, Receipt)>,
    ) -> impl Iterator<Item = EventLog> + '_ {
        let succeeded = outcomes.into_iter().filter(|(_, receipt)| receipt.succeeded);
        let logs = succeeded.flat_map(|(_, receipt)| receipt.logs);
        logs.filter(|log| self.watch.may_pay(log))
    }

    /// The receipts of one block, by its hash or its number; `None` if the endpoint answers `null`.
    pub(super) async fn fetch_outcomes_of(
        &self,
        span: Span,
    ) -> Result<Option<Vec<(TxHash, Receipt)>>, Failure> {
        let fetched = self.send_one::<Vec<WireOutcome>>(&Call::block_receipts(span)).await;
        match &fetched {
            Ok(Some(_)) => self.outcomes.served(),
            Err(failure) if failure.lacks_method() => self.note_lack(&failure.message),
            Ok(None) | Err(_) => {}
        }
        fetched?.map(|list| wire::outcomes(span, list)).transpose()
    }

    /// Takes note of a method that is not served.
    fn note_lack(&self, cause: &str) {
        if self.outcomes.lacked(Instant::now()) {
            tracing::warn!(
                endpoint = self.name,
                cause,
                "the endpoint serves no eth_getBlockReceipts: blocks are checked by eth_getLogs alone"
            );
        }
    }

    /// Takes note of `null` for the receipts of a block. If the endpoint shows the block, the receipts either follow
    /// soon, or the method is not served.
    async fn note_null(&self, number: i64) -> Failure {
        if let Err(failure) = self.fetch_lists([number]).await {
            return failure;
        }
        if self.outcomes.is_silent(Instant::now()) {
            self.note_lack("null for a block that it shows");
        }
        Failure::new(Refusal::Behind, "the endpoint lacks the receipts of a block that it shows")
    }

    /// Checks that a block without receipts has no transactions, and returns its hash.
    async fn expect_empty(&self, number: i64) -> Result<BlockHash, Failure> {
        match self.fetch_lists([number]).await?.first() {
            Some(listed) if listed.transactions.is_empty() => Ok(listed.block.hash),
            _ => Err(Failure::new(Refusal::Behind, "no receipts of a block with transactions")),
        }
    }

    /// Blocks by number, with their transactions.
    pub(super) async fn fetch_lists(
        &self,
        numbers: impl IntoIterator<Item = i64>,
    ) -> Result<Vec<Listed>, Failure> {
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let calls = numbers.iter().map(|number| Call::block(Point::Number(*number)));
        let results = self.call_all(&calls.collect::<Vec<_>>()).await?;
        let mut lists = Vec::with_capacity(numbers.len());
        for (number, result) in numbers.into_iter().zip(results) {
            let listed = wire::listed(result?)?.filter(|listed| listed.block.number == number);
            let lacking = || Failure::new(Refusal::Behind, "the endpoint lacks the block");
            lists.push(listed.ok_or_else(lacking)?);
        }
        Ok(lists)
    }

    /// For transactions whose receipt the endpoint did not return, searches the receipts and transactions of their
    /// blocks, and replaces their `Unknown` proofs.
    pub(super) async fn ask_blocks(
        &self,
        asked: &[Outcome],
        proofs: &mut [Proof],
    ) -> Result<(), Failure> {
        let is_unknown = |proof: &Proof| *proof == Proof::Unknown;
        let pairs = asked.iter().zip(proofs.iter());
        let blocks = pairs.filter(|(_, proof)| is_unknown(proof)).map(|(one, _)| one.block_hash);
        for hash in blocks.collect::<BTreeSet<_>>() {
            let receipts = self.receipts_in(hash).await?;
            let listed = self.listed_in(hash).await?;
            for (one, proof) in asked.iter().zip(proofs.iter_mut()) {
                if one.block_hash != hash || !is_unknown(proof) {
                    continue;
                }
                if let Some(receipt) = receipts.get(&one.transaction) {
                    *proof = Proof::Receipt(receipt.clone());
                } else if listed.as_ref().is_some_and(|list| !list.contains(&one.transaction)) {
                    *proof = Proof::Unlisted;
                }
            }
        }
        Ok(())
    }

    /// The receipts of a block; empty if the endpoint does not serve them, or fails otherwise than by its rate limit.
    async fn receipts_in(&self, hash: BlockHash) -> Result<HashMap<TxHash, Receipt>, Failure> {
        if !self.outcomes.is_expected(Instant::now()) {
            return Ok(HashMap::new());
        }
        match self.fetch_outcomes_of(Span::Block(hash)).await {
            Err(failure) if failure.refusal == Refusal::Rate => Err(failure),
            Ok(Some(outcomes)) => Ok(outcomes.into_iter().collect()),
            Ok(None) | Err(_) => Ok(HashMap::new()),
        }
    }

    /// The transactions of a block; none if the endpoint does not show the block.
    async fn listed_in(&self, hash: BlockHash) -> Result<Option<Vec<TxHash>>, Failure> {
        let results = self.call(&[Call::block_of(hash)]).await?;
        let listed = match results.into_iter().next() {
            Some(Err(failure)) if failure.refusal == Refusal::Rate => return Err(failure),
            Some(Ok(block)) => wire::listed(block).ok().flatten(),
            Some(Err(_)) | None => None,
        };
        let listed = listed.filter(|listed| listed.block.hash == hash);
        Ok(listed.map(|listed| listed.transactions))
    }
}

#[cfg(test)]
mod tests;
