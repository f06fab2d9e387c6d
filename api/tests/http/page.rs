//! The checkout page in a browser without scripts: its contents, its forms and its secrecy.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runtime::config::Connections;
use schemas::record::{Order, OrderDeposit, StopScope, Transfer, example};
use schemas::{
    Amount, Blockchain, DepositId, Hash, OrderStatus, Stablecoin, TransferId, TransferStatus,
    UnixSeconds, UnknownReason,
};
use serde_json::json;
use store::Change;
use tidemark_api::{LatePayments, TestBuyer, TestPayment};

use crate::raw::Raw;
use crate::world::{
    Answer, CONNECTIONS, MERCHANT_SECRET, NOT_FOLLOWED, NOW, UNKNOWN_ORDER, World, config, link,
    new_order, new_order_with, wallet,
};

/// A browser that holds the cookie of one order.
pub(crate) struct Visitor<'a> {
    world: &'a World,
    pub(crate) id: String,
    pub(crate) cookie: String,
}

impl<'a> Visitor<'a> {
    /// Opens the link.
    pub(crate) async fn enter(world: &'a World, id: &str) -> Self {
        let to = open(world, id, &world.link(id)).await;
        assert_eq!((to.status, to.header("set-cookie")), (303, ""), "{}", to.body);
        let answer =
            Answer::to(world.request(&format!("GET /checkout/{}", to.header("location")))).await;
        assert_eq!(answer.header("location"), format!("../{id}"), "{}", answer.body);
        let (cookie, _) = answer.header("set-cookie").split_once(';').unwrap();
        Self { world, id: id.to_owned(), cookie: cookie.to_owned() }
    }

    async fn send(&self, route: &str, body: &str) -> Answer {
        let request = self.world.request(route).header("Cookie", &self.cookie);
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        Answer::to(request.header(form.0, form.1).body(body.to_owned())).await
    }

    pub(crate) async fn page(&self, query: &str) -> String {
        let answer =
            self.send(&format!("GET /checkout/{}{query}", self.id), "").await.with_status(200);
        answer.body
    }

    /// Submits a form and returns the page to which it redirects.
    pub(crate) async fn submit(&self, what: &str, body: &str) -> String {
        let answer = self.send(&format!("POST /checkout/{}/{what}?lang=en", self.id), body).await;
        assert_eq!(answer.status, 303, "{}", answer.body);
        let to = answer.header("location").strip_prefix(&format!("../{}", self.id)).unwrap();
        self.page(to).await
    }
}

pub(crate) async fn open(world: &World, id: &str, query: &str) -> Answer {
    Answer::to(world.request(&format!("GET /checkout/{id}?{query}"))).await
}

#[track_caller]
pub(crate) fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[tokio::test]
async fn the_signature_leaves_the_address_at_once() {
    let (world, id) = World::alone().await.with_order().await;
    let query = world.link(&id);
    let to = open(&world, &id, &format!("{query}&lang=de-AT")).await;
    assert_eq!((to.status, to.header("location")), (303, &*format!("{id}/enter?{query}&lang=de")));
    let answer = open(&world, &format!("{id}/enter"), &format!("{query}&lang=de")).await;
    assert_eq!((answer.status, answer.header("location")), (303, &*format!("../{id}?lang=de")));
    // The cookie has no path: a browser uses that of the URL, which has the prefix of a proxy.
    let cookie = format!("checkout_{id}={query}; Max-Age=3600; HttpOnly; SameSite=Lax");
    assert_eq!(answer.header("set-cookie"), cookie);
    let request = world.request(&format!("GET /checkout/{id}/enter?{query}"));
    let by_tls = Answer::to(request.header("X-Forwarded-Proto", "https")).await;
    assert!(by_tls.header("set-cookie").ends_with("; SameSite=Lax; Secure"));
    let page = Visitor::enter(&world, &id).await.page("").await;
    assert!(!page.contains("sig="), "nor is it in the page");
}

