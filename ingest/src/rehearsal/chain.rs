//! The chain of a run: a development chain, nodes that stayed behind on a fork or are of another chain, and the
//! endpoints in front of them.

use std::net::Ipv4Addr;
use std::sync::Arc;

use alloy_primitives::{Address, TxHash};
use devnet::{BlockId, Devnet, Reorg, TransferCall};
use testkit::faults::{Gate, NodeState, Proxy};

pub(crate) const TOKEN: Address = Address::repeat_byte(0xaa);
/// Token contract that is not configured.
pub(crate) const COUNTERFEIT: Address = Address::repeat_byte(0xab);
pub(crate) const PAYER: Address = Address::repeat_byte(0x77);
pub(crate) const CHAIN_ID: u64 = 31_337;
/// Blocks that are mined at the start.
pub(crate) const HEIGHT: u64 = 12;
/// Maximum blocks that a reorganisation replaces: fewer than confirm the payment of an order.
pub(crate) const REORG_MAX: usize = 3;
pub(crate) const DEPTH: i64 = 4;
const INTERVAL_SECONDS: u64 = 2;

/// Command that is replayed to make an equal chain.
#[derive(Clone)]
enum Command {
    Send(Vec<TransferCall>),
    Mine(u64),
    Reorg(u64, Reorg),
}

pub(crate) struct Chain {
    seed: u64,
    devnet: Devnet,
    foreign: Devnet,
    /// Node on the last fork that the chain left.
    stale: Option<Devnet>,
    commands: Vec<Command>,
    pub(crate) node_state: Arc<NodeState>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) proxies: Vec<Proxy>,
    /// The chain's time.
    pub(crate) now: u64,
    /// All transactions, in the order sent; reorganisations drop or move the latest.
    pub(crate) sent: Vec<TxHash>,
}

fn config(seed: u64, chain_id: u64) -> devnet::Config {
    let token = devnet::Token { address: TOKEN, decimals: 6, symbol: "USDT".to_owned() };
    devnet::Config {
        chain_id,
        seed,
        block_interval_secs: INTERVAL_SECONDS,
        finalized_depth: 6,
        safe_depth: 4,
        tokens: vec![token],
        ..devnet::Config::default()
    }
}

async fn serve(config: devnet::Config) -> Devnet {
    Devnet::start(config, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap()
}

impl Chain {
    pub(crate) async fn start(seed: u64, endpoints: usize) -> Self {
        let (devnet, foreign) =
            (serve(config(seed, CHAIN_ID)).await, serve(config(!seed, 99)).await);
        let node_state = Arc::new(NodeState::of(devnet.url()));
        node_state.set_foreign(foreign.url().to_owned());
        foreign.chain().mine(HEIGHT + 40).unwrap();
        let gate = Arc::new(Gate::default());
        let mut proxies = Vec::new();
        for _ in 0..endpoints {
            proxies.push(Proxy::start(node_state.clone(), Some(gate.clone())).await);
        }
        let now = devnet.chain().head().timestamp;
        let (commands, sent) = (Vec::new(), Vec::new());
        let mut chain = Self {
            seed,
            devnet,
            foreign,
            stale: None,
            commands,
            node_state,
            gate,
            proxies,
            now,
            sent,
        };
        for _ in 0..HEIGHT {
            chain.mine(INTERVAL_SECONDS);
        }
        chain
    }

    /// Returns the URL of the chain itself, not of its proxies.
    pub(crate) fn url(&self) -> &str {
        self.devnet.url()
    }

    pub(crate) fn head(&self) -> BlockId {
        self.devnet.chain().head()
    }

    /// Queues a transaction, on the foreign chain too.
    pub(crate) fn send(&mut self, calls: Vec<TransferCall>) -> TxHash {
        self.commands.push(Command::Send(calls.clone()));
        self.foreign.chain().batch(calls.clone()).unwrap();
        let sent = self.devnet.chain().batch(calls).unwrap();
        self.sent.push(sent);
        sent
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        self.node_state.set_now(self.now.cast_signed());
    }

    pub(crate) fn mine(&mut self, seconds: u64) {
        self.pass(seconds);
        self.commands.push(Command::Mine(self.now));
        let block = self.devnet.chain().mine_at(self.now).unwrap();
        self.foreign.chain().mine(1).unwrap();
        self.note(&[block]);
    }

    fn note(&mut self, blocks: &[BlockId]) {
        let newest = blocks.iter().map(|block| block.timestamp).max().unwrap_or(0);
        self.pass(newest.saturating_sub(self.now));
        for block in blocks {
            self.node_state.mined(block.number, &block.hash.to_string());
        }
    }

    /// Replaces the last blocks. With `leaves_stale`, a node that still shows the old ones stays behind.
    pub(crate) async fn reorg(&mut self, depth: u64, mut reorg: Reorg, leaves_stale: bool) {
        if leaves_stale {
            self.leave_stale().await;
        }
        let chain = self.devnet.chain();
        let reorged = chain.reorg(depth, reorg).or_else(|_| {
            // The transaction may not be in these blocks.
            reorg = Reorg::Keep;
            chain.reorg(depth, reorg)
        });
        self.commands.push(Command::Reorg(depth, reorg));
        self.note(&reorged.unwrap().added);
    }

    /// Leaves a node behind that keeps the present blocks, and mines only on request.
    pub(crate) async fn leave_stale(&mut self) {
        let twin = serve(config(self.seed, CHAIN_ID)).await;
        let chain = twin.chain();
        for command in self.commands.clone() {
            match command {
                Command::Send(calls) => drop(chain.batch(calls).unwrap()),
                Command::Mine(time) => drop(chain.mine_at(time).unwrap()),
                Command::Reorg(depth, reorg) => drop(chain.reorg(depth, reorg).unwrap()),
            }
        }
        assert_eq!(chain.head(), self.head());
        self.node_state.set_stale(Some(twin.url().to_owned()));
        self.stale = Some(twin);
    }

    /// Node on the last fork that the chain left.
    pub(crate) fn stale(&self) -> Option<devnet::Chain> {
        self.stale.as_ref().map(Devnet::chain)
    }
}
