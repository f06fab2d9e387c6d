//! Random requests from a seed: the server answers every well-framed one, with no server error but 503.
//!
//! `TIDEMARK_FUZZ_REQUESTS` sets their number, 20,000 by default, and `TIDEMARK_FUZZ_SEED` the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime::config::Connections;
use schemas::record::{Alert, example};
use schemas::{
    Address, Partition, Secret, Topic, TransferStatus, UnixSeconds, UnknownReason, sign_service,
};
use serde_json::{Value, json};
use store::Change;
use testkit::Dice;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::openapi::{body, bounds, operations, page_routes, parameters, resolved, routed, words};
use crate::operators::post;
use crate::page::Buyer;
use crate::world::{
    ADMIN_SECRET, Answer, CONNECTIONS, MERCHANT_SECRET, NOW, UNKNOWN_ORDER, World, config,
    new_order, order, wallet,
};

/// Concurrent clients. A single one would mostly wait, because answers with 401 are delayed.
const CLIENTS: usize = 64;
/// Orders that requests are about: enough that some are still open when others have ended.
const ORDERS: usize = 300;
const REGISTRY: &str = include_str!("../../src/routes/registry.rs");
/// A subject of the registry.
const SUBJECT: &str = "shop.orders-value";

/// Inserts, drops, changes or duplicates up to a few bytes of the text.
fn spoil(dice: &mut Dice, text: &mut Vec<u8>) {
    for _ in 0..dice.below(4) {
        let at = dice.below(text.len().max(1)).min(text.len());
        match dice.below(4) {
            0 => text.insert(at, dice.below(256) as u8),
            1 if at < text.len() => drop(text.remove(at)),
            2 if at < text.len() => text[at] = dice.below(256) as u8,
            _ => {
                let end = (at + dice.below(16)).min(text.len());
                let part = text[at..end].to_vec();
                text.splice(at..at, part);
            }
        }
    }
}

/// A path with one of its methods, and its parameters and body in the OpenAPI document.
struct Route {
    method: String,
    path: String,
    queries: Vec<&'static Value>,
    /// A valid body.
    body: String,
}

/// Every route: those of the document, the page's with its files, the registry's. `schema` is a body for the last.
fn routes(schema: &str) -> Vec<Route> {
    let of_api = operations().map(|(path, method, operation)| {
        let queries = parameters(operation, "query").collect();
        let body = &body(operation)["example"];
        let body = match path.rsplit('/').next() {
            Some("orders") if method == "post" => new_order().to_string(),
            // The example's cursor is of another installation.
            Some("changes") => "{}".to_owned(),
            _ if body.is_null() => String::new(),
            _ => body.to_string(),
        };
        Route { method: method.to_uppercase(), path: path.to_owned(), queries, body }
    });
    let files =
        ["page.css", "page.js", "icon.svg"].map(|file| (format!("/checkout/{file}"), "get"));
    let of_page = page_routes().into_iter().chain(files).map(|route| (route, "way=eth.USDT"));
    let of_registry = routed(REGISTRY, "routes<", "/registry").into_iter();
    let others = of_page.chain(of_registry.map(|route| (route, schema)));
    let others = others.map(|((path, method), body)| Route {
        method: method.to_uppercase(),
        path,
        queries: Vec::new(),
        body: body.to_owned(),
    });
    of_api.chain(others).collect()
}

/// Building blocks of requests.
struct Parts {
    routes: Vec<Route>,
    /// Each with the query of its link.
    orders: Vec<(String, String)>,
    /// Id of the subject's latest schema.
    schema_id: String,
}

/// A request and its known properties.
struct Case {
    bytes: Vec<u8>,
    /// `false` if the framing is spoilt.
    is_whole: bool,
    /// Index of its route, if path and method are unchanged.
    route: Option<usize>,
}