#[tokio::test]
async fn a_link_that_does_not_hold_shows_nothing() {
    let world = World::alone().await;
    let (id, other) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let good = world.link(&id);
    let (exp, sig) = good.split_once('&').unwrap();
    let visitor = Visitor::enter(&world, &id).await;
    let mut answers = Vec::new();
    for (id, query) in [
        (&*id, ""),
        (&id, exp),
        (&id, sig),
        (&id, &*format!("{good}A")),
        (&id, &format!("{good}&{sig}")),
        (&id, &link("another-secret", &id, NOW + 60)),
        (&id, &link(MERCHANT_SECRET, &id, NOW - 1)),
        (&other, &good),
        ("A-1", &good),
    ] {
        answers.push((401, open(&world, id, query).await));
        answers.push((401, open(&world, &format!("{id}/enter"), query).await));
    }
    answers.push((401, open(&world, "%ff", &good).await));
    answers.push((401, open(&world, "%ff", "").await));
    answers.push((401, visitor.send(&format!("GET /checkout/{other}"), "").await));
    answers.push((401, visitor.send(&format!("GET /checkout/{id}?{good}A"), "").await));
    let renamed = visitor.cookie.replace(&id, &other);
    let request = world.request(&format!("GET /checkout/{other}")).header("Cookie", renamed);
    answers.push((401, Answer::to(request).await));
    let nobody = world.link(UNKNOWN_ORDER);
    let cookie = format!("checkout_{UNKNOWN_ORDER}={nobody}");
    let request = world.request(&format!("GET /checkout/{UNKNOWN_ORDER}")).header("Cookie", cookie);
    answers.push((404, Answer::to(request).await));
    world.advance(3601);
    answers.push((401, visitor.send(&format!("GET /checkout/{id}"), "").await));
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{}", answer.body);
        has(&answer.body, &["This link does not work"]);
        assert!(!answer.body.contains("A-1") && !answer.body.contains("10.50"), "{}", answer.body);
        assert_eq!(answer.header("set-cookie"), "");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"));
    }
}

