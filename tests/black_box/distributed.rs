//! Tests that need an installation of several processes: waiting for missing parts, errands,
//! takeovers, and the demo against it.

mod damages;
mod operator;
mod relocation;
mod rollout;
mod tools;

use serde_json::json;
use testkit::harness::{
    ADMIN_SECRET, Anvil, Chain, Cluster, Installation, MERCHANT_SECRET, Merchant, Process, USDT,
    eventually, executable, free_port, units,
};
use testkit::log_suite::on_kafka;
use testkit::process::text;

const WALLET: &str = "0x00000000000000000000000000000000DeaDBeef";

fn chain(blockchain: &'static str, rpc: &str) -> Chain {
    Chain::at(blockchain, rpc, WALLET, "confirmations = 3")
}

fn one(lines: &[String], start: &str, part: &str) -> bool {
    lines.iter().any(|line| line.starts_with(start) && line.contains(part))
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_wait_for_topics_and_tables() {
    let dir = tempfile::tempdir().unwrap();
    // No chain is polled here.
    let chains = [chain("eth", "http://127.0.0.1:1")];
    let installation = Installation::new(dir.path(), &chains, "http://127.0.0.1:1/", "");
    let check = installation.exits(&["topics", "check"], 1);
    assert!(check.contains("transfers.raw is missing"), "{check}");

    let mut projector = installation.start("projector-1", "projector");
    let mut webhooks = installation.start("webhooks-1", "webhooks");
    let early = installation.start("processor-1", "processor");
    for member in [&mut projector, &mut webhooks] {
        let create = "run `tidemark topics create`";
        member.waiting_for("topics", |lines| one(lines, "log: the topics: ", create)).await;
    }
    // A process can be stopped while it waits.
    assert!(early.process.stop().await.success());

    let create = installation.exits(&["topics", "create"], 0);
    assert!(create.contains("transfers.raw with 8 partitions"), "{create}");
    let again = installation.exits(&["topics", "create"], 0);
    assert_eq!(again, "nothing to do: all topics exist\n");
    let check = installation.exits(&["topics", "check"], 0);
    assert_eq!(check, "all topics match the configuration\n");

    // Webhooks need no tables.
    webhooks.ready().await;
    let migrate = "run `tidemark schema migrate`";
    projector.waiting_for("tables", |lines| one(lines, "tables: ", migrate)).await;
    assert!(!installation.is_healthy(&projector));
    let migrated = installation.exits(&["schema", "migrate"], 0);
    assert!(migrated.contains("applied 0001_"), "{migrated}");
    let again = installation.exits(&["schema", "migrate"], 0);
    assert_eq!(again, "nothing to do: the schema is up to date\n");
    projector.ready().await;
    eventually("`tidemark health` to succeed", || async {
        installation.is_healthy(&projector).then_some(())
    })
    .await;
    let log = projector.process.log();
    assert_eq!(log.matches("`tidemark topics create`").count(), 1, "logged once:\n{log}");

    // Another number of partitions would change ids: the process ends with an error.
    let wrong = [("TIDEMARK__LOG__LANES", "2".to_owned())];
    let file = installation.file().display().to_string();
    let arguments = ["run", "processor", "--config", &file];
    let odd = Process::start("odd", dir.path(), &arguments, &wrong);
    let log = odd.refused().await;
    assert!(log.contains("transfers.raw has 8 partitions instead of 16"), "{log}");
    assert!(projector.process.stop().await.success());
    assert!(webhooks.process.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_waits_for_its_broker() {
    let dir = tempfile::tempdir().unwrap();
    let installation = Installation::new(dir.path(), &[], "http://127.0.0.1:1/", "");
    let nowhere = format!("127.0.0.1:{}", free_port());
    let text = std::fs::read_to_string(installation.file()).unwrap();
    let brokers = on_kafka::brokers();
    std::fs::write(installation.file(), text.replace(&brokers, &nowhere)).unwrap();
    let mut webhooks = installation.start("webhooks-1", "webhooks");
    webhooks.waiting_for("its broker", |lines| one(lines, "log: ", &nowhere)).await;
    assert!(webhooks.process.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_runs_against_an_installation() {
    let (ethereum, polygon) = (Anvil::start().await, Anvil::start_as(137).await);
    let chains = [chain("eth", ethereum.url()), chain("polygon", polygon.url())];
    let dir = tempfile::tempdir().unwrap();
    let merchant = format!("http://127.0.0.1:{}/webhooks", free_port());
    let short = "[orders]\nttl = \"40s\"\n[matching]\nmatch_window = \"5s\"\n";
    let cluster = Cluster::start(dir.path(), &chains, &merchant, short).await;
    let installation = cluster.installation();
    let file = installation.file().display().to_string();
    let arguments = ["demo", "--against", &installation.api(), "--config", &file];
    let output = tokio::process::Command::new(executable()).args(arguments).output().await;
    let output = output.unwrap();
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    for part in [
        "order A-1 over 10.00 paid, signature verified",
        "each has its own payable amount",
        "the order is paid once",
        "reason amount_mismatch, probably meant for D-1",
        "order E-1 expired, signature verified",
        "the end",
    ] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
    assert!(!printed.contains(MERCHANT_SECRET) && !printed.contains(ADMIN_SECRET), "{printed}");
    cluster.stop().await;
}

/// The killed process of ingest owns exactly one of the two chains, as each member has one half of them. Eight orders
/// are enough that each projector owns some. `tests/kafka_crash/` and `webhook_crash.rs` kill processors and senders of
/// webhooks.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_replaced() {
    let anvils = [Anvil::start().await, Anvil::start().await];
    let merchant = Merchant::start().await;
    let dir = tempfile::tempdir().unwrap();
    let names = ["eth", "avaxc"];
    let more = format!(
        "chain_id = 1\ntokens = [{{ coin = \"USDT\", contract = \"{USDT}\", decimals = 6 }}]"
    );
    let chains = [0, 1].map(|at| {
        let chain = chain(names[at], anvils[at].url());
        Chain { more: format!("{}\n{more}", chain.more), ..chain }
    });
    let mut cluster = Cluster::start(dir.path(), &chains, merchant.url(), "").await;
    let client = cluster.client();
    let pay = async |reference: String, at: usize| {
        let id = client.keyed_order(&reference, "7.00", names[at], merchant.url()).await;
        let due = units(&client.deposit(&id).await["value"]);
        anvils[at].transfer(&[(WALLET, due)]).await;
        anvils[at].mine(1).await;
        id
    };
    for killed in ["ingest-1", "projector-1"] {
        let mut orders = Vec::new();
        for (number, at) in (0..8).zip([0, 1].into_iter().cycle()) {
            // Two are paid and not confirmed when the process is killed.
            if number == 2 {
                cluster.kill(killed);
            }
            orders.push(pay(format!("{killed}-{number}"), at).await);
        }
        for anvil in &anvils {
            anvil.mine(4).await;
        }
        for id in orders {
            let received = merchant.awaited("order_id", &json!(id)).await;
            for webhook in &received {
                let event = (&webhook.id, &webhook.event["status"]);
                assert_eq!(event, (&received[0].id, &json!("paid")));
            }
        }
    }
    cluster.stop().await;
}
