//! A chain with several endpoints, over real sockets: their choice, and switches without loss.

use std::time::Duration;

use devnet::{Devnet, Reorg};
use schemas::{AlertKind, AlertState, Blockchain, Hash};
use tidemark_ingest::ChainConfig;

use crate::front::Front;
use crate::world::{Run, World, config, devnet, endpoint, pay_in_block};
use crate::{ETH, metrics};

/// A chain followed through these endpoints, in this order.
fn through(blockchain: Blockchain, fronts: &[&Front]) -> ChainConfig {
    let endpoints = fronts.iter().map(|front| endpoint(blockchain, &front.url)).collect();
    let request_timeout = Duration::from_secs(2);
    ChainConfig { endpoints, request_timeout, ..config(blockchain, &fronts[0].url) }
}

async fn pair(height: u64) -> (Devnet, Front, Front) {
    let devnet = devnet(height).await;
    let fronts = (Front::of(devnet.url()).await, Front::of(devnet.url()).await);
    (devnet, fronts.0, fronts.1)
}

/// A chain behind two endpoints, followed up to its head.
async fn followed() -> (Devnet, Front, Front, World, Run) {
    let (devnet, first, second) = pair(20).await;
    let mut world = World::new();
    let run = world.run(through(ETH, &[&first, &second]));
    world.until_head(ETH, &devnet.chain());
    (devnet, first, second, world, run)
}

