//! Check of Tron's native interface for finality.

use schemas::Blockchain;
use schemas::record::Block;
use serde_json::{Value, json};

use super::{Doctor, Level};
use crate::machine::{Ask, Outcome, Point, Proof};
use crate::rpc::Failure;

const ABSENT: &str = "there is none: receipts of JSON-RPC prove final payments, and show some failed ones as successful; set \
                      `native` of the endpoint to an address that serves /walletsolidity/";

impl Doctor {
    /// Asks Tron's native interface for the solidified block, and for the outcome of a transaction in it or not far
    /// below.
    pub(super) async fn native(&mut self) {
        if self.chain.blockchain != Blockchain::Tron {
            return;
        }
        let (level, text, value) = match self.proven().await {
            Ok(_) if !self.endpoint.has_native() => {
                (Level::Warning, ABSENT.to_owned(), Value::Null)
            }
            Ok((Some(block), is_proven)) => {
                let number = block.number;
                let (level, outcome) = match is_proven {
                    Some(true) => (Level::Fine, "outcomes are served"),
                    Some(false) => {
                        (Level::Failure, "an outcome is missing: no payment would be confirmed")
                    }
                    None => {
                        (Level::Fine, "outcomes not tried: no transaction was found in it or below")
                    }
                };
                let value = json!({ "solidified": number, "outcomes": is_proven });
                (level, format!("solidified block {number}, {outcome}"), value)
            }
            Ok((None, _)) => {
                (Level::Failure, "there is no solidified block".to_owned(), Value::Null)
            }
            Err(failure) => {
                let text = format!("no answer ({failure}): no payment would be confirmed");
                (Level::Failure, text, Value::Null)
            }
        };
        self.note("native", level, text, value);
    }

    /// The solidified block, and `true` if the outcome of a transaction is served; `None` if no transaction was found.
    async fn proven(&self) -> Result<(Option<Block>, Option<bool>), Failure> {
        let ask = Ask { blocks: vec![Point::Finalized], ..Ask::default() };
        let solidified = self.endpoint.fetch(&ask).await?.blocks.into_iter().next().flatten();
        let Some(solidified) = solidified.map(|header| header.block) else {
            return Ok((None, None));
        };
        let Some((block, transaction)) = self.newest_transaction(solidified.number).await else {
            return Ok((Some(solidified), None));
        };
        let (number, block_hash) = (block.number, block.hash);
        let outcome = Outcome { transaction, number, block_hash, is_final: true };
        let ask = Ask { receipts: vec![outcome], ..Ask::default() };
        let receipts = self.endpoint.fetch(&ask).await?.receipts;
        let receipt = receipts.first().and_then(Proof::receipt);
        Ok((
            Some(solidified),
            Some(receipt.is_some_and(|receipt| receipt.block_hash == block.hash)),
        ))
    }
}
