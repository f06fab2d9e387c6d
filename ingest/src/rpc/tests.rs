//! The client against an endpoint that takes few calls at once.

use std::sync::Arc;

use super::*;
use crate::machine::Policy;
use crate::simulation::{Answers, Served, chain};

fn ask(count: i64) -> Ask {
    Ask { blocks: (1..=count).map(Point::Number).collect(), ..Ask::default() }
}

/// Takes at most this many calls at once and refuses more in these words; 0 refuses none.
fn at_most(calls_max: usize, status: u16, refusal: &'static str) -> Answers {
    Arc::new(move |calls: &[Value]| {
        if calls.len() > calls_max {
            return (status, refusal.to_owned());
        }
        let reply = |call: &Value| json!({ "jsonrpc": "2.0", "id": call["id"], "result": null });
        let replies: Vec<_> = calls.iter().map(reply).collect();
        let single = calls_max == 1;
        (200, if single { replies[0].to_string() } else { json!(replies).to_string() })
    })
}

async fn endpoint(answers: Answers) -> (Endpoint, Served) {
    let served = Served::start(answers).await;
    let chain = chain(Policy::flat(Some(3), None));
    (Endpoint::new(&chain, &served.endpoint(), 0).unwrap(), served)
}

#[tokio::test]
async fn a_refused_batch_is_halved_until_it_is_answered_and_stays_small() {
    let whole = r#"{"id":null,"error":{"code":-32600,"message":"batch limit exceeded"}}"#;
    for (calls_max, status, refusal, sizes) in [
        (3, 200, whole, vec![10, 5, 2, 2, 2, 2, 2]),
        (5, 400, "", vec![10, 5, 5]),
        (1, 413, "<html>", vec![10, 5, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
    ] {
        let (endpoint, served) = endpoint(at_most(calls_max, status, refusal)).await;
        assert_eq!(endpoint.fetch(&ask(10)).await.unwrap().blocks.len(), 10);
        assert_eq!(served.sizes(), sizes);
        endpoint.fetch(&ask(2)).await.unwrap();
        let again = if calls_max == 1 { vec![1, 1] } else { vec![2] };
        assert_eq!(served.sizes()[sizes.len()..], again);
    }
}

#[tokio::test]
async fn an_outage_makes_no_batch_smaller_for_good() {
    let (endpoint, served) = endpoint(at_most(0, 400, "")).await;
    assert_eq!(endpoint.fetch(&ask(4)).await.unwrap_err().refusal, Refusal::Transient);
    assert_eq!(served.sizes(), [4, 2, 1]);
    endpoint.fetch(&ask(4)).await.unwrap_err();
    assert_eq!(served.sizes()[3..], [4, 2, 1]);
}

#[tokio::test]
async fn what_is_understood_is_not_sent_again() {
    let (endpoint, served) = endpoint(at_most(0, 429, "")).await;
    assert_eq!(endpoint.fetch(&ask(4)).await.unwrap_err().refusal, Refusal::Rate);
    assert_eq!(served.sizes(), [4]);
}