const LOGS: &str = "eth_getLogs";
const RECEIPTS: &str = "eth_getBlockReceipts";

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn failover_ends_when_the_first_serves_again() {
    for (status, text) in [
        (503, ""),
        (429, "slow down"),
        (200, "<html>"),
        (200, r#"{"id":null,"error":{"code":-32603,"message":"internal error"}}"#),
        (200, r#"{"id":null,"error":{"code":-32000,"message":"header not found"}}"#),
        // A malformed result.
        (200, r#"[{"id":0,"result":{"number":"0x"}}]"#),
    ] {
        let (devnet, first, second, mut world, run) = followed().await;
        assert_eq!(second.asked(""), 0, "the first one works");
        first.fail(status, text);
        let mut sent = vec![pay_in_block(&devnet.chain())];
        world.until_head(ETH, &devnet.chain());
        assert!(second.asked(LOGS) > 0, "{text}");
        first.pass();
        first.asked("");
        world.until("the first one is asked for logs again", |_| {
            sent.push(pay_in_block(&devnet.chain()));
            first.asked(LOGS) > 0
        });
        world.until_head(ETH, &devnet.chain());
        run.stop().await;
        let published = world.published(ETH);
        assert_eq!(published.transactions(), sent);
        assert_eq!(published.epoch(), 0, "a switch is no reorganisation");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_endpoint_that_died_does_not_stop_its_chain() {
    let (mut world, gone, second) = (World::new(), devnet(20).await, devnet(20).await);
    let mut chain = config(ETH, gone.url());
    chain.endpoints.push(endpoint(ETH, second.url()));
    let run = world.run(chain);
    world.until_head(ETH, &gone.chain());
    gone.shutdown().await;
    // The same commands make the same chain.
    let sent = pay_in_block(&second.chain());
    world.until_head(ETH, &second.chain());
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [sent]);
    assert_eq!(world.published(ETH).epoch(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn one_of_another_chain_is_not_used() {
    // The recorder serves the whole test process: no other test follows this chain.
    const CHAIN: Blockchain = Blockchain::Base;
    let render = metrics();
    let (devnet, first, second) = pair(20).await;
    first.answer(|body| {
        let id = r#"{"jsonrpc":"2.0","id":0,"result":"0x5"}"#;
        body.contains("eth_chainId").then(|| (200, id.to_owned()))
    });
    let mut world = World::new();
    let run = world.run(through(CHAIN, &[&first, &second]));
    world.until_head(CHAIN, &devnet.chain());
    let sent = pay_in_block(&devnet.chain());
    world.until_head(CHAIN, &devnet.chain());
    let endpoint = |front: &Front| format!(",endpoint=\"{}\"", front.url);
    for (name, label, value) in [
        ("endpoint_aside", endpoint(&first), 1),
        ("endpoint_in_use", endpoint(&first), 0),
        ("endpoint_in_use", endpoint(&second), 1),
        ("halted", String::new(), 0),
    ] {
        let line = format!("tidemark_ingest_{name}{{blockchain=\"base\"{label}}} {value}");
        assert!(render().contains(&line), "{line}");
    }
    run.stop().await;
    assert_eq!(world.published(CHAIN).transactions(), [sent]);
    assert_eq!(first.asked("eth_getBlockByNumber"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn endpoint_on_a_fork_is_put_aside() {
    let (ours, theirs) = (devnet(20).await, devnet(20).await);
    let (first, forked) = (Front::of(ours.url()).await, Front::of(theirs.url()).await);
    let mut world = World::new();
    let run = world.run(through(ETH, &[&first, &forked]));
    world.until_head(ETH, &ours.chain());
    theirs.chain().reorg(2, Reorg::Keep).unwrap();
    // The endpoint that scanned refuses logs for a while, but it still has its blocks.
    first.answer(|body| body.contains(LOGS).then(|| (429, String::new())));
    let sent = pay_in_block(&ours.chain());
    world.until("the other one is asked", |_| forked.asked("eth_getBlockByNumber") > 0);
    first.pass();
    world.until_head(ETH, &ours.chain());
    run.stop().await;
    assert_eq!(forked.asked(LOGS), 0);
    let published = world.published(ETH);
    assert_eq!(published.transactions(), [sent]);
    assert_eq!(published.epoch(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn reorg_that_all_made_is_believed_after_a_switch() {
    let (devnet, first, _second, mut world, run) = followed().await;
    let sent = pay_in_block(&devnet.chain());
    world.until_head(ETH, &devnet.chain());
    first.fail(429, "");
    devnet.chain().reorg(1, Reorg::Keep).unwrap();
    world.until_head(ETH, &devnet.chain());
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [sent]);
    assert_eq!(world.published(ETH).epoch(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn when_all_fail_the_chain_waits_for_any_of_them() {
    let (devnet, first, second, mut world, run) = followed().await;
    first.fail(503, "");
    second.fail(429, "");
    let sent = pay_in_block(&devnet.chain());
    world.until("the other one is asked", |_| second.asked("") > 0);
    second.pass();
    world.until_head(ETH, &devnet.chain());
    run.stop().await;
    assert_eq!(world.published(ETH).transactions(), [sent]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_one_endpoint_leaves_out_the_other_one_has() {
    let (devnet, first, second, mut world, run) = followed().await;
    first.hide_logs();
    let sent = pay_in_block(&devnet.chain());
    devnet.chain().mine(8).unwrap();
    world.until("found late", |world| world.published(ETH).transactions() == [sent]);
    run.stop().await;
    // Only second checks go to the second endpoint.
    assert!(second.asked("") < first.asked(""));
    let [alert] = &world.alerts()[..] else { panic!("{:?}", world.alerts()) };
    assert_eq!((alert.kind, alert.blockchain), (AlertKind::LateFind, Some(ETH)));
    for part in [sent.to_string(), second.url.clone(), "chains.eth.lag".into()] {
        assert!(alert.message.contains(&part), "{}", alert.message);
    }
}

/// A block that is too large for one endpoint may not be for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn second_that_finds_a_block_too_large_is_put_aside() {
    let (devnet, first, second) = pair(20).await;
    let third = Front::of(devnet.url()).await;
    second.answer(|body| {
        let text = r#"{"id":null,"error":{"code":-32005,"message":"response size is too big"}}"#;
        // Receipts are asked for in place of the logs of a block.
        let is_large = [LOGS, RECEIPTS].iter().any(|method| body.contains(method));
        is_large.then(|| (200, text.to_owned()))
    });
    let mut world = World::new();
    let run = world.run(through(ETH, &[&first, &second, &third]));
    world.until_head(ETH, &devnet.chain());
    let sent = pay_in_block(&devnet.chain());
    devnet.chain().mine(8).unwrap();
    world.until_confirmed(ETH, 21);
    run.stop().await;
    let asked = [(&first, LOGS), (&second, RECEIPTS), (&third, RECEIPTS)];
    let asked = asked.map(|(front, what)| front.asked(what));
    assert!(asked.iter().all(|count| *count > 0), "{asked:?}");
    assert_eq!(world.published(ETH).transactions(), [sent]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn disputed_and_forged_transfer_are_alerts_once() {
    let (devnet, first, second, mut world, run) = followed().await;
    deny(&second);
    let sent = pay_in_block(&devnet.chain());
    devnet.chain().mine(8).unwrap();
    world.until("disputed", |world| !world.alerts().is_empty());
    second.asked("");
    world.until("denied again", |_| second.asked("eth_getTransactionReceipt") > 0);
    assert_eq!(world.published(ETH).transactions(), [sent]);
    let (checks, mut denials) = (3, 0);
    deny(&first);
    world.until("taken back", |world| world.published(ETH).transactions().is_empty());
    world.until("checked again", |_| {
        devnet.chain().mine(1).unwrap();
        denials += second.asked(RECEIPTS);
        denials > checks
    });
    run.stop().await;
    let alerts = world.alerts();
    let said: Vec<_> = alerts.iter().map(|alert| (alert.kind, alert.state)).collect();
    let expected = [
        (AlertKind::DisputedTransfer, AlertState::Raised),
        (AlertKind::ForgedTransfer, AlertState::Raised),
        (AlertKind::DisputedTransfer, AlertState::Resolved),
    ];
    assert_eq!(said, expected, "{alerts:?}");
    assert!(alerts.iter().all(|alert| alert.alert_id.ends_with(&sent.to_string())), "{alerts:?}");
}

/// Makes an endpoint omit all logs, and the transactions of its blocks.
fn deny(front: &Front) {
    front.hide_logs();
    front.unlist();
}

/// A lone endpoint has no witness: its late find must be in the block of the chain.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn lone_endpoints_late_find_must_be_in_its_block() {
    let devnet = devnet(20).await;
    let (front, mut world) = (Front::of(devnet.url()).await, World::new());
    let run = world.run(through(ETH, &[&front]));
    world.until_head(ETH, &devnet.chain());
    front.blind();
    let sent = pay_in_block(&devnet.chain());
    let hash = devnet.chain().head().hash.to_string();
    world.until_head(ETH, &devnet.chain());
    front.pass();
    front.admit();
    front.orphan(&hash, &Hash([7; 32]).to_string());
    front.asked("");
    devnet.chain().mine(8).unwrap();
    let mut asked = 0;
    world.until("asked for its block again", |_| {
        asked += front.asked(RECEIPTS);
        asked > 1
    });
    assert_eq!(world.published(ETH).transactions(), []);
    front.admit();
    world.until("found late", |world| {
        devnet.chain().mine(1).unwrap();
        world.published(ETH).transactions() == [sent]
    });
    run.stop().await;
}
