//! A chain that the demo's buyer can pay on: built in, or anvil by its JSON-RPC.

use std::time::Duration;

use anyhow::{Context, bail};
use api::{TestBuyer, TestPayment};
use async_trait::async_trait;
use devnet::{Devnet, Reorg};
use runtime::{Clock, SystemClock};
use schemas::{Amount, Blockchain, Stablecoin, StablecoinContract, stablecoin_contract};
use serde_json::{Value, json};

use super::shop::Due;

/// Time between two blocks, and between their timestamps.
pub(super) const BLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for a node's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// `transfer(address,uint256)`.
const TRANSFER: &str = "0xa9059cbb";

pub(super) enum Chain {
    /// In this process.
    BuiltIn(Devnet),
    /// A node elsewhere, controlled by its JSON-RPC.
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
            Self::BuiltIn(devnet) => devnet.mine_every(BLOCK_INTERVAL)?,
            Self::Anvil(anvil) => anvil.set_mining(BLOCK_INTERVAL.as_secs()).await?,
        }
        Ok(())
    }

    /// Ends the mining of a block each second.
    pub(super) async fn pause_mining(&self) -> anyhow::Result<()> {
        match self {
            Self::BuiltIn(devnet) => devnet.stop_mining(),
            Self::Anvil(anvil) => anvil.set_mining(0).await?,
        }
        Ok(())
    }

    pub(super) async fn mine(&self, count: u64) -> anyhow::Result<()> {
        match self {
            Self::BuiltIn(devnet) => drop(devnet.chain().mine(count)?),
            Self::Anvil(anvil) => {
                drop(anvil.call("anvil_mine", json!([format!("{count:#x}")])).await?);
            }
        }
        Ok(())
    }

    /// Sends an amount of USDT from the buyer's wallet to that of `due`; the next block has the transfer. Returns the
    /// transaction's hash.
    ///
    /// # Errors
    /// The node refuses, or the amount has more decimals than the stablecoin.
    pub(super) async fn pay(
        &self,
        blockchain: Blockchain,
        due: &Due,
        amount: &str,
    ) -> anyhow::Result<String> {
        let contract =
            stablecoin_contract(blockchain, Stablecoin::Usdt).context("the chain has USDT")?;
        let units = Amount::parse(amount)?.to_units(contract.decimals);
        let units = units.context("finer than the stablecoin")?;
        match self {
            Self::BuiltIn(devnet) => pay_built_in(&devnet.chain(), contract, &due.wallet, units),
            Self::Anvil(anvil) => anvil.pay(contract, &due.wallet, units).await,
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

    /// Mines four blocks with times from `seconds` after the present on. Returns `false`, without effect, on anvil.
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

/// Sends base units of a stablecoin on a built-in chain, from the buyer's wallet. Returns the transaction's hash.
fn pay_built_in(
    chain: &devnet::Chain,
    contract: &StablecoinContract,
    to: &str,
    units: u128,
) -> anyhow::Result<String> {
    let (token, buyer) = ((*contract.address.bytes()).into(), [0x22; 20].into());
    Ok(chain.transfer(token, buyer, to.parse()?, units.try_into()?)?.to_string())
}

/// The button of the checkout page that pays on the demo's own chains. Only the demo has it.
pub(super) struct Button(pub(super) Vec<(Blockchain, devnet::Chain)>);

#[async_trait]
impl TestBuyer for Button {
    async fn pay(&self, payment: TestPayment) -> Result<(), String> {
        let TestPayment { blockchain, contract, to, units } = payment;
        let found = self.0.iter().find(|(of, _)| *of == blockchain);
        let (_, chain) = found.ok_or_else(|| format!("the demo has no chain {blockchain}"))?;
        let paid = pay_built_in(chain, &contract, &to.to_string(), units);
        paid.map(drop).map_err(|error| format!("{error:#}"))
    }
}

/// An EVM node that signs for its own accounts.
pub(super) struct Anvil {
    url: String,
    http: reqwest::Client,
    buyer: String,
}

impl Anvil {
    /// Takes the node's first account as the buyer, and sets the code at each contract's address to a token that only
    /// emits Transfer logs.
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

    /// Makes the node mine a block every `seconds`; 0 stops it.
    async fn set_mining(&self, seconds: u64) -> anyhow::Result<()> {
        self.call("evm_setIntervalMining", json!([seconds])).await.map(drop)
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
