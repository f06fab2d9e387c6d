//! Traces as a collector gets them: a payment is one trace, from the create of its order to its webhook.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode};
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use testkit::Pace;
use testkit::harness::{
    Chain, Client, Merchant, Tidemark, WALLET, eventually, evm_node, pay_order, payable,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const UNSAMPLED: &str = "5bf92f3577b34da6a3ce929d0e0e4736";
const CREATE: &str = "POST /api/v1/service/orders";
const KEY: &str = "key-of-the-collector";

/// Refuses the first request, and keeps the spans of the others.
#[derive(Clone, Default)]
struct Collector {
    requests: Arc<Mutex<usize>>,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    async fn start(&self) -> String {
        let own = self.clone();
        let take = move |headers: HeaderMap, Json(body): Json<Value>| {
            assert_eq!(headers["x-key"], KEY);
            let mut requests = own.requests.lock().unwrap();
            *requests += 1;
            if *requests == 1 {
                return std::future::ready(StatusCode::SERVICE_UNAVAILABLE);
            }
            let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
            own.spans.lock().unwrap().extend(spans.as_array().unwrap().clone());
            std::future::ready(StatusCode::OK)
        };
        let routes = Router::new().route("/v1/traces", post(take));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(tokio::spawn(async move { axum::serve(listener, routes).await }));
        url
    }

    fn of(&self, trace: &str) -> Vec<Value> {
        let spans = self.spans.lock().unwrap();
        spans.iter().filter(|span| span["traceId"] == trace).cloned().collect()
    }
}

fn names(spans: &[Value]) -> Vec<&str> {
    let mut names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a str> {
    let all = span["attributes"].as_array()?;
    all.iter().find(|of| of["key"] == name)?["value"]["stringValue"].as_str()
}

async fn logged(tidemark: &Tidemark, text: &str) {
    eventually(text, || async { tidemark.log().contains(text).then_some(()) }).await;
}

async fn create(client: &Client, url: &str, reference: &str, traceparent: Option<&str>) -> String {
    let body = payable(reference, "10.00", "eth", url);
    let headers: Vec<_> = traceparent.into_iter().map(|of| ("traceparent", of)).collect();
    let (status, text) = client.service("/orders", &body, &headers).await.unwrap();
    assert_eq!(status, 201, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["order_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_one_trace() {
    let (devnet, merchant, collector) =
        (evm_node(1, 600, 60).await, Merchant::start().await, Collector::default());
    let chain = Chain::of("eth", &devnet, WALLET, "confirmations = 3\n");
    let dir = tempfile::tempdir().unwrap();
    let variables = [
        ("TIDEMARK__TELEMETRY__OTLP_ENDPOINT", collector.start().await),
        ("TIDEMARK__TELEMETRY__OTLP_HEADER", format!("X-Key: {KEY}")),
    ];
    let tidemark = Tidemark::start_with(dir.path(), &[chain], merchant.url(), "", &variables).await;
    let (client, node) = (tidemark.client(), devnet.chain());
    let create = async |reference: &str, traceparent: Option<&str>| {
        create(&client, merchant.url(), reference, traceparent).await
    };

    // An unavailable collector loses spans, but no order.
    create("A-1", None).await;
    logged(&tidemark, "telemetry.otlp_endpoint takes no spans").await;
    let order = create("A-2", Some(&format!("00-{TRACE}-{CALLER}-01"))).await;
    create("A-3", Some(&format!("00-{UNSAMPLED}-{CALLER}-00"))).await;
    create("A-4", None).await;
    logged(&tidemark, "telemetry.otlp_endpoint takes spans again").await;
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    let stranger = stranger.post(format!("http://{}/api/v1/service/orders", tidemark.address()));
    assert_eq!(stranger.send().await.unwrap().status(), 401);

    pay_order(&client, &node, &order).await;
    let pace = Pace::default();
    eventually("the webhook of the payment", || async {
        if pace.is_due() {
            node.mine(1).unwrap();
        }
        (!merchant.with("order_id", &json!(order)).is_empty()).then_some(())
    })
    .await;
    let spans = eventually("the span of the webhook", || async {
        let spans = collector.of(TRACE);
        names(&spans).contains(&"webhook").then_some(spans)
    })
    .await;
    for (name, least) in [(CREATE, 1), ("create", 1), ("processor.orders", 2), ("webhook", 1)] {
        let found = names(&spans).iter().filter(|of| **of == name).count();
        assert!(found >= least, "{name}: {:?}", names(&spans));
    }
    let ids: HashSet<_> = spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len());
    for span in &spans {
        let parent = span["parentSpanId"].as_str().unwrap();
        assert!(ids.contains(parent) || (parent, &span["name"]) == (CALLER, &json!(CREATE)));
    }
    let webhook = spans.iter().find(|span| span["name"] == "webhook").unwrap();
    assert_eq!(attribute(webhook, "webhook.outcome"), Some("delivered"));
    assert_eq!(attribute(webhook, "http.status"), Some("200"));

    assert!(!tidemark.log().contains(KEY));
    assert!(tidemark.stop().await.success());
    assert_eq!(collector.of(UNSAMPLED), [] as [Value; 0], "its caller wants none");
    let all = collector.spans.lock().unwrap().clone();
    let begun = all.iter().filter(|span| span["parentSpanId"].is_null());
    let created: Vec<_> = begun.filter(|span| span["name"] == CREATE).collect();
    assert!(!created.is_empty());
    for span in created {
        assert_eq!(attribute(span, "request.id"), span["traceId"].as_str());
        assert_eq!(attribute(span, "http.status"), Some("201"), "strangers begin no trace");
    }
}
