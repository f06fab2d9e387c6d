//! Requests that a scan does not need: those of the doctor, of rescans and surveys, and of the
//! search for a transaction.

use std::time::{Duration, Instant};

use alloy_primitives::U256;
use reqwest::header::DATE;
use schemas::record::Block;
use schemas::{Address, TxHash, UnixSeconds};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::wire::{self, Call, Listed};
use super::{Endpoint, Failure, log_call};
use crate::machine::{EventLog, Point, Receipt, Refusal, Span};

const BALANCE_OF: &str = "0x70a08231";

/// Prefix of the code of an account that lets a contract act for it (EIP-7702).
const DELEGATION: [u8; 3] = [0xef, 0x01, 0x00];

/// Maximum number of receipts of a block in which a log is searched for.
const RECEIPTS_TRIED: usize = 20;

/// The logs of a receipt, without content.
#[derive(Deserialize)]
struct Logs {
    logs: Vec<IgnoredAny>,
}

impl Endpoint {
    /// The receipt of a transaction; `None` if it is in no block of the endpoint.
    pub(crate) async fn receipt(&self, transaction: TxHash) -> Result<Option<Receipt>, Failure> {
        let shown = self.one(Call::receipt(transaction)).await?;
        self.masked(wire::receipt(shown))
    }

    /// Measures the latency of a small request.
    pub(crate) async fn latency(&self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        self.one(Call::plain("eth_blockNumber")).await?;
        Ok(begun.elapsed())
    }

    /// Endpoint's clock; `None` without an answer that has a valid `Date` header.
    pub(crate) async fn date(&self) -> Option<UnixSeconds> {
        let body = wire::body(&[Call::plain("eth_blockNumber")]);
        let answer = self.client.post(self.url.url().clone()).json(&body).send().await.ok()?;
        let date = httpdate::parse_http_date(answer.headers().get(DATE)?.to_str().ok()?).ok()?;
        let since = date.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(UnixSeconds(i64::try_from(since.as_secs()).ok()?))
    }

    /// A block; `None` if the endpoint does not have it.
    pub(crate) async fn block(&self, point: Point) -> Result<Option<Listed>, Failure> {
        let shown = self.one(Call::block(point)).await?;
        self.masked(wire::listed(shown))
    }

    /// Requests our logs of a range, as a scan does.
    pub(crate) async fn scan(&self, from: i64, to: i64) -> Result<(), Failure> {
        let calls: Vec<Call> = self.log_calls(Span::Range { from, to }).collect();
        for result in self.call(&calls).await? {
            self.masked(wire::logs(result?))?;
        }
        Ok(())
    }

    /// Returns the number of all logs of a block.
    pub(crate) async fn count_logs(&self, block: Block) -> Result<usize, Failure> {
        let params = json!([{ "blockHash": block.hash }]);
        let logs = self.one(Call { method: "eth_getLogs", params }).await?;
        Ok(logs.as_array().map_or(0, Vec::len))
    }

    /// Returns `true` if a block has any log, by all of its receipts, or else by some of them.
    ///
    /// # Errors
    /// [`Failure`] if receipts are missing.
    pub(crate) async fn has_logs(&self, probed: &Listed) -> Result<bool, Failure> {
        let whole = Call::block_receipts(Span::Block(probed.block.hash));
        if let Ok(Some(receipts)) = self.send_one::<Vec<Logs>>(&whole).await
            && receipts.len() >= probed.transactions.len()
        {
            return Ok(receipts.iter().any(|receipt| !receipt.logs.is_empty()));
        }
        let some = probed.transactions.iter().take(RECEIPTS_TRIED);
        let some: Vec<Call> = some.map(|transaction| Call::receipt(*transaction)).collect();
        let mut has_logs = false;
        for receipt in self.call_all(&some).await? {
            let receipt = receipt?;
            let logs = receipt["logs"].as_array();
            let lacking = || Failure::new(Refusal::Behind, "a receipt of the block is missing");
            has_logs |= !logs.ok_or_else(lacking)?.is_empty();
        }
        Ok(has_logs)
    }

    /// Returns `true` if the state after a block is served.
    pub(crate) async fn has_state(&self, of: Address, number: i64) -> Result<bool, Failure> {
        let params = json!([wire::hex(of), wire::quantity(number)]);
        Ok(self.one(Call { method: "eth_getBalance", params }).await?.is_string())
    }

    /// Returns `true` if a transaction's receipt is served; and if those of its whole block are.
    pub(crate) async fn has_receipts(
        &self,
        block: Block,
        transaction: TxHash,
    ) -> (Result<bool, Failure>, Result<bool, Failure>) {
        let single = self.one(Call::receipt(transaction)).await.map(|receipt| receipt.is_object());
        let whole = Call::block_receipts(Span::Block(block.hash));
        let whole = self.send_one::<Vec<IgnoredAny>>(&whole).await;
        (single, whole.map(|receipts| receipts.is_some()))
    }

    /// Returns `true` if an address is a contract. A delegating account (EIP-7702) does not count.
    pub(crate) async fn is_contract(&self, address: Address) -> Result<bool, Failure> {
        let code = wire::output(&self.one(Call::code(address)).await?)?;
        Ok(code.is_some_and(|code| !code.starts_with(&DELEGATION)))
    }

    /// Returns a wallet's balance of a token in its smallest units; `None` if the contract returns
    /// no amount.
    pub(crate) async fn balance(
        &self,
        contract: Address,
        wallet: Address,
    ) -> Result<Option<U256>, Failure> {
        let call = Call::view(contract, &balance_of(wallet), "latest");
        Ok(word(wire::output(&self.one(call).await?)?))
    }

    /// As [`Endpoint::balance`], after a block and for each pair of contract and wallet.
    pub(crate) async fn balances_at(
        &self,
        pairs: &[(Address, Address)],
        number: i64,
    ) -> Result<Vec<Option<U256>>, Failure> {
        let at = wire::quantity(number);
        let call = |(contract, wallet): &(Address, Address)| {
            Call::view(*contract, &balance_of(*wallet), &at)
        };
        let calls: Vec<Call> = pairs.iter().map(call).collect();
        let results = self.call_all(&calls).await?.into_iter();
        results.map(|result| Ok(word(self.masked(wire::output(&result?))?))).collect()
    }

    /// The logs of transfers from our wallets in a range.
    pub(crate) async fn sent(&self, from: i64, to: i64) -> Result<Vec<EventLog>, Failure> {
        let call = |topics: &Value| {
            let topics = json!([topics[0], topics[2], null]);
            log_call(Span::Range { from, to }, &self.contracts, &topics)
        };
        let calls: Vec<Call> = self.topics.iter().map(call).collect();
        let mut found = Vec::new();
        for result in self.call_all(&calls).await? {
            found.extend(self.masked(wire::logs(result?))?);
        }
        Ok(found)
    }
}

fn balance_of(wallet: Address) -> String {
    let wallet = wire::hex(wallet);
    format!("{BALANCE_OF}{:0>64}", wallet.trim_start_matches("0x"))
}

/// Number in a 32-byte word; `None` otherwise.
fn word(output: Option<Vec<u8>>) -> Option<U256> {
    let word = output.filter(|word| word.len() == 32)?;
    Some(U256::from_be_slice(&word))
}