#[tokio::test]
async fn a_page_is_for_one_browser_and_no_frame() {
    let (world, id) = World::alone().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let answer = visitor.send(&format!("GET /checkout/{id}"), "").await;
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("referrer-policy", "strict-origin"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    for banned in [" style=", " onclick=", "<style", "javascript:", "https://", "//cdn"] {
        assert!(!answer.body.contains(banned), "{banned} in {}", answer.body);
    }
    assert_eq!(answer.body.matches("<script").count(), 1);
}

#[tokio::test]
async fn the_page_and_its_files_are_small() {
    let (world, id) = World::start().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let page = visitor.submit("payment", "way=eth.DAI").await;
    let mut bytes = page.len();
    for file in ["page.css", "page.js", "icon.svg"] {
        let loaded =
            page.split('"').find(|part| part.starts_with(file)).unwrap_or_else(|| panic!("{file}"));
        assert!(loaded.contains("?v="), "{loaded}");
        let answer =
            Answer::to(world.request(&format!("GET /checkout/{loaded}"))).await.with_status(200);
        assert_eq!(answer.header("cache-control"), "public, max-age=31536000, immutable");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        bytes += answer.body.len();
    }
    assert!(bytes < 60_000, "{bytes} bytes");
}

#[tokio::test]
async fn texts_of_the_merchant_cannot_become_markup() {
    let mut config = config();
    let hostile = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;{{t:paid.title}}";
    config.merchant.name = hostile.to_owned();
    config.merchant.return_url = "https://shop.test/{merchant_order_id}?x={status}".parse().ok();
    let world = World::with(config, true).await;
    let id = world.create(&new_order_with(&[("order_id", hostile)])).await;
    let visitor = Visitor::enter(&world, &id).await;
    let mut pages = vec![visitor.page("").await, visitor.submit("payment", "way=eth.DAI").await];
    pages.push(visitor.submit("cancel", "").await);
    pages.push(visitor.page(&format!("?lang={hostile}&problem={hostile}&change={hostile}")).await);
    let escaped = "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=&#39;alert(2)&#39;&gt;\
                   &amp;amp;{{t:paid.title}}";
    for page in &pages {
        assert_eq!(page.matches("<script").count(), 1, "the page's own: {page}");
        assert!(!page.contains("<img"), "{page}");
        assert!(page.matches(escaped).count() >= 3, "title, name and reference: {page}");
    }
    let path = "%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E%3Cimg%20src%3Dx%20onerror%3D%27alert%282%29%27%3E";
    has(&pages[2], &[&format!("href=\"https://shop.test/{path}"), "?x=cancelled\""]);
}

#[tokio::test]
async fn an_order_is_chosen_and_cancelled_without_scripts() {
    let (world, id) = World::start().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let page = visitor.page("").await;
    has(&page, &["Choose how to pay", "value=\"eth.USDT\"", "value=\"tron.USDT\""]);
    let page = visitor.submit("payment", "way=eth.DAI").await;
    let row = world.row(&id).await.unwrap();
    let (address, value) = (wallet(0xab).to_string(), row.deposits[0].value.unwrap());
    let units = value.to_units(18).unwrap();
    let hex = address.trim_start_matches("0x").to_lowercase();
    let contract = "0x6B175474E89094C44Da98b954EedeAC495271d0F";
    let (whole, added) = (&value.to_string()[..5], &value.to_string()[5..]);
    has(
        &page,
        &[
            "Waiting for your payment",
            &format!("{whole}<i>{added}</i>"),
            &format!("data-copy=\"{value}\""),
            &format!("data-copy=\"{address}\""),
            &format!("ethereum:{contract}@1/transfer?address={address}&amp;uint256={units}"),
            &format!("data-data=\"0xa9059cbb{hex:0>64}{units:064x}\""),
            "<noscript><meta http-equiv=\"refresh\"",
            "exchange",
        ],
    );
    has(&visitor.page("?change=1").await, &["Choose how to pay"]);
    let page = visitor.submit("payment", "way=tron.USDT").await;
    has(&page, &["Tron (TRC20)", "href=\"tron:T", "data-to=\"\""]);
    for body in ["way=base.USDC", "way=eth.EUR", ""] {
        let page = visitor.submit("payment", body).await;
        has(&page, &["This way to pay is not available", "Choose how to pay"]);
    }
    let page = visitor.page("").await;
    has(&page, &["Waiting for your payment", "Tron (TRC20)"]);
    assert!(!page.contains("notice"), "the way that is open is as good as before: {page}");
    has(&visitor.submit("cancel", "").await, &["The order was cancelled"]);
    let page = visitor.submit("cancel", "").await;
    assert!(!page.contains("notice"), "what has ended has no more to say: {page}");
    let large = visitor.send(&format!("POST /checkout/{id}/payment"), &"x".repeat(2000)).await;
    assert_eq!(large.status, 413, "{}", large.body);
}

/// After a failed write the log may have the command.
#[tokio::test]
async fn a_failed_form_is_not_said_to_be_undone() {
    let (world, id) = World::alone().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    world.faults.log_writes.set(true);
    let page = visitor.submit("cancel", "").await;
    has(&page, &["The service is busy. Wait a moment"]);
    has_none(&page, &["could not be carried out"]);
}

#[tokio::test]
async fn forms_of_other_sites_have_no_authority() {
    let (world, id) = World::start().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let own = format!("http://{}", world.address());
    for (name, value, status) in [
        ("Sec-Fetch-Site", "cross-site", OrderStatus::Pending),
        ("Sec-Fetch-Site", "same-site", OrderStatus::Pending),
        // Old browsers, and browsers on plain HTTP, send `Origin` without `Sec-Fetch-Site`.
        ("Origin", "https://evil.test", OrderStatus::Pending),
        ("Origin", &own, OrderStatus::Cancelled),
    ] {
        let request = world.request(&format!("POST /checkout/{id}/cancel"));
        let request = request.header("Cookie", &visitor.cookie).header(name, value);
        Answer::to(request).await.with_status(303);
        assert_eq!(world.row(&id).await.unwrap().status, status, "{name}: {value}");
    }
}

/// The order with a deposit of 10.501234 DAI at the first wallet.
fn awaiting(row: Order) -> Order {
    let deposit = OrderDeposit {
        stablecoin: Stablecoin::Dai,
        deposit_id: Some(DepositId(9)),
        wallet_address: wallet(0xab),
        value: Amount::parse("10.501234").ok(),
        ..example::order().deposits[0].clone()
    };
    Order { updated_at: row.updated_at.next(row.updated_at), deposits: vec![deposit], ..row }
}

/// A transfer of DAI to the first wallet.
fn transfer(value: &str) -> Transfer {
    let mut transfer = example::transfer();
    transfer.observation.stablecoin = Stablecoin::Dai;
    transfer.observation.to_address = wallet(0xab);
    transfer.observation.value = Amount::parse(value).unwrap();
    transfer
}

#[tokio::test]
async fn every_state_of_an_order_has_its_page() {
    let mut config = config();
    config.merchant.return_url = "https://shop.test/done?o={merchant_order_id}".parse().ok();
    let (world, id) = World::with(config, false).await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let row = awaiting(world.row(&id).await.unwrap());
    let transfer =
        Transfer { status: TransferStatus::WaitingForConfirmation, ..transfer("10.501234") };
    let hash = transfer.observation.tx_hash.to_string();
    let mut at = row.updated_at;
    let mut become_ = async |change: Order| {
        at = at.next(at);
        world.apply([Change::Order(Order { updated_at: at, ..change })]).await;
        visitor.page("").await
    };
    let back = "href=\"https://shop.test/done?o=A-1\"";
    let home = "<a id=\"home\" href=\"https://shop.test/done?o=A-1\" rel=\"noreferrer\" aria-label=\"Return to Shop\">";
    has(&visitor.page("").await, &["Choose how to pay", home]);
    let page = become_(row.clone()).await;
    has(&page, &["Waiting for your payment", "data-until=", home]);
    let seen = Order { candidates: vec![TransferId(7)], ..row.clone() };
    has(&become_(seen.clone()).await, &["Payment seen", "10.501234 DAI", home]);
    world.apply([Change::Transfer(transfer.clone())]).await;
    let page = become_(seen).await;
    has(&page, &["<progress max=\"3\" value=\"", "<bdi>3</bdi> confirmations", &hash]);
    assert!(!page.contains("Cancel the order"), "it would be refused");
    let (paid_by, paid_value) = (Some(TransferId(7)), transfer.observation.value);
    let of = |status| Order { status, ..row.clone() };
    let paid = Order { paid_by, paid_value: Some(paid_value), ..of(OrderStatus::Paid) };
    let texts = ["<h1>Paid</h1>", "10.501234 DAI", &hash, back, "Return to <bdi>Shop"];
    has(&become_(paid).await, &texts);
    let manual = become_(of(OrderStatus::Paid)).await;
    has(&manual, &["marked this order as paid"]);
    assert!(!manual.contains("http-equiv"), "nothing more will come of it");
    let later = "http-equiv=\"refresh\" content=\"60\"";
    has(&become_(of(OrderStatus::Expired)).await, &["The order has expired", back, later]);
    has(&become_(of(OrderStatus::Cancelled)).await, &["The order was cancelled", back, later]);
    world.advance(1801);
    let page = become_(row).await;
    has(&page, &["The time to pay is over", "Do not send a payment now", home]);
    assert!(!page.contains(&wallet(0xab).to_string()), "nobody is led to pay");
}

/// The contract is the deposit's, even if the configuration has another one by now.
#[tokio::test]
async fn the_page_asks_for_the_contract_of_the_deposit() {
    let (world, id) = World::alone().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let mut row = awaiting(world.row(&id).await.unwrap());
    (row.deposits[0].contract, row.deposits[0].decimals) = (wallet(0xcc), 8);
    world.apply([Change::Order(row)]).await;
    let (contract, to) = (wallet(0xcc), wallet(0xab));
    let uri = format!("ethereum:{contract}@1/transfer?address={to}&amp;uint256=1050123400");
    has(&visitor.page("").await, &[&uri, &format!("{:064x}", 1_050_123_400)]);
}

#[tokio::test]
async fn nobody_is_led_to_pay_what_is_stopped() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    let id = &visitor.id;
    let status = async || world.user(id, "GET", "status", &json!({})).await.json();
    assert_eq!(status().await["stopped"], false);
    let (stablecoin, address) = (Some(Stablecoin::Dai), None);
    world.stop(Blockchain::Eth, vec![StopScope { blockchain: None, stablecoin, address }]).await;
    assert_eq!(status().await["stopped"], true);
    for (language, text) in [
        ("en", "Do not pay now"),
        ("de", "Bitte jetzt nicht bezahlen"),
        ("es", "No pague ahora"),
        ("zh", "请暂时不要付款"),
        ("ar", "لا تدفع الآن"),
    ] {
        let page = visitor.page(&format!("?lang={language}")).await;
        has(&page, &[text]);
        has_none(&page, &[&wallet(0xab).to_string()]);
    }
    let page = visitor.page("?change=1").await;
    has(&page, &["value=\"eth.USDT\""]);
    has_none(&page, &["eth.DAI"]);
    world.pay(id, "eth", "DAI").await.refused(409, NOT_FOLLOWED);
    world.stop(Blockchain::Eth, Vec::new()).await;
    has(&visitor.page("").await, &["Waiting for your payment"]);
    assert_eq!(world.pay(id, "eth", "DAI").await.status, 201);
}

