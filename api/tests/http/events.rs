//! Live updates of an order, as server-sent events.

use std::time::Duration;

use reqwest::Response;
use schemas::TransferId;
use schemas::record::example;
use serde_json::Value;
use store::Change;

use crate::world::{Answer, MERCHANT_SECRET, NOW, ORIGIN, UNKNOWN_ORDER, World, link, new_order};

/// Maximum wait for the next bytes of a stream; no result depends on it.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Open stream, and its bytes that are not a whole event yet.
struct Stream {
    response: Response,
    rest: String,
}

impl Stream {
    async fn open(world: &World, id: &str) -> Self {
        let route = format!("GET /api/v1/user/orders/{id}/events?{}", world.link(id));
        let response = world.request(&route).header("Origin", ORIGIN).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, rest: String::new() }
    }

    /// The data of the next `status` event; none at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.rest = rest;
                if event.starts_with(':') {
                    continue;
                }
                let data = event.strip_prefix("event: status\ndata: ").unwrap();
                return Some(serde_json::from_str(data).unwrap());
            }
            let chunk = tokio::time::timeout(WAIT_MAX, self.response.chunk()).await.unwrap();
            self.rest += std::str::from_utf8(&chunk.unwrap()?).unwrap();
        }
    }
}

#[tokio::test]
async fn stream_has_the_status_and_every_change() {
    let (world, id) = World::start().await.with_order().await;
    let mut stream = Stream::open(&world, &id).await;
    assert_eq!(stream.response.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.response.headers()["cache-control"], "no-store");
    assert_eq!(stream.response.headers()["access-control-allow-origin"], ORIGIN);
    let status = world.user(&id, "GET", "status", &Value::Null).await.json();
    assert_eq!(stream.next().await.unwrap(), status);
    assert_eq!(world.pay(&id, "eth", "DAI").await.status, 201);
    let chosen = stream.next().await.unwrap();
    assert_eq!(chosen["deposits"].as_array().unwrap().len(), 1, "{chosen}");
    assert_eq!(world.cancel(&id).await.status, 200);
    while stream.next().await.unwrap()["status"] != "cancelled" {}
    let again = Stream::open(&world, &id).await.next().await.unwrap();
    assert_eq!(again["status"], "cancelled", "who comes again misses nothing");
}

/// Confirmations follow from new blocks, without a record of the order.
#[tokio::test]
async fn confirmations_arrive_by_themselves() {
    let (world, id) = World::alone().await.with_order().await;
    world.change(&id, |row| row.candidates = vec![TransferId(7)]).await;
    let transfer = example::transfer();
    let mut chain = example::chain_progress();
    chain.updated_at = schemas::UnixMicros(i64::MAX / 2);
    chain.head.number = transfer.block.number;
    world.apply([Change::Transfer(transfer), Change::Chain(chain.clone())]).await;
    let mut stream = Stream::open(&world, &id).await;
    for confirmations in 1..=3 {
        let status = stream.next().await.unwrap();
        let transfer = &status["transfers"][0];
        assert_eq!(transfer["confirmations"], confirmations, "{status}");
        assert_eq!(transfer["confirmations_required"], 3);
        chain.head.number += 1;
        chain.updated_at = chain.updated_at.next(chain.updated_at);
        world.apply([Change::Chain(chain.clone())]).await;
    }
}

#[tokio::test]
async fn streams_need_a_good_link_and_end_with_it() {
    let (world, id) = World::alone().await.with_order().await;
    let route = format!("GET /api/v1/user/orders/{id}/events?");
    for link in [world.link(UNKNOWN_ORDER), link(MERCHANT_SECRET, &id, NOW - 1), String::new()] {
        let answer = Answer::to(world.request(&format!("{route}{link}"))).await;
        answer.refused(401, "signature verification failed");
    }
    let nowhere =
        format!("GET /api/v1/user/orders/{UNKNOWN_ORDER}/events?{}", world.link(UNKNOWN_ORDER));
    Answer::to(world.request(&nowhere)).await.refused(404, "order not found");
    let mut stream = Stream::open(&world, &id).await;
    assert!(stream.next().await.is_some());
    world.advance(3601);
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn an_order_has_at_most_eight_streams() {
    let mut world = World::start().await;
    let (id, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = Stream::open(&world, &id).await;
        assert!(stream.next().await.is_some());
        streams.push(stream);
    }
    let route = format!("GET /api/v1/user/orders/{id}/events?{}", world.link(&id));
    let answer = Answer::to(world.request(&route)).await;
    answer.refused(503, "the service is busy, try again");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(world.pay(&id, "eth", "DAI").await.status, 201, "commands have places of their own");
    streams.push(Stream::open(&world, &other).await);
    world.stop.cancel();
    for mut stream in streams {
        while stream.next().await.is_some() {}
    }
    world.server.take().unwrap().await.unwrap();
}
