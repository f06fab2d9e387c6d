//! A node of Tron, over real sockets: what is final and what succeeded is what its own interface says.

use devnet::{Chain, Config, Devnet, Fault, NativeFault, Token, tron};
use schemas::Blockchain;
use tidemark_ingest::{ChainConfig, EndpointConfig, Policy, RpcUrl, Tag};

use crate::world::{TOKEN, World, config, pay};

const TRON: Blockchain = Blockchain::Tron;
const OUTCOMES: &str = "gettransactioninfobyblocknum";
/// Blocks after which a block is solidified, whatever slots are missed here.
const SOLID: u64 = 30;

/// A node of some height.
async fn node(height: u64) -> Devnet {
    let token = Token { address: TOKEN, decimals: 6, symbol: "USDT".to_owned() };
    let chain = Config { block_interval_secs: 3, tokens: vec![token], ..Config::default() };
    let chain = Chain::new(chain).unwrap();
    chain.mine(height).unwrap();
    Devnet::serve_tron(chain, ([127, 0, 0, 1], 0).into()).await.unwrap()
}

fn followed(devnet: &Devnet) -> ChainConfig {
    let url = RpcUrl::parse(devnet.url()).unwrap();
    let policy = Policy::flat(None, Some(Tag::Finalized));
    let endpoints = vec![EndpointConfig::of(TRON, url)];
    ChainConfig { endpoints, policy, reorg_window: 64, ..config(TRON, devnet.url()) }
}

fn confirmed(world: &World) -> i64 {
    let published = world.published.get(&TRON);
    published.and_then(|one| one.progress.as_ref()).map_or(-1, |progress| progress.confirmed)
}

fn height(chain: &Chain) -> i64 {
    i64::try_from(chain.head().number).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_payment_counts_when_every_outcome_of_its_solidified_block_is_there() {
    let devnet = node(40).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    let run = world.run(followed(&devnet));
    world.until_head(TRON, &chain);
    chain.skip_slots(1).unwrap();
    // One that failed pays nothing, even where its log remains.
    chain.fail_transaction(alloy_primitives::B256::new(pay(&chain, 0, 5).0));
    let sent = pay(&chain, 0, 5);
    chain.mine(1).unwrap();
    let paid_at = height(&chain);
    world.until_head(TRON, &chain);
    assert_eq!(world.published(TRON).transactions(), [sent]);
    assert_eq!(chain.request_count(OUTCOMES), 0, "nothing is final yet");
    chain.break_native(Some(NativeFault::FirstOutcomes(1)));
    chain.mine(SOLID).unwrap();
    world.until_head(TRON, &chain);
    world.until("asked for outcomes again", |_| chain.request_count(OUTCOMES) > 2);
    assert!(confirmed(&world) < paid_at);
    chain.break_native(None);
    world.until("confirmed", |world| confirmed(world) >= paid_at);
    run.stop().await;
    assert_eq!(world.published(TRON).transactions(), [sent]);
    assert_eq!(world.published(TRON).progress.as_ref().unwrap().epoch.0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_turns_out_to_have_failed_is_taken_back() {
    let devnet = node(40).await;
    let (chain, mut world) = (devnet.chain(), World::new());
    let run = world.run(followed(&devnet));
    world.until_head(TRON, &chain);
    let (failing, sent) = (pay(&chain, 0, 5), pay(&chain, 1, 6));
    chain.mine(1).unwrap();
    let paid_at = height(&chain);
    world.until_head(TRON, &chain);
    assert_eq!(world.published(TRON).transactions(), [failing, sent]);
    chain.fail_transaction(alloy_primitives::B256::new(failing.0));
    chain.mine(SOLID).unwrap();
    world.until("taken back", |world| world.published(TRON).transactions() == [sent]);
    world.until("confirmed", |world| confirmed(world) >= paid_at);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_busy_node_is_asked_later_and_a_lite_one_by_json_rpc() {
    for is_lite in [false, true] {
        let devnet = node(40).await;
        let (chain, mut world) = (devnet.chain(), World::new());
        if is_lite {
            let text = tron::LITE_NODE;
            chain.break_native(Some(NativeFault::Body { status: 200, text }));
        }
        let run = world.run(followed(&devnet));
        world.until_head(TRON, &chain);
        chain.fail_next(2, Fault::Body { status: 200, text: tron::BUSY });
        if !is_lite {
            let text = tron::SUSPENDED;
            chain.break_native(Some(NativeFault::Body { status: 403, text }));
        }
        let sent = pay(&chain, 0, 5);
        chain.mine(1).unwrap();
        let paid_at = height(&chain);
        chain.mine(SOLID).unwrap();
        if !is_lite {
            let asked = chain.request_count("getblock");
            world.until("suspended", |_| chain.request_count("getblock") > asked);
            chain.break_native(None);
        }
        world.until("confirmed", |world| confirmed(world) >= paid_at);
        run.stop().await;
        assert_eq!(world.published(TRON).transactions(), [sent]);
        assert_eq!(chain.request_count(OUTCOMES) == 0, is_lite);
    }
}