#[tokio::test]
async fn a_page_without_a_way_to_pay_asks_again() {
    let mut config = config();
    config.matching.head_age_max = Duration::from_secs(600);
    let (world, id) = World::with(config.clone(), false).await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    assert!(!visitor.page("").await.contains("http-equiv"), "a choice is not interrupted");
    world.advance(601);
    let none = ["No payment can be taken", "http-equiv=\"refresh\" content=\"60\""];
    has(&visitor.page("").await, &none);
    world.watch(&config.wallets[0]).await;
    has(&visitor.page("").await, &["value=\"eth.USDT\""]);
}

/// A transfer that waits for its confirmation, with the hash of this number.
pub(crate) fn waiting(number: u8, value: &str) -> Transfer {
    let mut transfer = Transfer {
        transfer_id: TransferId(i64::from(number)),
        status: TransferStatus::WaitingForConfirmation,
        fulfillment_id: None,
        order_id: None,
        deposit_id: None,
        ..transfer(value)
    };
    transfer.created_at = UnixSeconds(NOW + 60);
    transfer.block.timestamp = transfer.created_at;
    transfer.observation.tx_hash = Hash([number; 32]);
    transfer
}

/// An order that awaits 10.501234 DAI and costs 10.50, and its page.
pub(crate) async fn awaited(world: &World) -> Visitor<'_> {
    let id = world.create(&new_order()).await;
    let visitor = Visitor::enter(world, &id).await;
    world.apply([Change::Order(awaiting(world.row(&id).await.unwrap()))]).await;
    visitor
}

