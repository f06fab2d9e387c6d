//! Several ingest processes share the chains.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use log::{LayeredLog, Log, LogLayer, StageContext, Writer};
use runtime::{Readiness, SystemClock};
use schemas::{Address, Blockchain};
use tidemark_ingest::{ChainConfig, Config, Error};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::metrics;
use crate::world::{World, config, devnet, pay, wallet};

/// First and last chain by partition number: two members have one each.
const FIRST: Blockchain = Blockchain::Eth;
const LAST: Blockchain = Blockchain::Tron;

/// Members, each with a writer that it opened, in order.
type Takeovers = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Log of one process, recording opened writers.
struct Noting {
    member: &'static str,
    takeovers: Takeovers,
}

impl LogLayer for Noting {
    fn writer(&self, log: &dyn Log, name: &str) -> Result<Box<dyn Writer>, log::Error> {
        self.takeovers.lock().unwrap().push((self.member, name.to_owned()));
        log.writer(name)
    }
}

struct Process {
    readiness: Readiness,
    stop: DropGuard,
    thread: JoinHandle<Result<(), Error>>,
}

impl Process {
    fn start(
        world: &World,
        takeovers: &Takeovers,
        member: &'static str,
        chains: Vec<ChainConfig>,
    ) -> Self {
        let noting = Noting { member, takeovers: takeovers.clone() };
        let log = Arc::new(LayeredLog::new(Arc::new(world.log.clone()), noting));
        let stop = CancellationToken::new();
        let context = StageContext {
            log,
            clock: Arc::new(SystemClock),
            member: member.to_owned(),
            handle: Handle::current(),
            stop: stop.clone(),
        };
        let readiness = Readiness::default();
        let shown = readiness.clone();
        let thread =
            std::thread::spawn(move || tidemark_ingest::run(Config { chains }, shown, &context));
        Self { readiness, stop: stop.drop_guard(), thread }
    }

    /// Returns `true` if its details say that it follows a chain; `None` if they lack the chain.
    fn follows(&self, chain: Blockchain) -> Option<bool> {
        let details = self.readiness.details();
        details.iter().find(|one| one["blockchain"] == chain.as_str())?["followed"].as_bool()
    }

    fn stop(self) {
        drop(self.stop);
        self.thread.join().unwrap().unwrap();
    }
}

