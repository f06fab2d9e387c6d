//! One block whose logs are too many for one answer: anybody can fill a block with zero-value events to our wallets. It
//! is asked for in parts: by contract, by halves of the wallets, and at last by its receipts.

use serde_json::{Value, json};

use super::wire;
use super::{Endpoint, Failure};
use crate::machine::{Answer, Ask, EventLog, Refusal, Span};

/// Maximum length in bytes of an answer about one block. It is parsed directly, into less than twice its length.
pub(super) const BLOCK_BYTES_MAX: usize = 128 * 1024 * 1024;

fn is_too_large<T>(result: &Result<T, Failure>) -> bool {
    matches!(result, Err(Failure { refusal: Refusal::Size { .. }, .. }))
}

fn is_one_block(span: &Span) -> bool {
    match span {
        Span::Range { from, to } | Span::Receipts { from, to } => from == to,
        Span::Block(_) => true,
    }
}

fn no_logs() -> Failure {
    wire::malformed("logs", &"null")
}

impl Endpoint {
    /// Asks a question of the cursor. A single block that is too large is fetched in parts.
    ///
    /// # Errors
    /// [`Failure`] if a part has no answer, except a block, tag or JSON-RPC receipt that the endpoint does not have.
    pub(crate) async fn fetch(&self, ask: &Ask) -> Result<Answer, Failure> {
        self.masked(self.fetch_by_outcomes(ask).await)
    }

    pub(super) async fn fetch_in_parts(&self, ask: &Ask) -> Result<Answer, Failure> {
        let answer = self.fetch_by_both(ask).await;
        let is_single = !ask.logs.is_empty() && ask.logs.iter().all(is_one_block);
        if !is_single || !is_too_large(&answer) {
            return answer;
        }
        let mut answer = self.fetch_by_both(&Ask { logs: Vec::new(), ..ask.clone() }).await?;
        for span in &ask.logs {
            answer.logs.push(self.fetch_block(*span).await?);
        }
        Ok(answer)
    }

    async fn fetch_block(&self, span: Span) -> Result<Vec<EventLog>, Failure> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let wallets = self.topics.iter().map(|topics| list(topics.get(2).unwrap_or(&Value::Null)));
        let mut parts: Vec<_> = wallets.map(|wallets| (list(&self.contracts), wallets)).collect();
        let mut found = Vec::new();
        while let Some((contracts, wallets)) = parts.pop() {
            let topics = json!([super::transfer_topic(), null, wallets]);
            let call = super::log_call(span, &json!(contracts), &topics);
            let logs = self.send_one(&call).await;
            let logs = logs.and_then(|logs| wire::block_logs(logs.ok_or_else(no_logs)?));
            if !is_too_large(&logs) {
                found.extend(logs?);
            } else if contracts.len() > 1 {
                parts.extend(contracts.into_iter().map(|one| (vec![one], wallets.clone())));
            } else if wallets.len() > 1 {
                let (a, b) = wallets.split_at(wallets.len() / 2);
                parts.extend([a, b].map(|half| (contracts.clone(), half.to_vec())));
            } else {
                let outcomes = self.fetch_outcomes_of(span).await?.ok_or_else(no_logs)?;
                return Ok(outcomes.into_iter().flat_map(|(_, receipt)| receipt.logs).collect());
            }
        }
        Ok(found)
    }
}