#[track_caller]
pub(crate) fn has_none(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(!page.contains(part), "{part} is in {page}");
    }
}

#[tokio::test]
async fn what_does_not_pay_the_order_is_explained() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    let id = &visitor.id;
    let mut at = transfer("1").updated_at;
    use UnknownReason as Reason;
    let less = "<bdi>9.001234 DAI</bdi> arrived that is <bdi>1.50 DAI</bdi> less";
    let sender = "from an address that this order does not accept";
    for (reason, value, text, is_covered) in [
        (Reason::AmountMismatch, "9.001234", less, false),
        (Reason::AmountMismatch, "11.501234", "is <bdi>1.00 DAI</bdi> more than asked for", true),
        (Reason::Late, "10.501234", "after the time to pay was over", true),
        (Reason::SenderMismatch, "10.501234", sender, true),
        (Reason::AlreadyPaid, "10.501234", "A further payment of", true),
        (Reason::OrderCancelled, "10.501234", "and the order has been cancelled", true),
        (Reason::BeforeDeposit, "10.501234", "does not pay this order", true),
        (Reason::OtherContract, "10.501234", "in another token contract", true),
        (Reason::Stopped, "10.501234", "had stopped payments", true),
    ] {
        at = at.next(at);
        let stray = Transfer {
            updated_at: at,
            status: TransferStatus::NoMatchedDeposit,
            reason: Some(reason),
            candidate_order_id: id.parse().ok(),
            ..waiting(7, value)
        };
        world.apply([Change::Transfer(stray.clone())]).await;
        let page = visitor.page("").await;
        let help = "give the shop this transaction number";
        has(&page, &[text, help, &stray.observation.tx_hash.to_string()]);
        assert_eq!(page.contains("Do not send the difference"), !is_covered, "{reason}");
        assert_eq!(page.contains("<h1>Do not pay again</h1>"), is_covered, "{reason}");
        assert_eq!(page.contains("<svg"), !is_covered, "{reason}");
        let status = world.user(id, "GET", "status", &json!({})).await.json();
        assert_eq!(status["transfers"][0]["reason"], reason.as_str());
    }
    let page = awaited(&world).await.page("").await;
    assert!(!page.contains("notice"), "it was meant for another order: {page}");
}

