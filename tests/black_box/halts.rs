//! Repairs and stops by an operator on Kafka, with ingest running or down. A chain that orphaned a final block is
//! rewound, even after its topic was deleted and recreated; transfers omitted by an endpoint are found.

use alloy_primitives::TxHash;
use devnet::{Chain as Node, Devnet, Reorg};
use log::config::KafkaConfig;
use log::kafka::admin;
use schemas::Topic;
use serde_json::{Value, json};
use testkit::harness::{
    Chain, Client, Installation, LAYOUT, Member, WALLET, WEBHOOK, eventually, evm_node, mine_now,
    mine_until_order_is, mining_until, pay_order,
};
use testkit::log_suite::on_kafka;

const STAGES: [&str; 4] = ["ingest", "processor", "projector", "api"];

struct World {
    node: Node,
    _devnet: Devnet,
    installation: Installation,
    members: Vec<Member>,
    client: Client,
    _dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let devnet = evm_node(1, 600, 60).await;
        let (node, dir) = (devnet.chain(), tempfile::tempdir().unwrap());
        let keys = "confirmations = 3\nreorg_window = 8\n";
        let chains = [Chain::of("eth", &devnet, WALLET, keys)];
        let installation = Installation::new(dir.path(), &chains, WEBHOOK, "");
        installation.provide();
        let client = Client::new(&installation.api()).on_servers();
        let members = Vec::new();
        let mut world = Self { node, _devnet: devnet, installation, members, client, _dir: dir };
        world.run().await;
        world
    }

    async fn run(&mut self) {
        self.members = STAGES.map(|stage| self.installation.start(stage, stage)).into();
        for member in &mut self.members {
            member.ready().await;
        }
        self.client.offers(&["eth"]).await;
    }

    async fn stop(&mut self) {
        for member in std::mem::take(&mut self.members) {
            assert!(member.process.stop().await.success());
        }
    }

    /// Mines a block at the present time.
    fn mine(&self) {
        mine_now(&self.node);
    }

    async fn order(&self, reference: &str) -> String {
        self.client.order(reference, "10.00", "eth", WEBHOOK).await
    }

    /// Queues an order's payment.
    async fn pay(&self, order: &str) -> TxHash {
        pay_order(&self.client, &self.node, order).await
    }

    /// Mines until an order has a status.
    async fn ended(&self, order: &str, status: &str) {
        mine_until_order_is(status, &self.client, &self.node, order).await;
    }

    async fn is_seen(&self, transaction: TxHash) {
        let hash = transaction.to_string();
        self.client.transfer_with_status(WALLET, &hash, "waiting_for_confirmation").await;
    }

    /// Mines until a block is final.
    async fn is_final(&self, number: u64) {
        mining_until(&format!("block {number} to be final"), &self.node, async || {
            let status: Value =
                serde_json::from_str(&self.errand(&["chain", "status", "--json"])).ok()?;
            (status[0]["finalized"].as_u64()? > number).then_some(())
        })
        .await;
    }

    /// Reorganises final blocks, dropping a transaction; waits until the chain is halted.
    async fn halt(&self, fork: u64, without: TxHash) {
        self.node.reorg(self.node.head().number - fork, Reorg::Drop(without)).unwrap();
        eventually("the chain to be halted", || async {
            self.errand(&["chain", "status"]).contains("HALTED").then_some(())
        })
        .await;
    }

    fn errand(&self, arguments: &[&str]) -> String {
        self.installation.exits(arguments, 0)
    }

    /// Deletes the topic with the records of all chains.
    fn lose_records(&self) {
        let config = on_kafka::config(&on_kafka::brokers());
        let config = KafkaConfig { prefix: self.installation.prefix(), ..config };
        admin::delete_topics(&config, &LAYOUT, &[Topic::TransfersRaw]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_is_taken_back_with_and_without_its_records() {
    let mut world = World::start().await;
    let fork = world.node.head().number;
    let (first, open, gone) =
        (world.order("A-1").await, world.order("B-1").await, world.order("C-1").await);
    world.pay(&first).await;
    world.ended(&first, "paid").await;
    world.is_final(fork).await;
    let left = world.pay(&gone).await;
    world.mine();
    world.is_seen(left).await;
    world.halt(fork, left).await;
    world.pay(&open).await;
    world.mine();
    let height = fork.to_string();
    let written = world.errand(&["chain", "rewind", "eth", &height, "--yes"]);
    assert!(written.contains("takes back 2 transfers, 1 of them confirmed"), "{written}");
    // Ingest continues by itself.
    world.ended(&open, "paid").await;

    let fork = world.node.head().number;
    let (late, lost) = (world.order("D-1").await, world.order("E-1").await);
    world.is_final(fork).await;
    let left = world.pay(&lost).await;
    world.mine();
    world.is_seen(left).await;
    world.halt(fork, left).await;
    world.stop().await;
    world.lose_records();
    // The controller responds before the broker deletes the topic.
    eventually("the topic to be gone", || async {
        let check = world.installation.errand(&["topics", "check"]);
        (!check.status.success()).then_some(())
    })
    .await;
    eventually("the topic to be made anew", || async {
        let output = world.installation.errand(&["topics", "create"]);
        let check = world.installation.errand(&["topics", "check"]);
        (output.status.success() && check.status.success()).then_some(())
    })
    .await;
    let height = fork.to_string();
    let written = world.errand(&["chain", "rewind", "eth", &height, "--yes"]);
    assert!(written.contains("the records of the chain are gone"), "{written}");
    world.run().await;
    world.pay(&late).await;
    world.ended(&late, "paid").await;
    for order in [&gone, &lost] {
        world.client.order_with_status(order, "pending").await;
    }
    let left = left.to_string();
    world.client.transfer_with_status(WALLET, &left, "failed_to_confirm").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rescan_publishes_beside_a_running_ingest() {
    let mut world = World::start().await;
    let (order, next) = (world.order("A-1").await, world.order("B-1").await);
    // The node's logs lag beyond any check, and no receipts show the transfer.
    world.node.lag_logs(1_000_000);
    world.node.refuse_block_receipts();
    let transaction = world.pay(&order).await.to_string();
    world.mine();
    let block = world.node.head().number;
    world.is_final(block).await;
    let (from, to) = (block.to_string(), (block + 2).to_string());
    let nothing = world.errand(&["rescan", "eth", &from, &to, "--yes"]);
    assert!(nothing.contains("0 transfers are missing, 0 more are not proven"), "{nothing}");
    world.client.order_with_status(&order, "pending").await;

    world.node.clear_faults();
    let found = world.errand(&["rescan", "eth", &from, &to, "--yes"]);
    assert!(found.contains("written: 1 transfers"), "{found}");
    world.client.order_with_status(&order, "paid").await;
    let again = world.errand(&["rescan", "eth", &from, &to, "--yes"]);
    assert!(again.contains("0 transfers are missing, 0 more are not proven"), "{again}");
    // Ingest, fenced by the command's step, continues by itself.
    world.pay(&next).await;
    world.ended(&next, "paid").await;
    world.client.transfer_with_status(WALLET, &transaction, "matched").await;
    let list = world.client.admin(&format!("/wallets/{WALLET}/transfers")).await.unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    world.stop().await;
}

/// While ingest is down the lanes still receive the command, and report it at once.
#[tokio::test(flavor = "multi_thread")]
async fn payments_are_stopped_while_ingest_is_down() {
    let mut world = World::start().await;
    let (first, second) = (world.order("A-1").await, world.order("B-1").await);
    let ingest = world.members.remove(0);
    assert!(ingest.process.stop().await.success());
    let written = world.errand(&["stop", "USDT"]);
    assert!(written.contains("USDT stopped: written"), "{written}");
    eventually("the stop to be in force", || async {
        world.errand(&["stop"]).contains("eth: USDT is stopped").then_some(())
    })
    .await;
    let ingest = world.installation.start("ingest", "ingest");
    world.members.push(ingest);
    let stopped = world.pay(&first).await.to_string();
    let found = mining_until("the transfer to be unknown", &world.node, async || {
        let path = format!("/wallets/{WALLET}/transfers?status=no_matched_deposit");
        let list = world.client.admin(&path).await.ok()?;
        list.as_array()?.iter().find(|transfer| transfer["txn_hash"] == stopped).cloned()
    })
    .await;
    assert_eq!(
        (&found["reason"], &found["candidate_order_id"]),
        (&json!("stopped"), &json!(first))
    );
    world.errand(&["stop", "USDT", "--end"]);
    eventually("the stop to end", || async {
        world.errand(&["stop"]).contains("nothing is stopped").then_some(())
    })
    .await;
    world.pay(&second).await;
    world.ended(&second, "paid").await;
    world.client.order_with_status(&first, "pending").await;
    world.stop().await;
}
