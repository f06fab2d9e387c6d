//! Several endpoints over real sockets: choice of the second endpoint, and masking of keys.

use std::sync::Mutex;

use schemas::Stablecoin;
use serde_json::{Value, json};

use super::*;
use crate::EndpointConfig;
use crate::config::ApiKey;
use crate::machine::Policy;
use crate::simulation::{PAUSES, Served, chain};

/// A node that answers successive calls with these chain ids.
async fn ids(mut ids: Vec<&'static str>) -> Served {
    ids.reverse();
    let ids = Mutex::new(ids);
    Served::of(move |_| json!({ "result": ids.lock().unwrap().pop() })).await
}

/// Returns the endpoints of a chain whose wallets take no coins.
fn endpoints(configs: Vec<EndpointConfig>) -> Endpoints {
    let mut chain = chain(Policy::flat(Some(3), None));
    chain.endpoints = configs;
    chain.stablecoins.clear();
    Endpoints::new(Arc::new(chain), PAUSES).unwrap()
}

fn take(endpoints: &mut Endpoints, stablecoins: &[Stablecoin]) {
    let stablecoins = stablecoins.iter().copied().collect();
    endpoints.chain = Arc::new(ChainConfig { stablecoins, ..(*endpoints.chain).clone() });
}

#[tokio::test]
async fn endpoints_are_asked_until_one_is_of_our_chain() {
    let (a, b) = (ids(vec!["0x2", "0x2", "0x1"]).await, ids(vec!["0x3"; 9]).await);
    let mut endpoints = endpoints(vec![a.endpoint(), b.endpoint()]);
    // `AllWrong` is returned once, however often the endpoints are asked.
    let Err(NotBegun::AllWrong(AllWrong(cause))) = endpoints.begin().await else {
        panic!("one is ours")
    };
    for id in [2, 3] {
        assert!(cause.contains(&format!("serves chain id {id}, not 1 [TM-401]")), "{cause}");
    }
    endpoints.begin().await.unwrap();
    assert_eq!(endpoints.first, 0);
    assert_eq!(a.sizes(), [1; 3]);
    assert!(endpoints.wrong[1].as_ref().unwrap().contains("serves chain id 3, not 1"));
    // The chain ids are known now.
    endpoints.begin().await.unwrap();
    assert_eq!(a.sizes(), [1; 3]);
}

/// The caller of a step is notified, however short the pauses of the endpoints are.
#[tokio::test]
async fn endpoints_that_all_refuse_are_reported() {
    let refuses = || Served::start(Arc::new(|_: &[Value]| (503, String::new())));
    let (a, b) = (refuses().await, refuses().await);
    let mut endpoints = endpoints(vec![a.endpoint(), b.endpoint()]);
    assert!(matches!(endpoints.begin().await, Err(NotBegun::Refused(..))));
    assert!(!a.sizes().is_empty() && !b.sizes().is_empty());
}

#[tokio::test]
async fn second_answer_comes_from_another_endpoint() {
    let wrong = ids(vec!["0x2"; 9]).await;
    let (a, b) = (ids(vec!["0x1"]).await, ids(vec!["0x1"]).await);
    let mut endpoints = endpoints(vec![a.endpoint(), wrong.endpoint(), b.endpoint()]);
    let pauses = Pauses { alone: Duration::ZERO, ..Pauses::default() };
    endpoints.health = Health::new([100; 3], pauses);
    endpoints.begin().await.unwrap();
    endpoints.scanned(20);
    let ask = Ask { about: Some(10), ..Ask::default() };
    assert_eq!(endpoints.second(&ask).await, Some(2));
    // The same one for all questions about the range.
    assert_eq!((endpoints.second(&Ask::default()).await, b.sizes().len()), (Some(2), 1));
    endpoints.begin().await.unwrap();
    assert_eq!(endpoints.second, None);
    // The endpoint on another fork is not gone, so its second answer is awaited. Once all others are gone, the first
    // endpoint gives the second answer itself.
    endpoints.failed(2, Fault::Forked, "");
    assert_eq!(endpoints.second(&ask).await, None);
    endpoints.failed(2, Fault::Refused(Refusal::Rate, None), "");
    assert_eq!(endpoints.second(&ask).await, Some(0));
}