fn seen(takeovers: &Takeovers) -> Vec<(&'static str, String)> {
    takeovers.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn chains_are_shared_out_and_taken_over_without_a_gap() {
    let (first, last) = (devnet(20).await, devnet(20).await);
    let mut world = World::new();
    let takeovers = Takeovers::default();
    let chains = || vec![config(FIRST, first.url()), config(LAST, last.url())];
    let a = Process::start(&world, &takeovers, "a", chains());
    world.until_head(FIRST, &first.chain());
    world.until_head(LAST, &last.chain());
    let b = Process::start(&world, &takeovers, "b", chains());
    let taken = |member, chain| (member, format!("ingest-{chain}"));
    world.until("b to take the last chain", |_| seen(&takeovers).len() == 3);
    assert_eq!(seen(&takeovers)[2], taken("b", LAST));
    for (process, of_first) in [(&a, true), (&b, false)] {
        let shown = (process.follows(FIRST), process.follows(LAST));
        assert_eq!(shown, (Some(of_first), Some(!of_first)));
    }
    let mine = |world: &mut World, blocks| {
        for (blockchain, devnet) in [(FIRST, &first), (LAST, &last)] {
            world.mine(blockchain, &devnet.chain(), blocks);
        }
    };
    let mut sent = Vec::new();
    for units in 1..4 {
        sent.push((pay(&first.chain(), 0, units), pay(&last.chain(), 0, units)));
        mine(&mut world, 1);
    }
    // Blocks mined between the two owners are scanned by the new one.
    a.stop();
    sent.push((pay(&first.chain(), 1, 9), pay(&last.chain(), 1, 9)));
    mine(&mut world, 2);
    assert_eq!(seen(&takeovers).len(), 4, "{takeovers:?}");
    assert_eq!(seen(&takeovers)[3], taken("b", FIRST));
    b.stop();
    let (of_first, of_last): (Vec<_>, Vec<_>) = sent.into_iter().unzip();
    assert_eq!(world.published(FIRST).transactions(), of_first);
    assert_eq!(world.published(LAST).transactions(), of_last);
}

/// A chain has gauges, except `followed`, only while this process follows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_chain_has_series_while_it_is_followed() {
    // The recorder serves the whole test process: no other test follows this chain.
    const CHAIN: Blockchain = Blockchain::Arb;
    let render = metrics();
    let devnet = devnet(20).await;
    let mut world = World::new();
    let takeovers = Takeovers::default();
    let series = || -> Vec<String> {
        let text = render();
        // Counters and histograms are never withdrawn.
        let counts = ["_total{", "_bucket{", "_sum{", "_count{"];
        let of_chain = |line: &&str| {
            line.contains("{blockchain=\"arb\"") && !counts.iter().any(|count| line.contains(count))
        };
        text.lines().filter(of_chain).map(str::to_owned).collect()
    };
    let process = Process::start(&world, &takeovers, "a", vec![config(CHAIN, devnet.url())]);
    world.until_head(CHAIN, &devnet.chain());
    let time = devnet.chain().head().timestamp;
    let block =
        format!("tidemark_ingest_last_block_timestamp_seconds{{blockchain=\"arb\"}} {time}");
    let halted = "tidemark_ingest_halted{blockchain=\"arb\"} 0".to_owned();
    let followed = |value| format!("tidemark_ingest_followed{{blockchain=\"arb\"}} {value}");
    world.until("the last block to be shown", |_| series().contains(&block));
    assert!(series().contains(&halted) && series().contains(&followed(1)), "{:?}", series());
    process.stop();
    assert_eq!(series(), [followed(0)], "nothing of it is claimed any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn fenced_chain_that_is_still_ours_is_resumed() {
    let (first, last) = (devnet(20).await, devnet(20).await);
    let mut world = World::new();
    let takeovers = Takeovers::default();
    let chains = vec![config(FIRST, first.url()), config(LAST, last.url())];
    let process = Process::start(&world, &takeovers, "a", chains);
    // Wait for both: a chain followed for the first time begins at its head, so earlier payments
    // would be missed.
    world.until_head(FIRST, &first.chain());
    world.until_head(LAST, &last.chain());
    drop(world.log.writer(&format!("ingest-{FIRST}")).unwrap());
    first.chain().mine(1).unwrap();
    // The other chain is unaffected.
    let sent = pay(&last.chain(), 0, 5);
    world.mine(LAST, &last.chain(), 1);
    assert_eq!(world.published(LAST).transactions(), [sent]);
    world.until_head(FIRST, &first.chain());
    assert_eq!(seen(&takeovers).len(), 3, "{takeovers:?}");
    process.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_chain_that_is_not_configured_here_stops_nothing() {
    let first = devnet(20).await;
    let mut world = World::new();
    let takeovers = Takeovers::default();
    let b = Process::start(&world, &takeovers, "b", Vec::new());
    let a = Process::start(&world, &takeovers, "a", vec![config(FIRST, first.url())]);
    world.until_head(FIRST, &first.chain());
    a.stop();
    // Now the chain is assigned to b, which has no configuration for it.
    let c = Process::start(&world, &takeovers, "c", vec![config(FIRST, first.url())]);
    b.stop();
    world.mine(FIRST, &first.chain(), 1);
    assert_eq!(seen(&takeovers).last().unwrap().0, "c");
    c.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_is_watched_may_not_leave_the_configuration() {
    let first = devnet(20).await;
    let mut world = World::new();
    let takeovers = Takeovers::default();
    let whole = config(FIRST, first.url());
    let a = Process::start(&world, &takeovers, "a", vec![whole.clone()]);
    world.until_head(FIRST, &first.chain());
    a.stop();
    let mut less = whole.clone();
    less.wallets.truncate(1);
    for (chains, part) in [(vec![less], "wallet 0x"), (Vec::new(), "section [chains.eth]")] {
        let process = Process::start(&world, &takeovers, "b", chains);
        world.until("the process to end", |_| process.thread.is_finished());
        let ended = process.thread.join().unwrap();
        let text = ended.unwrap_err().to_string();
        assert!(text.contains(part) && text.contains("`retired = true`"), "{text}");
    }
    // An added wallet is seen from the next block on.
    let mut more = whole;
    let added = Address::new(FIRST.address_family(), wallet(7).0.0);
    more.wallets.push(added);
    let c = Process::start(&world, &takeovers, "c", vec![more]);
    world.until("the wallet is watched", |world| {
        let progress = world.published(FIRST).progress.as_ref();
        progress.is_some_and(|p| p.watched.iter().any(|watch| watch.wallet_address == added))
    });
    let sent = pay(&first.chain(), 7, 5);
    world.mine(FIRST, &first.chain(), 1);
    assert_eq!(world.published(FIRST).transactions(), [sent]);
    c.stop();
}
