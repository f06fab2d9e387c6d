//! Several endpoints over real sockets; which one is asked for a second answer, and what is repeated of a key.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::EndpointConfig;
use crate::config::ApiKey;
use crate::machine::Policy;
use crate::simulation::{Served, chain};

const PAUSE: Duration = Duration::from_millis(1);
const PAUSES: Pauses =
    Pauses { first: PAUSE, max: PAUSE, repair: PAUSE, sole_max: PAUSE, recheck: Duration::MAX };

/// Answers every call with the chain id of the next request.
async fn ids(mut ids: Vec<&'static str>) -> Served {
    ids.reverse();
    let ids = Mutex::new(ids);
    Served::start(Arc::new(move |calls: &[Value]| {
        let id = ids.lock().unwrap().pop();
        let reply = |call: &Value| json!({ "jsonrpc": "2.0", "id": call["id"], "result": id });
        (200, reply(&calls[0]).to_string())
    }))
    .await
}

fn endpoints(configs: Vec<EndpointConfig>) -> Endpoints {
    let mut chain = chain(Policy::flat(Some(3), None));
    chain.endpoints = configs;
    Endpoints::new(Arc::new(chain), PAUSES).unwrap()
}

#[tokio::test]
async fn endpoints_of_another_chain_are_asked_until_one_is_ours() {
    let (a, b) = (ids(vec!["0x2", "0x2", "0x1"]).await, ids(vec!["0x3"; 9]).await);
    let mut endpoints = endpoints(vec![a.endpoint(), b.endpoint()]);
    endpoints.begin().await;
    assert_eq!(endpoints.first, 0);
    assert_eq!(a.sizes(), [1; 3]);
    assert!(endpoints.wrong[1].as_ref().unwrap().contains("serves chain id 3, not 1"));
    // Known now.
    endpoints.begin().await;
    assert_eq!(a.sizes(), [1; 3]);
}

#[tokio::test]
async fn a_second_answer_comes_from_another_one_of_the_same_chain() {
    let wrong = ids(vec!["0x2"; 9]).await;
    let (a, b) = (ids(vec!["0x1"]).await, ids(vec!["0x1"]).await);
    let mut endpoints = endpoints(vec![a.endpoint(), wrong.endpoint(), b.endpoint()]);
    endpoints.health = Health::new([100; 3], Pauses::default());
    endpoints.begin().await;
    endpoints.scanned(20);
    let ask = Ask { logs: vec![Span::Range { from: 10, to: 20 }], ..Ask::default() };
    assert_eq!(endpoints.second(&ask).await, 2);
    // The same one until the step ends.
    assert_eq!((endpoints.second(&Ask::default()).await, b.sizes().len()), (2, 1));
    endpoints.begin().await;
    assert_eq!(endpoints.second, None);
    // With nothing else it is the same one.
    endpoints.failed(2, Fault::Forked, "");
    assert_eq!(endpoints.second(&ask).await, 0);
}

#[tokio::test]
async fn keys_are_sent_and_never_repeated() {
    let served = Served::start(Arc::new(|_: &[Value]| {
        (401, "no plan for key 0123456789abcdef and s3cr3t-k3y".to_owned())
    }))
    .await;
    let mut config = served.endpoint();
    let text = format!("{}v3/0123456789abcdef", config.url.url());
    config.url = crate::RpcUrl::parse(&text).unwrap();
    let key = schemas::Secret::new("s3cr3t-k3y");
    config.api_key = Some(ApiKey { header: "x-key".parse().unwrap(), key });
    let endpoints = endpoints(vec![config.clone(), config]);
    let failure = endpoints.list[0].fetch_chain_id().await.unwrap_err();
    assert_eq!(failure.message, "HTTP status 401: no plan for key *** and ***");
    assert_eq!(served.header("x-key"), "s3cr3t-k3y");
    let names = [endpoints.name(0), endpoints.name(1)].join(" ");
    assert!(names.ends_with(" (2)") && !names.contains("0123456789abcdef"), "{names}");
    // Nobody is there: the error of the connection has the address in it.
    drop(served);
    let text = endpoints.list[1].fetch_chain_id().await.unwrap_err().message;
    assert!(!text.contains("0123456789abcdef"), "{text}");
}
