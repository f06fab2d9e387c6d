//! Requests made at random, from a seed: whatever comes, the server answers, and the fault is the client's.
//!
//! `TIDEMARK_FUZZ_REQUESTS` sends more than the 20,000 of a usual run, `TIDEMARK_FUZZ_SEED` others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime::config::Connections;
use schemas::{Secret, UnixSeconds, sign_service};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::world::{
    ADMIN_SECRET, CONNECTIONS, MERCHANT_SECRET, NOW, UNKNOWN_ORDER, World, config, new_order,
};

/// Clients at once; an answer 401 is held back, so that one alone would mostly wait.
const CLIENTS: usize = 64;

/// Numbers from a seed (xorshift64*): the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }

    /// Some bytes of the text are others, are gone, or are there twice.
    fn spoil(&mut self, text: &mut Vec<u8>) {
        for _ in 0..self.roll(4) {
            let at = self.roll(text.len().max(1)).min(text.len());
            match self.roll(4) {
                0 => text.insert(at, self.roll(256) as u8),
                1 if at < text.len() => drop(text.remove(at)),
                2 if at < text.len() => text[at] = self.roll(256) as u8,
                _ => {
                    let end = (at + self.roll(16)).min(text.len());
                    let part = text[at..end].to_vec();
                    text.splice(at..at, part);
                }
            }
        }
    }
}

/// What requests are made of.
struct Parts {
    id: String,
    link: String,
    cookie: String,
}

impl Parts {
    fn path(&self, dice: &mut Dice) -> String {
        let id = if dice.roll(8) == 0 { UNKNOWN_ORDER } else { &self.id };
        let path = dice.one(&[
            "/api/v1/service/orders",
            "/api/v1/service/orders",
            "/api/v1/service/orders/status",
            "/api/v1/admin/orders",
            "/api/v1/admin/deposits",
            "/api/v1/admin/wallets",
            "/api/v1/admin/wallets/0x0202020202020202020202020202020202020202/transfers",
            "/api/v1/admin/orders/{id}/webhooks",
            "/api/v1/admin/orders/{id}/resend-webhook",
            "/api/v1/admin/transfers/7/webhooks",
            "/api/v1/admin/health",
            "/api/v1/user/chains",
            "/api/v1/user/orders/{id}/status",
            "/api/v1/user/orders/{id}/payment",
            "/api/v1/user/orders/{id}/events",
            "/checkout/{id}",
            "/checkout/{id}/payment",
            "/checkout/page.js",
            "/registry/subjects",
            "/registry/schemas/ids/1",
            "/registry/subjects/shop.orders-value/versions",
            "/health",
        ]);
        let mut query = dice
            .one(&[
                "",
                "",
                "?",
                "?limit=3&offset=1",
                "?limit=0",
                "?status=paid",
                "?verbose=1",
                "?%",
                "?a=%ff&&=;",
            ])
            .to_owned();
        if path.contains("user") || path.contains("checkout") && dice.roll(2) == 0 {
            query = format!("?order_id={}&{}", self.id, self.link);
        }
        path.replace("{id}", id) + &query
    }

