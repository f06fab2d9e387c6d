//! `tidemark find` and `tidemark status` on Kafka and CQL.

use std::process::Output;

use serde_json::{Value, json};
use testkit::harness::{Anvil, Cluster, Merchant, eventually, units};

use super::{WALLET, chain, text};

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_what_happened_and_who_is_gone() {
    let (anvil, merchant) = (Anvil::start().await, Merchant::start().await);
    let dir = tempfile::tempdir().unwrap();
    let chains = [chain("eth", anvil.url())];
    let mut cluster = Cluster::start(dir.path(), &chains, merchant.url(), "").await;
    let client = cluster.client();
    let id = client.keyed_order("A-1", "7.00", "eth", merchant.url()).await;
    let deposit = client.deposit(&id).await;
    let hash = anvil.transfer(&[(WALLET, units(&deposit["value"]))]).await;
    anvil.mine(4).await;
    let installation = cluster.installation().clone();
    let value = deposit["value"].as_str().unwrap();
    for what in [id.as_str(), "A-1", value, &hash] {
        let story = eventually("the whole story", || async {
            let found = installation.errand(&["find", what]);
            let story = text(&found);
            story.contains("The shop has acknowledged the webhook.").then_some(story)
        })
        .await;
        for part in [
            format!("order {id}  paid  7.00  reference A-1\n"),
            format!("open: {value} USDT on eth to {WALLET} until "),
            "confirms transfer ".to_owned(),
            "attempt 1: delivered 200 ".to_owned(),
        ] {
            assert!(story.contains(&part), "{part} is not in {story}");
        }
    }
    installation.exits(&["find", "A-2"], 1);

    let well = eventually("the status to be well", || async {
        let status = installation.errand(&["status", "--json"]);
        (status.status.code() == Some(0)).then(|| document(&status))
    })
    .await;
    let groups = well["groups"].as_array().unwrap();
    for (name, partitions) in [("processor.orders", 4), ("ingest", 8), ("webhooks.dispatcher", 12)]
    {
        let group = groups.iter().find(|group| group["group"] == name).unwrap();
        assert_eq!(group["lag"], json!(0), "{group}");
        let members = group["members"].as_array().unwrap();
        let all = members.iter().map(|member| member["partitions"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(all, partitions, "{group}");
        let is_named = |member: &Value| member["name"].as_str().unwrap().contains("-1");
        assert!(members.iter().any(is_named), "{group}");
    }
    for name in ["webhooks-1", "webhooks-2"] {
        cluster.kill(name);
    }
    let gone = eventually("the members to be gone", || async {
        let status = installation.errand(&["status"]);
        let text = text(&status);
        (status.status.code() == Some(1) && text.contains("no process of webhooks runs"))
            .then_some(text)
    })
    .await;
    assert!(gone.contains("\n    tidemark run webhooks\n"), "{gone}");
    cluster.stop().await;
}