/// The page shows the arrival at once, and asks for another payment only on request.
#[tokio::test]
async fn invariant_16_what_arrived_is_not_asked_for_again() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    world.apply([Change::Transfer(waiting(7, "8.501234"))]).await;
    let page = visitor.page("").await;
    let hash = Hash([7; 32]).to_string();
    let shown = [
        "<bdi>8.501234 DAI</bdi> has arrived. The order awaits <bdi>10.501234 DAI</bdi>",
        "<h1>Do not send again yet</h1>",
        // The window ends ten minutes after the block.
        &format!("until about <time data-at=\"{}\"", NOW + 660),
        &hash,
        "Pay again anyway",
        "I have paid and see nothing",
    ];
    has(&page, &shown);
    let paying = [&*wallet(0xab).to_string(), "<svg", "data-copy=\"10.501234\""];
    has_none(&page, &paying);
    let page = visitor.page("?again=1").await;
    has(&page, &paying);
    has(&page, &["has arrived. The order awaits", &hash]);
    let status = world.user(&visitor.id, "GET", "status", &json!({})).await.json();
    assert_eq!(status["transfers"][0]["checked_by"], NOW + 660);
    world.advance(1801);
    has(&visitor.page("").await, &["The time to pay is over", "has arrived", &hash]);
}

/// A transfer that may be another customer's is mentioned, and nothing of it is shown.
#[tokio::test]
async fn invariant_16_the_price_alone_is_not_named() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    let plain = waiting(7, "10.50");
    let hash = plain.observation.tx_hash.to_string();
    let other = Transfer { deposit_id: Some(DepositId(8)), ..waiting(6, "10.50") };
    world.apply([Change::Transfer(other.clone())]).await;
    has_none(&visitor.page("").await, &["notice", "has arrived"]);
    world.apply([Change::Transfer(plain.clone())]).await;
    let page = visitor.page("").await;
    let shown =
        ["A payment has arrived that may be yours", "enter it below", "I have not paid: show"];
    has(&page, &shown);
    has_none(&page, &[&hash, "10.50 DAI</bdi> has", "<svg"]);
    has(&visitor.page("?again=1").await, &["may be yours", "<svg"]);
    let status = world.user(&visitor.id, "GET", "status", &json!({})).await.json();
    assert_eq!((&status["payment_possible"], &status["transfers"]), (&json!(true), &json!([])));
    let page = visitor.page(&format!("?tx={hash}")).await;
    has(&page, &["<bdi>10.50 DAI</bdi> has arrived. The order awaits", &hash, "Pay again anyway"]);
    has_none(&page, &["may be yours"]);
    let at = plain.updated_at.next(plain.updated_at);
    let unknown = Transfer {
        updated_at: at,
        status: TransferStatus::NoMatchedDeposit,
        reason: Some(UnknownReason::AmountMismatch),
        candidate_order_id: visitor.id.parse().ok(),
        ..plain
    };
    world.apply([Change::Transfer(unknown)]).await;
    let page = visitor.page("").await;
    has(&page, &["may be yours and does not pay this order", "<h1>Do not pay again</h1>"]);
    has_none(&page, &[&hash, "<svg"]);
}