impl Parts {
    fn path(&self, dice: &mut Dice, route: &Route, (id, link): &(String, String)) -> String {
        let id = if dice.below(8) == 0 { UNKNOWN_ORDER } else { id };
        let address = wallet(2).to_string();
        let hash = example::transfer().observation.tx_hash.to_string();
        let mut path = route.path.clone();
        for (name, value) in [
            ("{order_id}", id),
            ("{transfer_id}", dice.of(&["7", "7", "8"])),
            ("{address}", &address),
            ("{hash}", &hash),
            ("{subject}", SUBJECT),
            ("{version}", dice.of(&["1", "latest"])),
            ("{id}", &*self.schema_id),
        ] {
            path = path.replace(name, value);
        }
        let mut query: Vec<String> = Vec::new();
        for one in &route.queries {
            if dice.below(4) == 0 {
                query.push(format!("{}={}", one["name"].as_str().unwrap(), value(dice, one)));
            }
        }
        if path.contains("/user/chains") && dice.below(2) == 0 {
            query.push(format!("order_id={id}"));
        }
        if path.contains("/user/") && !query.is_empty() | path.contains("/orders/") {
            query.push(link.clone());
        }
        if path.contains("/checkout/") && dice.below(4) == 0 {
            query.push(dice.of(&["lang=de", "change=1", "problem=full", link]).to_owned());
        }
        let odd = dice.of(&["", "?", "?status=paid", "?verbose=1", "?%", "?a=%ff&&=;"]);
        match query.is_empty() {
            true if dice.below(4) == 0 => path + odd,
            true => path,
            false => format!("{path}?{}", query.join("&")),
        }
    }

    fn body(&self, dice: &mut Dice, route: &Route, id: &str) -> Vec<u8> {
        let mut body = match dice.below(8) {
            0 => dice
                .of(&[
                    "",
                    "null",
                    "[]",
                    "{",
                    "{}",
                    "\u{feff}{}",
                    "[[[[[[[[",
                    "{\"amount\":1e999}",
                    "\"\\ud800\"",
                ])
                .to_owned(),
            1 => self.routes[dice.below(self.routes.len())].body.clone(),
            _ if route.path.ends_with("/orders/status") || route.path.ends_with("/attach") => {
                json!({ "order_id": id }).to_string()
            }
            _ => route.body.clone(),
        }
        .into_bytes();
        if dice.below(4) == 0 {
            spoil(dice, &mut body);
        }
        body
    }

    /// Draws a request: usually a valid one with at most a few defects.
    fn request(&self, dice: &mut Dice) -> Case {
        let number = dice.below(self.routes.len());
        let (route, order) = (&self.routes[number], &self.orders[dice.below(self.orders.len())]);
        let is_own = dice.below(4) > 0;
        let others = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "X"];
        let method = if is_own { &route.method } else { dice.of(&others) };
        let mut path = self.path(dice, route, order).into_bytes();
        let is_spoilt = dice.below(6) == 0;
        if is_spoilt {
            spoil(dice, &mut path);
            path.retain(|byte| *byte > b' ' && *byte < 0x7f);
        }
        let body = self.body(dice, route, &order.0);
        let mut bytes = Self::head(dice, method, &path, order, &body);
        bytes.extend(body);
        let is_whole = dice.below(20) > 0;
        if !is_whole {
            spoil(dice, &mut bytes);
        }
        let route = (is_own && !is_spoilt && is_whole).then_some(number);
        Case { bytes, is_whole, route }
    }

    fn head(
        dice: &mut Dice,
        method: &str,
        path: &[u8],
        (id, link): &(String, String),
        body: &[u8],
    ) -> Vec<u8> {
        let time = NOW + [0, 0, 0, 0, 299, -299, 301, -301][dice.below(8)];
        let signature = sign_service(&Secret::new(MERCHANT_SECRET), UnixSeconds(time), body);
        let cookie = format!("checkout_{id}={link}");
        let mut head = format!("{method} ").into_bytes();
        head.extend(path);
        head.extend(
            format!(" HTTP/1.1\r\nhost: pay.test\r\ncontent-length: {}\r\n", body.len()).bytes(),
        );
        for (name, value) in [
            ("service-signature", &*signature),
            ("service-admin-authorization", ADMIN_SECRET),
            ("idempotency-key", dice.of(&["a", "b", "c", ""])),
            ("cookie", &*cookie),
            ("origin", dice.of(&["https://shop.test", "null"])),
            ("accept-language", dice.of(&["de;q=0.5,*", "x;q=q", ",,,"])),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("x-forwarded-proto", "https"),
            ("sec-fetch-site", "same-origin"),
            (
                "content-type",
                dice.of(&[
                    "application/json",
                    "text/plain; charset=\"",
                    "application/x-www-form-urlencoded",
                ]),
            ),
            ("connection", "keep-alive, x"),
        ] {
            // Headers that authenticate are mostly present.
            let gives = name.starts_with("service") || name == "cookie";
            if dice.below(8) < if gives { 7 } else { 3 } {
                let mut value = value.as_bytes().to_vec();
                if dice.below(10) == 0 {
                    spoil(dice, &mut value);
                    value.retain(|byte| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t');
                }
                head.extend(name.bytes().chain(*b": ").chain(value).chain(*b"\r\n"));
            }
        }
        head.extend(b"\r\n");
        head
    }
}

