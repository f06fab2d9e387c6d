//! A real EVM node, with a contract that emits the standard Transfer event at USDT's address.

use std::process::{Command, Stdio};

use schemas::{Blockchain, Stablecoin, StablecoinContract, bridged_contracts, stablecoin_contract};
use serde_json::{Value, json};
use xtask::Guard;

use super::{eventually, free_port};
use crate::process::{Killed, given};

/// USDT on Ethereum.
pub const USDT: &str = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
/// The same token, as the configuration of a `devnet` takes it.
pub fn usdt() -> devnet::Token {
    let address = USDT.parse().expect("an address");
    devnet::Token { address, decimals: 6, symbol: "USDT".into() }
}

/// The first of the accounts that anvil unlocks.
pub const BUYER: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

/// A running anvil that mines only when asked to.
#[derive(Debug)]
pub struct Anvil {
    _child: Killed,
    /// Declared after the child, so that it is dropped once the child has ended.
    _guard: Guard,
    url: String,
    /// Address of the contract that emits transfers.
    token: String,
    http: reqwest::Client,
    /// Folder in which anvil keeps the states of blocks.
    _states: tempfile::TempDir,
}

/// USDT of a chain: native if there is one, else a bridged one.
pub fn usdt_of(blockchain: Blockchain) -> StablecoinContract {
    let bridged = || {
        let mut bridged = bridged_contracts(blockchain).map(|(_, contract)| contract);
        bridged.find(|contract| contract.stablecoin == Stablecoin::Usdt)
    };
    let contract = stablecoin_contract(blockchain, Stablecoin::Usdt).or_else(bridged);
    *contract.expect("a chain with USDT")
}

/// Slots of an epoch: `safe` is one epoch behind the head and `finalized` two.
const EPOCH_SLOTS: u64 = 32;

impl Anvil {
    pub async fn start() -> Self {
        Self::start_as(1).await
    }

    /// Starts it as the chain with this id, which has USDT.
    pub async fn start_as(chain_id: u64) -> Self {
        let chain = Blockchain::ALL.iter().find(|chain| chain.chain_id() == chain_id);
        Self::pose_as(*chain.expect("a known chain"), EPOCH_SLOTS).await
    }

    /// Starts it as a chain, with its USDT.
    pub async fn pose_as(blockchain: Blockchain, epoch_slots: u64) -> Self {
        Self::run(blockchain.chain_id(), usdt_of(blockchain), epoch_slots).await
    }

    /// Starts it as a test network with this id, and Ethereum's USDT.
    pub async fn start_test(chain_id: u64) -> Self {
        Self::run(chain_id, usdt_of(Blockchain::Eth), EPOCH_SLOTS).await
    }

    async fn run(chain_id: u64, usdt: StablecoinContract, epoch_slots: u64) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let (port, states) = (free_port(), tempfile::tempdir().expect("a directory"));
        let child = Command::new(given("TIDEMARK_TEST_ANVIL"))
            .arg("--cache-path")
            .arg(states.path())
            .args(["--port", &port.to_string(), "--chain-id", &chain_id.to_string()])
            .args(["--no-mining", "--silent"])
            .args(["--slots-in-an-epoch", &epoch_slots.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("anvil starts");
        let guard = Guard::of(child.id()).expect("a guard");
        let http = reqwest::Client::builder().no_proxy().build().expect("an HTTP client");
        let (url, token) = (format!("http://127.0.0.1:{port}"), usdt.address.to_string());
        let child = Killed(child);
        let anvil = Self { _child: child, _guard: guard, url, token, http, _states: states };
        eventually("anvil to answer", || async {
            anvil.try_call("eth_chainId", json!([])).await.ok()
        })
        .await;
        let code = devnet::emitter(usdt.decimals);
        anvil.call("anvil_setCode", json!([anvil.token, code])).await;
        anvil
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends transfers in one transaction, into the pool, and returns its hash.
    pub async fn transfer(&self, pairs: &[(&str, u128)]) -> String {
        let mut data = String::from("0xa9059cbb");
        for (to, units) in pairs {
            let to = to.trim_start_matches("0x").to_lowercase();
            data.push_str(&format!("{to:0>64}{units:064x}"));
        }
        let call = json!([{ "from": BUYER, "to": self.token, "data": data, "gas": "0x200000" }]);
        let hash = self.call("eth_sendTransaction", call).await;
        hash.as_str().expect("a hash").to_owned()
    }

    /// Mines blocks that are this many seconds apart.
    pub async fn mine_apart(&self, count: u64, seconds: u64) {
        let params = [count, seconds].map(|number| format!("{number:#x}"));
        self.call("anvil_mine", json!(params)).await;
    }

    pub async fn mine(&self, count: u64) {
        self.call("anvil_mine", json!([format!("{count:#x}")])).await;
    }

    pub async fn call(&self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    async fn try_call(&self, method: &str, params: Value) -> Result<Value, String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let response =
            self.http.post(&self.url).json(&body).send().await.map_err(|e| e.to_string())?;
        let answer: Value = response.json().await.map_err(|e| e.to_string())?;
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["result"].clone()),
        }
    }
}