#[tokio::test]
async fn a_transaction_is_looked_up_without_scripts() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    let (other, far) = (waiting(6, "10.50"), waiting(5, "3.00"));
    let other = Transfer { deposit_id: Some(DepositId(8)), ..other };
    world.apply([Change::Transfer(other), Change::Transfer(far)]).await;
    has(&visitor.page("").await, &["<details class=\"card lookup\" id=\"lookup\">"]);
    for (number, text) in [
        ("xyz".to_owned(), "This is no transaction number"),
        (Hash([9; 32]).to_string(), "No payment with this number has reached"),
        (Hash([6; 32]).to_string(), "It belongs to another order"),
        (Hash([5; 32]).to_string(), "<bdi>3.00 DAI</bdi> has arrived"),
        (format!("+{}+", "05".repeat(32)), "<bdi>3.00 DAI</bdi> has arrived"),
    ] {
        let page = visitor.page(&format!("?lang=en&tx={number}")).await;
        has(&page, &[text, "id=\"lookup\" open>"]);
        has_none(&page, &["http-equiv=\"refresh\""]);
    }
    for _ in 0..8 {
        visitor.page(&format!("?tx={}", Hash([9; 32]))).await;
    }
    let page = visitor.page(&format!("?tx={}", Hash([9; 32]))).await;
    has(&page, &["The service is busy. Wait a moment"]);
    world.advance(600);
    world.change(&visitor.id, |row| row.candidates = vec![TransferId(5)]).await;
    let page = visitor.page(&format!("?tx={}", Hash([5; 32]))).await;
    has(&page, &["It pays this order, or will", "Payment seen"]);
}

/// A late payment is shown from its first sighting. The page then no longer says that none came.
#[tokio::test]
async fn late_payments_are_shown_unconfirmed() {
    let mut config = config();
    for (late, text) in [
        (LatePayments::Report, "<bdi>10.501234 DAI</bdi> arrived after the time to pay was over"),
        (LatePayments::Accept, "It will pay this order"),
    ] {
        config.orders.late_payments = late;
        let world = World::with(config.clone(), false).await;
        let visitor = awaited(&world).await;
        world.change(&visitor.id, |row| row.status = OrderStatus::Expired).await;
        has(&visitor.page("").await, &["No matching payment arrived"]);
        let mut sent = waiting(7, "10.501234");
        sent.block.timestamp = UnixSeconds(NOW + 1900);
        sent.deposit_id = Some(DepositId(9)).filter(|_| late == LatePayments::Accept);
        world.apply([Change::Transfer(sent)]).await;
        world.advance(1900);
        let page = visitor.page("").await;
        has(&page, &[text, &Hash([7; 32]).to_string(), "Do not pay or order again"]);
        has_none(&page, &["No matching payment arrived", "rder again in the shop"]);
    }
}

/// The question warns customers who have just paid.
#[tokio::test]
async fn a_cancel_is_asked_about_first() {
    let world = World::alone().await;
    let page = awaited(&world).await.page("").await;
    let (_, cancel) = page.split_once("<details class=\"cancel\"").unwrap();
    let question = cancel.find("Have you already sent the payment? Then do not cancel").unwrap();
    let button = cancel.find("<button").unwrap();
    assert!(cancel.find("<summary>Cancel the order</summary>") < Some(question));
    assert!(question < button);
    assert_eq!(page.matches("/cancel?").count(), 1);
}

/// The page says if no configured wallet takes an order: waiting would not help.
#[tokio::test]
async fn an_order_that_nothing_takes_any_more_says_never() {
    let mut world = World::alone().await;
    let id = world.create(&new_order_with(&[("blockchain", "polygon")])).await;
    let mut config = config();
    config.wallets[2].retired = true;
    world.serve(config).await;
    let page = Visitor::enter(&world, &id).await.page("").await;
    has(&page, &["This order cannot be paid here"]);
    has_none(&page, &["try again in a few minutes"]);
}

#[tokio::test]
async fn customers_read_their_own_language() {
    let (world, id) = World::alone().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    for (query, accepted, lang, dir, text) in [
        ("", "", "en", "ltr", "Choose how to pay"),
        ("", "de-DE, en;q=0.5", "de", "ltr", "Wie möchten Sie bezahlen?"),
        ("?lang=es", "de", "es", "ltr", "Elija cómo pagar"),
        ("?lang=ar", "", "ar", "rtl", "اختر طريقة الدفع"),
        ("?lang=xx", "zh-CN", "zh", "ltr", "选择付款方式"),
    ] {
        let request = world.request(&format!("GET /checkout/{id}{query}"));
        let request = request.header("Cookie", &visitor.cookie).header("Accept-Language", accepted);
        let page = Answer::to(request).await.body;
        has(&page, &[&format!("<html lang=\"{lang}\" dir=\"{dir}\">"), text, "hreflang="]);
    }
}

