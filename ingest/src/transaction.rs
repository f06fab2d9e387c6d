//! The endpoints' answers about a transaction, for a person who searches for a payment. Nothing is published.

use schemas::{Address, Amount, Stablecoin, TxHash};
use tokio::task::JoinSet;

use crate::endpoints::clients;
use crate::machine::{EventLog, Receipt, TRANSFER_TOPIC};
use crate::{ChainConfig, Error};

/// The answer of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Scheme, host and port: no part of it is a key.
    pub endpoint: String,
    /// `None` if no block of the endpoint has the transaction; the text is the failure.
    pub mined: Result<Option<Mined>, String>,
}

/// A transaction in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mined {
    /// A failed one moved nothing.
    pub succeeded: bool,
    /// Height of its block; `None` without any event.
    pub block: Option<i64>,
    /// Its token movements, in the order of its events.
    pub moved: Vec<Moved>,
}

/// Tokens that a transaction moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub contract: Address,
    /// The coin and the amount; `None` for a contract that is not followed, or an amount beyond [`Amount`].
    pub coin: Option<(Stablecoin, Amount)>,
    pub from: Address,
    pub to: Address,
    /// `true` if the receiver is a configured wallet of the chain.
    pub is_ours: bool,
}

/// Asks all endpoints of a chain side by side, each once.
///
/// # Errors
/// [`Error::Client`].
pub async fn transaction(chain: &ChainConfig, hash: TxHash) -> Result<Vec<Answer>, Error> {
    let mut tasks = JoinSet::new();
    for endpoint in clients(chain)? {
        let chain = chain.clone();
        tasks.spawn(async move {
            let mined = match endpoint.receipt(hash).await {
                Ok(receipt) => Ok(receipt.map(|receipt| mined(&chain, &receipt))),
                Err(failure) => Err(failure.message),
            };
            Answer { endpoint: endpoint.name().to_owned(), mined }
        });
    }
    let mut answers = tasks.join_all().await;
    answers.sort_by(|one, other| one.endpoint.cmp(&other.endpoint));
    Ok(answers)
}

fn mined(chain: &ChainConfig, receipt: &Receipt) -> Mined {
    let logs = if receipt.succeeded { receipt.logs.as_slice() } else { &[] };
    Mined {
        succeeded: receipt.succeeded,
        block: receipt.logs.first().map(|log| log.block_number),
        moved: logs.iter().filter_map(|log| moved(chain, log)).collect(),
    }
}

/// Tokens moved by a Transfer event; `None` for another event.
fn moved(chain: &ChainConfig, log: &EventLog) -> Option<Moved> {
    let [event, from, to] = log.topics.as_slice() else { return None };
    let units: [u8; 32] = log.data.as_slice().try_into().ok()?;
    if *event != TRANSFER_TOPIC {
        return None;
    }
    let family = chain.blockchain.address_family();
    let contract = Address::new(family, log.address);
    let [from, to] = [from, to].map(|word| word.last_chunk().copied().unwrap_or_default());
    let to = Address::new(family, to);
    let known = chain.read_contracts().find(|known| known.address == contract);
    let coin = known.and_then(|known| {
        let value =
            Amount::from_units(alloy_primitives::U256::from_be_bytes(units), known.decimals)?;
        Some((known.stablecoin, value))
    });
    let (from, is_ours) = (Address::new(family, from), chain.wallets.contains(&to));
    Some(Moved { contract, coin, from, to, is_ours })
}