/// The scanner differs by range: the checker of one range may have scanned another.
#[tokio::test]
async fn the_second_endpoint_is_chosen_for_each_range() {
    let (a, b) = (ids(vec!["0x1"]).await, ids(vec!["0x1"]).await);
    let mut endpoints = endpoints(vec![a.endpoint(), b.endpoint()]);
    for (first, to) in [(0, 20), (1, 30)] {
        endpoints.begin().await.unwrap();
        endpoints.first = first;
        endpoints.scanned(to);
    }
    for (from, second) in [(10, 1), (21, 0)] {
        let ask = Ask { about: Some(from), ..Ask::default() };
        assert_eq!(endpoints.second(&ask).await, Some(second), "from {from}");
    }
}

#[tokio::test]
async fn paused_second_endpoint_holds_confirmation() {
    let (a, b) = (ids(vec!["0x1"]).await, ids(vec!["0x1"]).await);
    let mut endpoints = endpoints(vec![a.endpoint(), b.endpoint()]);
    endpoints.health = Health::new([100; 2], Pauses::default());
    endpoints.begin().await.unwrap();
    endpoints.scanned(20);
    endpoints.failed(1, Fault::Refused(Refusal::Rate, None), "");
    let ask = Ask { about: Some(10), ..Ask::default() };
    assert_eq!(endpoints.second(&ask).await, None);
    // The endpoint that gave the second answer is not its own witness either, while the other one pauses.
    endpoints.second = Some(0);
    assert_eq!(endpoints.witness().await, Some(1));
}

/// A node of chain 1 whose contracts have this code, and these decimals or an error for them.
async fn contracts(code: &'static str, decimals: Result<u8, &'static str>) -> Served {
    Served::of(move |call| {
        let method = (call["method"].as_str().unwrap(), call["params"][0]["data"].as_str());
        let result = match method {
            ("eth_chainId", _) => Ok(json!("0x1")),
            ("eth_getCode", _) => Ok(json!(code)),
            ("eth_call", Some("0x313ce567")) => {
                decimals.map(|decimals| json!(format!("0x{decimals:064x}")))
            }
            _ => Err("no symbol"),
        };
        match result {
            Ok(result) => json!({ "result": result }),
            Err(message) => json!({ "error": { "code": -32000, "message": message } }),
        }
    })
    .await
}

#[tokio::test]
async fn contracts_must_be_as_configured() {
    let token = "chains.eth.tokens: USDC at 0xaAaAaAaaAaAaAaaAaAAAAAAAAaaaAaAaAaaAaaAa";
    for (code, decimals, found) in [
        ("0x60", Ok(6), None),
        ("0x", Ok(6), Some("has no code")),
        ("0x60", Ok(18), Some("has decimals() = 18")),
        ("0x60", Err("execution reverted"), Some("has no decimals()")),
        ("0x60", Err("REVERT opcode executed"), Some("has no decimals()")),
    ] {
        let served = contracts(code, decimals).await;
        let mut endpoints = endpoints(vec![served.endpoint()]);
        take(&mut endpoints, &[Stablecoin::Usdc]);
        let wrong = endpoints.wrong_at(0).await.unwrap().map(|error| error.to_string());
        let expected =
            found.map(|found| format!("{token} {found} where decimals() = 6 is configured"));
        assert_eq!(wrong, expected);
        assert_eq!(endpoints.check(0).await, found.is_none());
        // No wallet takes the coin, so its contract is not checked.
        take(&mut endpoints, &[]);
        assert!(endpoints.wrong_at(0).await.unwrap().is_none());
    }
    // An endpoint that does not serve calls says nothing about the contract.
    let served = contracts("0x60", Err("internal error")).await;
    let mut endpoints = endpoints(vec![served.endpoint()]);
    take(&mut endpoints, &[Stablecoin::Usdc]);
    assert!(endpoints.wrong_at(0).await.is_err());
    assert!(!endpoints.check(0).await && endpoints.wrong[0].is_none());
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
    // Connection refused: the error contains the address.
    drop(served);
    let text = endpoints.list[1].fetch_chain_id().await.unwrap_err().message;
    assert!(!text.contains("0123456789abcdef"), "{text}");
}