#[tokio::test]
async fn busy_page_is_in_the_customers_language() {
    let (mut world, id) = World::alone().await.with_order().await;
    let cookie = format!("checkout_{id}={}", world.link(&id));
    world.customer_requests = NonZeroU32::new(1);
    world.serve(config()).await;
    let ask = async |route: &str, accept: &str, language: &str| {
        let request = world.request(route).header("Cookie", &cookie).header("Accept", accept);
        Answer::to(request.header("Accept-Language", language)).await
    };
    let page = format!("GET /checkout/{id}");
    let html = "text/html,application/xhtml+xml,*/*;q=0.8";
    for _ in 0..2 {
        assert_eq!(ask(&page, html, "en").await.status, 200);
    }
    for (language, dir, text) in [
        ("en", "ltr", "The service is busy"),
        ("de", "ltr", "Der Dienst ist ausgelastet"),
        ("es", "ltr", "El servicio está ocupado"),
        ("ar", "rtl", "الخدمة مشغولة"),
        ("zh", "ltr", "服务繁忙"),
    ] {
        let answer = ask(&page, html, language).await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, "1"));
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"));
        let root = format!("<html lang=\"{language}\" dir=\"{dir}\">");
        has(&answer.body, &[&root, &format!("<h1>{text}</h1>"), "href=\"\""]);
    }
    // Scripts and streams get the short text; a form is redirected to its page.
    for accept in ["*/*", "text/event-stream", ""] {
        let text = "too many requests from this address, try again later";
        ask(&page, accept, "en").await.refused(429, text);
    }
    let form = ask(&format!("POST /checkout/{id}/cancel"), html, "en").await;
    let back = format!("../{id}?lang=en&problem=busy");
    assert_eq!((form.status, form.header("location")), (303, &*back));
    world.advance(1);
    world.faults.store_reads.set(true);
    let failed = ask(&page, html, "en").await;
    assert_eq!((failed.status, failed.header("retry-after")), (500, "1"));
    has(&failed.body, &["The service is busy"]);
}

/// The body of a form does not arrive within the limit of a body, or of the whole request.
#[tokio::test]
async fn a_form_that_takes_too_long_leads_back_to_its_page() {
    for body_timeout in [Duration::from_secs(20), Duration::from_secs(3600)] {
        let (mut world, id) = World::alone().await.with_order().await;
        world.connections = Connections { body_timeout, ..CONNECTIONS };
        world.serve(config()).await;
        let head = format!(
            "POST /checkout/{id}/payment HTTP/1.1\r\nhost: pay.test\r\naccept: text/html\r\n\
             content-type: application/x-www-form-urlencoded\r\n"
        );
        let answer = Raw::answer_without_body(&world, &head).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        assert!(answer.head.contains(&format!("location: ../{id}?lang=en&problem=busy\r\n")));
    }
}

/// Records the requested payments.
#[derive(Default)]
pub(crate) struct Buyer(Mutex<Vec<TestPayment>>);

#[async_trait]
impl TestBuyer for Buyer {
    async fn pay(&self, payment: TestPayment) -> Result<(), String> {
        self.0.lock().unwrap().push(payment);
        Ok(())
    }
}

#[tokio::test]
async fn test_buyer_only_where_the_program_gives_one() {
    let mut world = World::start().await;
    let id = world.create(&new_order_with(&[("blockchain", "eth"), ("stablecoin", "DAI")])).await;
    let visitor = Visitor::enter(&world, &id).await;
    assert!(!visitor.page("").await.contains("test-payment"));
    let answer = visitor.send(&format!("POST /checkout/{id}/test-payment"), "").await;
    answer.refused(404, "resource not found");
    let buyer = Arc::new(Buyer::default());
    world.buyer = Some(buyer.clone());
    world.serve(config()).await;
    let visitor = Visitor::enter(&world, &id).await;
    has(&visitor.page("").await, &["test-payment"]);
    visitor.submit("test-payment", "").await;
    let paid = buyer.0.lock().unwrap().clone();
    let [paid] = &paid[..] else { panic!("{paid:?}") };
    assert_eq!((paid.blockchain, paid.to), (Blockchain::Eth, wallet(0xab)));
    assert_eq!(paid.units, Amount::parse("10.50").unwrap().to_units(18).unwrap());
}
