//! Log, tables and group offsets that do not belong together are refused, with the command that mends it.

use testkit::harness::{Anvil, Cluster, Installation, Merchant, eventually};

use super::{chain, tools};

/// Settings of section `[log]`: a group is inactive once its members have been silent that long.
pub(super) const SESSION: &str = "session_timeout = \"6s\"\ntransaction_timeout = \"4s\"\n";

/// Starts a stage that ends at once with exit code 1, and returns its log.
pub(super) async fn refusal(installation: &Installation, name: &str, stage: &str) -> String {
    let process = installation.start(name, stage).process;
    let file = installation.file().with_file_name(format!("{name}.log"));
    let status = process.end().await;
    let logged = std::fs::read_to_string(file).unwrap();
    assert_eq!(status.code(), Some(1), "{logged}");
    logged
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_on_servers() {
    let (dir, anvil, merchant) =
        (tempfile::tempdir().unwrap(), Anvil::start().await, Merchant::start().await);
    let chains = [chain("eth", anvil.url())];
    let cluster = Cluster::start(dir.path(), &chains, merchant.url(), SESSION).await;
    let order = cluster.client().create("A-1", "1.00", "eth", merchant.url()).await;
    cluster.client().deposit(order["order_id"].as_str().unwrap()).await;
    let installation = cluster.installation().clone();
    cluster.stop().await;

    let prefix = installation.prefix();
    let other = installation.changed("other-log", &prefix, &format!("other-{prefix}"));
    assert!(other.errand(&["topics", "create"]).status.success());
    let logged = refusal(&other, "other-log", "projector").await;
    assert!(logged.contains("the tables are those of another installation"), "{logged}");

    let empty = installation.changed("empty", "keyspace = \"t_", "keyspace = \"t_empty_");
    assert!(empty.errand(&["schema", "migrate"]).status.success());
    let logged = refusal(&empty, "empty", "projector").await;
    assert!(logged.contains("run `tidemark tables rebuild`"), "{logged}");

    let inactive = async || tools::set_back(&installation, "processor.orders", "orders.commands");
    eventually("the group to be inactive", inactive).await;
    let logged = refusal(&installation, "set-back", "processor").await;
    assert!(logged.contains("Somebody has set the group back"), "{logged}");
    assert!(logged.contains("--reset-offsets --to-offset"), "{logged}");
}
