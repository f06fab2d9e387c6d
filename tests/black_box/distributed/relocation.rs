//! An installation moves from embedded back ends to servers and back, with orders that are paid before, during and
//! after each move.

use std::path::Path;
use std::process::Output;

use log::config::KafkaConfig;
use log::kafka::admin;
use schemas::Layout;
use testkit::harness::{Client, Cluster, Installation, Tidemark, errand, eventually, exits, now};
use testkit::log_suite::on_kafka;
use testkit::relocation::{SETTINGS, Shop, WAITING, assert_attempts};

/// Number of orders that move; `TIDEMARK_TEST_MOVED` overrides it.
const MOVED: usize = 200;
/// Kinds of orders, by when they are paid.
const KINDS: usize = 6;
const EMBEDDED: &str = "[log]\nlanes = 1\n";
const LANES: u32 = 2;
const ORDERS: u32 = 6;
const WEBHOOKS: u32 = 3;

fn moved() -> usize {
    let given = std::env::var_os("TIDEMARK_TEST_MOVED").and_then(|text| text.into_string().ok());
    given.map_or(MOVED, |text| text.parse().unwrap())
}

async fn embedded(shop: &Shop, dir: &Path) -> Tidemark {
    let more = format!("{SETTINGS}{EMBEDDED}");
    Tidemark::start(dir, &shop.chains(), &shop.url(), &more).await
}

/// Mines until a reconciliation of everything agrees.
async fn agrees(shop: &Shop, reconcile: impl Fn(&[&str]) -> Output) {
    let (from, to) = ((now() - 24 * 3600).to_string(), (now() + 7200).to_string());
    let arguments = ["reconcile", "--from", &from, "--to", &to];
    eventually("the reconciliation", || async {
        shop.mine(2);
        reconcile(&arguments).status.success().then_some(())
    })
    .await;
}

/// Checks that processes wait while an import into their topics is incomplete.
async fn is_waited_for(installation: &Installation) {
    let brokers = on_kafka::brokers();
    let config = KafkaConfig { prefix: installation.prefix(), ..on_kafka::config(&brokers) };
    let layout = Layout { lanes: LANES, orders: ORDERS, webhooks: WEBHOOKS };
    tokio::task::spawn_blocking(move || admin::begin_import(&config, &layout).unwrap())
        .await
        .unwrap();
    let mut waiting = installation.start("early", "webhooks");
    let is_import =
        |lines: &[String]| lines.iter().any(|line| line.contains("an import into them"));
    waiting.waiting_for("the import", is_import).await;
    assert!(waiting.process.stop().await.success());
    for inspection in [["doctor"].as_slice(), &["topics", "check"]] {
        let found = installation.exits(inspection, 1);
        assert!(found.contains("an import into them"), "{found}");
    }
}

/// Imports an export on servers; returns the new installation.
async fn arrive(installation: Installation, from: &str) -> Installation {
    installation.exits(&["schema", "migrate"], 0);
    is_waited_for(&installation).await;
    let printed = installation.exits(&["import", from], 0);
    let (_, continues) = printed.split_once("continues = ").expect(&printed);
    let line = format!("backend = \"kafka\"\ncontinues = {}\n", continues.trim());
    let again = installation.exits(&["import", from], 1);
    assert!(again.contains("the tables have this installation already"), "{again}");

    // Without `continues` the tables are refused.
    let logged = installation.start("foreign", "projector").process.refused().await;
    assert!(logged.contains("set log.continues as `tidemark import` said"), "{logged}");
    installation.changed("continued", "backend = \"kafka\"\n", &line)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_moves_to_servers_and_back() {
    let count = moved();
    let (mut shop, part) = (Shop::open().await, count / KINDS);
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [old, new, back] = dirs.each_ref().map(|dir| dir.path());
    let tidemark = embedded(&shop, old).await;
    let client = tidemark.client();
    let stray = shop.begin(&client, KINDS * part + 2, part).await;
    let orders = shop.orders.clone();
    let kinds: Vec<_> = orders.chunks(part).collect();
    shop.pay(kinds[1]);
    assert!(tidemark.stop().await.success());
    shop.returns().await;
    shop.pay(kinds[2]);

    let export = old.join("moved").display().to_string();
    exits(old, &["export", &export], 0);
    let layout = format!(
        "lanes = {LANES}\norder_partitions = {ORDERS}\nwebhook_partitions = {WEBHOOKS}\n{SETTINGS}"
    );
    let installation = Installation::new(new, &shop.chains(), &shop.url(), &layout);
    let installation = arrive(installation, &export).await;
    let state = new.join("state").display().to_string();
    installation.exits(&["replay", "--now", "--save-state", &state], 0);
    let cluster = Cluster::run(installation.clone()).await;
    let client = cluster.client();
    shop.pay(kinds[3]);
    shop.mine(4);
    for kind in &kinds[1..4] {
        shop.are_paid(&client, kind).await;
    }
    shop.are_announced(&orders[..4 * part]).await;
    shop.are_known(&client).await;
    let spare: &[_; 2] = orders[KINDS * part..].try_into().unwrap();
    shop.is_open(&client, &spare[0]).await;
    shop.attach(&client, &stray, spare).await;
    shop.create(&client, KINDS * part + 4).await;
    agrees(&shop, |arguments| installation.errand(arguments)).await;
    let running = installation.exits(&["export", &new.join("busy").display().to_string()], 1);
    assert!(running.contains("processes run: "), "{running}");
    cluster.stop().await;
    shop.drained().await;
    shop.pay(kinds[4]);
    installation.exits(&["replay", "--state", &state], 0);
    installation.exits(&["tables", "verify"], 0);

    let export = new.join("moved").display().to_string();
    installation.exits(&["export", &export], 0);
    let config = std::fs::read_to_string(old.join("tidemark.toml")).unwrap();
    let config = config.replace(&old.display().to_string(), &back.display().to_string());
    std::fs::write(back.join("tidemark.toml"), config).unwrap();
    exits(back, &["import", &export], 0);
    let tidemark = embedded(&shop, back).await;
    last(&mut shop, &tidemark.client(), &kinds, part).await;
    agrees(&shop, |arguments| errand(back, arguments)).await;
    assert!(tidemark.stop().await.success());
    exits(back, &["tables", "verify"], 0);
    shop.drained().await;
    shop.assert_webhooks(&orders[..KINDS * part], WAITING);
    assert_attempts(&exits(back, &["tail", "webhooks.attempts", "--until-end"], 0));
}

/// Every order with a payment is paid, and no id is assigned twice.
async fn last(
    shop: &mut Shop,
    client: &Client,
    kinds: &[&[testkit::relocation::Order]],
    part: usize,
) {
    shop.pay(kinds[5]);
    shop.mine(4);
    for kind in &kinds[..KINDS] {
        shop.are_paid(client, kind).await;
    }
    let paid = shop.orders[..KINDS * part].to_vec();
    shop.are_announced(&paid).await;
    shop.are_known(client).await;
    shop.create(client, KINDS * part + 6).await;
    shop.assert_names();
}
