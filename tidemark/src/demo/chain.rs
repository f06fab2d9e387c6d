//! A chain that the demo's buyer can pay on: built in, or anvil by its JSON-RPC.

use std::time::Duration;

use anyhow::{Context, bail};
use devnet::{Devnet, Reorg};
use runtime::{Clock, SystemClock};
use schemas::StablecoinContract;
use serde_json::{Value, json};

/// Time between two blocks, and between their timestamps.
pub(super) const BLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for a node's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// `transfer(address,uint256)`.
const TRANSFER: &str = "0xa9059cbb";

/// A development chain.
pub(super) enum Chain {
    /// In this process.
    BuiltIn(Devnet),
    /// A node elsewhere; it mines by itself.
    Anvil(Anvil),
}

impl Chain {
    /// URL of its JSON-RPC.
    pub(super) fn url(&self) -> String {
        match self {
            Self::BuiltIn(devnet) => devnet.url().to_owned(),
            Self::Anvil(anvil) => anvil.url.clone(),
        }
    }

    /// Mines a block each second from now on.
    pub(super) async fn keep_mining(&self) -> anyhow::Result<()> {
        match self {
            Self::BuiltIn(devnet) => Ok(devnet.mine_every(BLOCK_INTERVAL)?),
            Self::Anvil(anvil) => {
                anvil.call("evm_setIntervalMining", json!([BLOCK_INTERVAL.as_secs()])).await?;
                Ok(())
            }
        }
    }

    /// Mines no more blocks by itself.
    pub(super) async fn pause_mining(&self) -> anyhow::Result<()> {
        match self {
            Self::BuiltIn(devnet) => devnet.stop_mining(),
            Self::Anvil(anvil) => drop(anvil.call("evm_setIntervalMining", json!([0])).await?),
        }
        Ok(())
    }

    /// Mines some blocks now.
    pub(super) async fn mine(&self, count: u64) -> anyhow::Result<()> {
        match self {
            Self::BuiltIn(devnet) => drop(devnet.chain().mine(count)?),
            Self::Anvil(anvil) => {
                drop(anvil.call("anvil_mine", json!([format!("{count:#x}")])).await?);
            }
        }
        Ok(())
    }

    /// Sends base units of a stablecoin from the buyer's wallet into the next block; returns the transaction.
    pub(super) async fn pay(
        &self,
        contract: &StablecoinContract,
        to: &str,
        units: u128,
    ) -> anyhow::Result<String> {
        match self {
            Self::BuiltIn(devnet) => pay_built_in(&devnet.chain(), contract, to, units),
            Self::Anvil(anvil) => anvil.pay(contract, to, units).await,
        }
    }

    /// Replaces the last two blocks: the transaction moves from the first of them to the second new one.
    pub(super) async fn move_to_next_block(&self, tx: &str) -> anyhow::Result<()> {
        match self {
            Self::BuiltIn(devnet) => {
                devnet.chain().reorg(2, Reorg::Move { tx: tx.parse()?, to_offset: 1 })?;
            }
            Self::Anvil(anvil) => {
                let raw = anvil.call("eth_getRawTransactionByHash", json!([tx])).await?;
                anvil.call("anvil_reorg", json!([2, [[raw, 1]]])).await?;
            }
        }
        Ok(())
    }

    /// Advances the chain's block time. `false` if this chain's time cannot be moved.
    pub(super) async fn jump(&self, seconds: i64) -> anyhow::Result<bool> {
        let Self::BuiltIn(devnet) = self else { return Ok(false) };
        let then = u64::try_from(SystemClock.now().seconds().plus(seconds).0)?;
        devnet.chain().set_next_timestamp(then)?;
        self.mine(4).await?;
        Ok(true)
    }

    /// Ends a chain of this process.
    pub(super) async fn shutdown(self) {
        if let Self::BuiltIn(devnet) = self {
            devnet.shutdown().await;
        }
    }
}

/// Sends base units of a stablecoin on a built-in chain, from the buyer's wallet. Returns the transaction.
pub(super) fn pay_built_in(
    chain: &devnet::Chain,
    contract: &StablecoinContract,
    to: &str,
    units: u128,
) -> anyhow::Result<String> {
    let (token, buyer) = ((*contract.address.bytes()).into(), [0x22; 20].into());
    Ok(chain.transfer(token, buyer, to.parse()?, units.try_into()?)?.to_string())
}

/// An EVM node that signs for its own accounts.
pub(super) struct Anvil {
    url: String,
    http: reqwest::Client,
    buyer: String,
}

impl Anvil {
    /// Asks for an account, and puts a token that only emits at each contract's address.
    pub(super) async fn open(url: &str, contracts: &[StablecoinContract]) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build()?;
        let mut anvil = Self { url: url.to_owned(), http, buyer: String::new() };
        let accounts = anvil.call("eth_accounts", json!([])).await?;
        let first = accounts[0].as_str().context("the node signs for no account: is it anvil?")?;
        anvil.buyer = first.to_owned();
        for contract in contracts {
            let code = devnet::emitter(contract.decimals);
            anvil.call("anvil_setCode", json!([contract.address.to_string(), code])).await?;
        }
        Ok(anvil)
    }

    async fn pay(
        &self,
        contract: &StablecoinContract,
        to: &str,
        units: u128,
    ) -> anyhow::Result<String> {
        let to = to.trim_start_matches("0x").to_lowercase();
        let data = format!("{TRANSFER}{to:0>64}{units:064x}");
        let contract = contract.address.to_string();
        let call = json!([{ "from": self.buyer, "to": contract, "data": data, "gas": "0x40000" }]);
        let tx = self.call("eth_sendTransaction", call).await?;
        Ok(tx.as_str().context("the node gave no hash")?.to_owned())
    }

    async fn call(&self, method: &str, params: Value) -> anyhow::Result<Value> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response = self.http.post(&self.url).json(&body).send().await?;
        let mut answer: Value = response.json().await?;
        match answer.get("error") {
            Some(error) => bail!("{} refuses {method}: {error}", self.url),
            None => Ok(answer["result"].take()),
        }
    }
}