/// A value for a query: at its bounds, beyond them, one of its words, or of another kind.
fn value(dice: &mut Dice, query: &'static Value) -> String {
    let schema = resolved(&query["schema"]);
    let [mut values, beyond] = bounds(schema);
    values.extend(words(schema).map(Value::from));
    values.extend(beyond);
    values.extend(["A-1", UNKNOWN_ORDER, "1790000000", ""].map(Value::from));
    let one = &values[dice.below(values.len())];
    one.as_str().map_or_else(|| one.to_string(), str::to_owned)
}

/// The status of the answer, and `true` if the connection can be used again; none if it ended without an answer.
async fn ask(stream: &mut TcpStream, request: &[u8]) -> Option<(u16, bool)> {
    stream.write_all(request).await.ok()?;
    let mut head = Vec::new();
    let mut bytes = [0; 16 * 1024];
    let end = loop {
        match stream.read(&mut bytes).await {
            Ok(count) if count > 0 => head.extend(&bytes[..count]),
            _ => return None,
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).to_lowercase();
    let status = text.split(' ').nth(1)?.parse().unwrap();
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    // A stream of events has no end, and an answer to HEAD no body.
    let Some(length) = length.filter(|_| !request.starts_with(b"HEAD")) else {
        return Some((status, false));
    };
    let length: usize = length.parse().unwrap();
    let mut left = (end + length).saturating_sub(head.len());
    while left > 0 {
        let most = left.min(bytes.len());
        match stream.read(&mut bytes[..most]).await {
            Ok(count) if count > 0 => left -= count,
            _ => return None,
        }
    }
    Some((status, !text.contains("connection: close")))
}

/// Fills the tables with the orders and the transfer that requests name.
async fn parts(world: &World) -> Parts {
    let mut orders = Vec::new();
    for _ in 0..ORDERS {
        let id = world.create(&new_order()).await;
        orders.push((id.clone(), world.link(&id)));
    }
    // No order is known for the transfer.
    let mut transfer = example::transfer();
    transfer.status = TransferStatus::NoMatchedDeposit;
    transfer.reason = Some(UnknownReason::NoDeposit);
    transfer.candidate_order_id = Some(order(1).order_id);
    (transfer.order_id, transfer.deposit_id, transfer.fulfillment_id) = (None, None, None);
    let is_of_lane = |to: &Address| {
        world.log.layout().lane(transfer.blockchain, to) == transfer.transfer_id.partition()
    };
    transfer.observation.to_address = (1..).map(wallet).find(is_of_lane).unwrap();
    world.apply([Change::Transfer(transfer)]).await;
    let path = format!("/registry/subjects/{SUBJECT}/versions/latest");
    let answer = Answer::to(world.request(&format!("GET {path}"))).await;
    let latest: Value = serde_json::from_str(&answer.body).unwrap();
    let schema = json!({ "schema": latest["schema"] }).to_string();
    Parts { routes: routes(&schema), orders, schema_id: latest["id"].to_string() }
}

/// A client, which makes requests until none are left. Returns the number of answers by status, and the routes at which
/// a request was carried out.
async fn ask_on(
    parts: Arc<Parts>,
    left: Arc<AtomicUsize>,
    address: String,
    mut dice: Dice,
) -> (BTreeMap<u16, usize>, BTreeSet<usize>) {
    let mut statuses = BTreeMap::<u16, usize>::new();
    let mut reached = BTreeSet::<usize>::new();
    let mut open: Option<TcpStream> = None;
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
    {
        let Case { bytes: request, is_whole, route } = parts.request(&mut dice);
        let shown = || String::from_utf8_lossy(&request).into_owned();
        // The server may just have closed a kept connection: then the request is sent once more, as clients do.
        let mut answer = None;
        for used in [open.take(), None] {
            let was_used = used.is_some();
            let mut stream = match used {
                Some(stream) => stream,
                None => TcpStream::connect(&address).await.unwrap(),
            };
            let asked = timeout(Duration::from_secs(60), ask(&mut stream, &request)).await;
            assert!(asked.is_ok(), "silence after {}", shown());
            answer = asked.unwrap_or_default();
            open = Some(stream);
            if answer.is_some() || !was_used {
                break;
            }
        }
        assert!(answer.is_some() || !is_whole, "no answer to {}", shown());
        let Some((status, is_reusable)) = answer else {
            open = None;
            continue;
        };
        assert!(status < 500 || status == 503, "{status} to {}", shown());
        *statuses.entry(status).or_default() += 1;
        reached.extend(route.filter(|_| status < 400));
        open = open.filter(|_| is_reusable && is_whole);
    }
    (statuses, reached)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_comes_is_the_servers_fault() {
    let number = |name: &str, usual: usize| {
        std::env::var_os(name).map_or(usual, |text| text.to_str().unwrap().parse().unwrap())
    };
    let (requests, seed) =
        (number("TIDEMARK_FUZZ_REQUESTS", 20_000), number("TIDEMARK_FUZZ_SEED", 1));
    let mut world = World::start().await;
    // The server waits for the rest of a request whose length was spoilt.
    let brief = Duration::from_secs(2);
    world.connections = Connections { header_timeout: brief, body_timeout: brief, ..CONNECTIONS };
    world.buyer = Some(Arc::new(Buyer::default()));
    world.serve(config()).await;
    let parts = Arc::new(parts(&world).await);
    let mut first = BTreeSet::new();
    for (number, route) in parts.routes.iter().enumerate() {
        if route.method == "POST" && route.path.starts_with("/registry/") {
            let path = route.path.replace("{subject}", SUBJECT);
            let request = world.request(&format!("POST {path}")).body(route.body.clone());
            Answer::to(request).await.with_status(200);
            first.insert(number);
        }
        if route.path.ends_with("/alerts/resolve") {
            let body: Value = serde_json::from_str(&route.body).unwrap();
            let alert_id = body["alert_id"].as_str().unwrap().to_owned();
            let alert = Alert { alert_id, ..example::alert() };
            world.write(Topic::Alerts, Partition(0), &alert).await;
            // An alert is resolved once, and the answer to that may be lost.
            post(&world, ADMIN_SECRET, &route.path, body).await.with_status(200);
            first.insert(number);
        }
    }
    let left = Arc::new(AtomicUsize::new(requests));
    let clients = (0..CLIENTS).map(|client| {
        let dice = Dice((seed as u64) << 32 | (client as u64 + 1));
        tokio::spawn(ask_on(parts.clone(), left.clone(), world.address().to_owned(), dice))
    });
    let mut statuses = BTreeMap::<u16, usize>::new();
    // The clock does not move, so the registry's limit admits only a few schemas in all: they were posted first.
    let mut reached = first;
    for client in clients.collect::<Vec<_>>() {
        let (answers, routes) = client.await.unwrap();
        reached.extend(routes);
        for (status, count) in answers {
            *statuses.entry(status).or_default() += count;
        }
    }
    // A route without a successful request was tested only up to its first checks.
    let missed = parts.routes.iter().enumerate().filter(|(number, _)| !reached.contains(number));
    let missed: Vec<_> = missed.map(|(_, route)| (&route.method, &route.path)).collect();
    assert!(missed.is_empty(), "no request was carried out at {missed:?}");
    for status in [200, 201, 303, 400, 401, 404, 405] {
        assert!(statuses.contains_key(&status), "{statuses:?}");
    }
    assert!(!world.create(&new_order()).await.is_empty(), "it still takes orders");
}