    fn body(&self, dice: &mut Dice) -> Vec<u8> {
        let mut body = match dice.roll(5) {
            0 => format!("{{\"order_id\":\"{}\"}}", self.id),
            1 => dice
                .one(&[
                    "{\"blockchain\":\"eth\",\"stablecoin\":\"USDT\"}",
                    "way=eth.USDT",
                    "{\"schema\":\"\\\"string\\\"\"}",
                ])
                .to_owned(),
            2 => dice
                .one(&[
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
            _ => new_order().to_string(),
        }
        .into_bytes();
        if dice.roll(2) == 0 {
            dice.spoil(&mut body);
        }
        body
    }

    /// A request, mostly one that is nearly good, and whether it is whole: of some the framing is spoilt too.
    fn request(&self, dice: &mut Dice) -> (Vec<u8>, bool) {
        let method = dice.one(&[
            "GET", "GET", "GET", "POST", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS",
            "PATCH", "TRACE", "X",
        ]);
        let mut path = self.path(dice).into_bytes();
        if dice.roll(4) == 0 {
            dice.spoil(&mut path);
            path.retain(|byte| *byte > b' ' && *byte < 0x7f);
        }
        let body = self.body(dice);
        let time = NOW + [0, 0, 0, 0, 299, -299, 301, -301][dice.roll(8)];
        let signature = sign_service(&Secret::new(MERCHANT_SECRET), UnixSeconds(time), &body);
        let mut head = format!("{method} ").into_bytes();
        head.extend(path);
        head.extend(
            format!(" HTTP/1.1\r\nhost: pay.test\r\ncontent-length: {}\r\n", body.len()).bytes(),
        );
        for (name, value) in [
            ("service-signature", &*signature),
            ("service-admin-authorization", ADMIN_SECRET),
            ("idempotency-key", dice.one(&["a", "b", "c", ""])),
            ("cookie", &self.cookie),
            ("origin", dice.one(&["https://shop.test", "null"])),
            ("accept-language", dice.one(&["de;q=0.5,*", "x;q=q", ",,,"])),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("x-forwarded-proto", "https"),
            ("sec-fetch-site", "same-origin"),
            (
                "content-type",
                dice.one(&[
                    "application/json",
                    "text/plain; charset=\"",
                    "application/x-www-form-urlencoded",
                ]),
            ),
            ("connection", "keep-alive, x"),
        ] {
            // What gives authority is there mostly.
            if dice.roll(8) < if name.starts_with("service") { 7 } else { 3 } {
                let mut value = value.as_bytes().to_vec();
                if dice.roll(10) == 0 {
                    dice.spoil(&mut value);
                    value.retain(|byte| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t');
                }
                head.extend(name.bytes().chain(*b": ").chain(value).chain(*b"\r\n"));
            }
        }
        head.extend(b"\r\n");
        head.extend(body);
        let is_whole = dice.roll(20) > 0;
        if !is_whole {
            dice.spoil(&mut head);
        }
        (head, is_whole)
    }
}

/// The status of the answer, and whether the connection can be used again; none where it ended without one.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_comes_is_the_servers_fault() {
    let number = |name: &str, usual: usize| {
        std::env::var_os(name).map_or(usual, |text| text.to_str().unwrap().parse().unwrap())
    };
    let (requests, seed) =
        (number("TIDEMARK_FUZZ_REQUESTS", 20_000), number("TIDEMARK_FUZZ_SEED", 1));
    let mut world = World::start().await;
    // A request whose length was spoilt waits for more.
    let brief = Duration::from_secs(2);
    world.connections = Connections { header_timeout: brief, body_timeout: brief, ..CONNECTIONS };
    world.serve(config()).await;
    let id = world.create(&new_order()).await;
    let link = world.link(&id);
    let parts = Arc::new(Parts { cookie: format!("checkout_{id}={link}"), id, link });
    let left = Arc::new(AtomicUsize::new(requests));
    let clients = (0..CLIENTS).map(|client| {
        let (parts, left, address) = (parts.clone(), left.clone(), world.address().to_owned());
        let mut dice = Dice((seed as u64) << 32 | (client as u64 + 1));
        tokio::spawn(async move {
            let mut statuses = BTreeMap::<u16, usize>::new();
            let mut open: Option<TcpStream> = None;
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
            {
                let (request, is_whole) = parts.request(&mut dice);
                let shown = || String::from_utf8_lossy(&request).into_owned();
                // A connection that was used may just have been closed: then once more, as clients do.
                let mut answer = None;
                for used in [open.take(), None] {
                    let was_used = used.is_some();
                    let mut stream = match used {
                        Some(stream) => stream,
                        None => TcpStream::connect(&address).await.unwrap(),
                    };
                    let asked = timeout(Duration::from_secs(60), ask(&mut stream, &request)).await;
                    answer = asked.unwrap_or_else(|_| panic!("silence after {}", shown()));
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
                open = open.filter(|_| is_reusable && is_whole);
            }
            statuses
        })
    });
    let mut statuses = BTreeMap::<u16, usize>::new();
    for client in clients.collect::<Vec<_>>() {
        for (status, count) in client.await.unwrap() {
            *statuses.entry(status).or_default() += count;
        }
    }
    // Otherwise nothing behind the first checks was reached.
    for status in [200, 201, 303, 400, 401, 404, 405] {
        assert!(statuses.contains_key(&status), "{statuses:?}");
    }
    assert!(!world.create(&new_order()).await.is_empty(), "it still takes orders");
}
