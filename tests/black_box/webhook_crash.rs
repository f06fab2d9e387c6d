//! Processes that deliver webhooks are killed at random moments, while receivers fail, are silent or lose their
//! replies, and orders change whose webhooks are in flight. The receivers' calls are compared with the log
//! (invariants 9 and 12).

mod shop;
mod verdict;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::Dice;
use testkit::harness::{Client, Installation, Receiver, Tidemark, errand, now};
use testkit::process::text;
use tokio::task::block_in_place;

use crate::crash::live;
use shop::Shop;
use verdict::{ATTEMPTS_MAX, Evidence, judge, unended};

const KILLS: usize = 25;
/// Maximum number of kills, for a slow machine that needs more until [`is_enough`] holds.
const KILLS_MAX: usize = 200;
/// Longest life of one process, in milliseconds.
const LIFE_MAX_MS: usize = 600;
const DISTRIBUTED_KILLS: usize = 25;
const DISTRIBUTED_LIFE_MAX_MS: usize = 3000;
/// Maximum number of new orders during the life of one process; the distributed test allows four times that.
const ORDERS: usize = 5;
/// Longest wait for the end of all events: the attempts take 15 s, and each may be deferred for 65 s.
const END_MAX: Duration = Duration::from_secs(400);

fn variables() -> [(&'static str, String); 2] {
    [
        ("TIDEMARK__WEBHOOKS__MAX_ATTEMPTS", ATTEMPTS_MAX.to_string()),
        ("TIDEMARK__WEBHOOKS__TIMEOUT", "1s".to_owned()),
    ]
}

fn tail(dir: &Path, topic: &str) -> Vec<Value> {
    let output = errand(dir, &["tail", topic, "--until-end"]);
    assert!(output.status.success(), "{}", text(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |line: &str| serde_json::from_str::<Value>(line).unwrap()["value"].take();
    text.lines().map(value).collect()
}

fn evidence(dir: &Path, receiver: &Receiver, kills: &[Instant]) -> Evidence {
    block_in_place(|| Evidence {
        attempts: tail(dir, "webhooks.attempts"),
        dead: tail(dir, "webhooks.dead"),
        dispatched: tail(dir, "webhooks.dispatch"),
        calls: receiver.calls(),
        kills: kills.to_vec(),
    })
}

/// `true` if kills interrupted enough work.
fn is_enough(orders: usize, broken: usize) -> bool {
    orders >= 50 && broken >= 10
}

/// Waits until all events end, and judges them.
async fn close(
    dir: &Path,
    shop: &mut Shop,
    client: &Client,
    receiver: &Receiver,
    kills: &[Instant],
) {
    while !shop.is_done() {
        shop.round(client, false).await.unwrap();
    }
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let is_over =
        |evidence: &Evidence| evidence.dispatched.len() >= shop.events() && unended(evidence) == 0;
    // An event that has not ended by the deadline is a flaw, and named with the others.
    while begun.elapsed() < END_MAX && !is_over(&evidence(dir, receiver, kills)) {
        ticks.tick().await;
    }
    // The topics are read in sequence: consistent only once all is idle.
    let evidence = evidence(dir, receiver, kills);
    let mut flaws = judge(&evidence);
    flaws.extend(shop.check_counters(client, &evidence).await);
    println!("{} orders, {}", shop.orders(), verdict::summary(&evidence));
    assert!(flaws.is_empty(), "{} flaws:\n{}", flaws.len(), flaws.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_kills_keep_webhooks_in_order() {
    let seed = u64::try_from(now()).unwrap();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let receiver = Receiver::start(shop::script).await;
    let (dir, mut shop) = (tempfile::tempdir().unwrap(), Shop::new(receiver.clone()));
    let start = || Tidemark::spawn(dir.path(), &[], "", "", &variables());
    let (mut kills, mut broken) = (Vec::new(), 0);
    for kill in 0..KILLS_MAX {
        if kill >= KILLS && is_enough(shop.orders(), broken) {
            break;
        }
        let mut tidemark = start();
        let client = tidemark.client();
        // Every other process may be killed while it restores.
        if kill % 2 == 0 {
            tidemark.healthy().await;
        }
        let life = Duration::from_millis(dice.below(LIFE_MAX_MS) as u64);
        shop.orders_max = shop.orders() + ORDERS;
        broken += live(life, || tidemark.kill(), async || shop.round(&client, true).await).await;
        receiver.drained().await;
        kills.push(Instant::now());
    }
    assert!(is_enough(shop.orders(), broken), "{} orders, {broken} broken", shop.orders());
    let mut tidemark = start();
    tidemark.healthy().await;
    close(dir.path(), &mut shop, &tidemark.client(), &receiver, &kills).await;
    assert!(tidemark.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn distributed_kills_keep_webhooks_in_order() {
    let seed = u64::try_from(now()).unwrap();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let receiver = Receiver::start(shop::script).await;
    let (dir, mut shop) = (tempfile::tempdir().unwrap(), Shop::new(receiver.clone()));
    let installation = Installation::new(dir.path(), &[], "", "").with_variables(&variables());
    installation.provide();
    let start = |name: &str| installation.start(name, name.split('-').next().unwrap());
    let mut others = ["processor-1", "projector-1", "api-1"].map(start);
    let mut webhooks = ["webhooks-1", "webhooks-2"].map(start);
    for member in others.iter_mut().chain(&mut webhooks) {
        member.ready().await;
    }
    let client = Client::new(&installation.api()).on_servers();
    let mut kills = Vec::new();
    for _ in 0..DISTRIBUTED_KILLS {
        let victim = &mut webhooks[dice.below(2)];
        let life = Duration::from_millis(dice.below(DISTRIBUTED_LIFE_MAX_MS) as u64);
        shop.orders_max = shop.orders() + 4 * ORDERS;
        let name = victim.process.name().to_owned();
        let kill = || {
            // Restarted at once under its name: as a static group member it keeps its partitions.
            let killed = std::mem::replace(victim, start(&name));
            killed.process.kill();
        };
        live(life, kill, async || shop.round(&client, true).await).await;
        kills.push(Instant::now());
    }
    close(dir.path(), &mut shop, &client, &receiver, &kills).await;
    for member in webhooks.into_iter().chain(others) {
        assert!(member.process.stop().await.success());
    }
}
