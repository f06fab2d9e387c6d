//! The operators' console: authentication, permissions of forms, and escaping of untrusted text.

use reqwest::RequestBuilder;
use runtime::Clock as _;
use schemas::record::{
    Alert, Attempt, AuditEntry, DeadLetter, Delivery, Order, StopScope, Transfer, example,
};
use schemas::{
    AlertKind, AttemptOutcome, AuditAction, Blockchain, OrderStatus, Partition, Stablecoin, Topic,
    TransferId, TransferStatus, UnixMicros, UnixSeconds,
};
use store::Change;
use testkit::eventually;
use url::form_urlencoded;

use crate::acts::{dead, give_up};
use crate::operators::{OPERATOR, READER, underpaid, with_operators};
use crate::world::{
    ADMIN_SECRET, Answer, NOW, UNKNOWN_ORDER, World, new_order, new_order_with, wallet,
};

const DAY: i64 = 24 * 3600;
pub(crate) const HOSTILE: &str =
    "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'\u{202e}";

/// A world whose operators have an address of their own.
pub(crate) async fn world() -> World {
    World::apart(with_operators(), true).await
}

fn with_form(request: RequestBuilder, fields: &[(&str, &str)]) -> RequestBuilder {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    request.header("Content-Type", "application/x-www-form-urlencoded").body(body)
}

async fn sign_in(world: &World, secret: &str) -> Answer {
    let request = world.at_operators("POST /console/sign-in");
    Answer::to(with_form(request, &[("secret", secret)])).await
}

/// A browser whose operator has signed in.
pub(crate) struct Browser<'a> {
    world: &'a World,
    cookie: String,
    /// CSRF token of the session's forms.
    form: String,
}

impl<'a> Browser<'a> {
    pub(crate) async fn of(world: &'a World, secret: &str) -> Self {
        let answer = sign_in(world, secret).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/console"));
        let (cookie, _) = answer.header("set-cookie").split_once(';').unwrap();
        let mut browser = Self { world, cookie: cookie.to_owned(), form: String::new() };
        let page = browser.get("/console/audit").await.with_status(200);
        let (_, rest) = page.body.split_once("name=\"form\" value=\"").unwrap();
        browser.form = rest.split('"').next().unwrap().to_owned();
        browser
    }

    /// A browser of an operator who may only read, and one of an operator who may do everything.
    pub(crate) async fn both(world: &'a World) -> [Self; 2] {
        [Self::of(world, READER).await, Self::of(world, OPERATOR).await]
    }

    fn request(&self, route: &str) -> RequestBuilder {
        self.world.at_operators(route).header("Cookie", &self.cookie)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::to(self.request(&format!("GET {path}"))).await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let own = [("form", &*self.form)];
        let fields: Vec<_> = own.iter().chain(fields).copied().collect();
        Answer::to(with_form(self.request(&format!("POST {path}")), &fields)).await
    }

    /// A page, which must exist.
    pub(crate) async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }
}

/// An unknown transfer in the tables, and an order that it is too little for.
pub(crate) async fn unknown(world: &World) -> (String, Transfer) {
    let order = world.create(&new_order()).await;
    let sent = underpaid(world);
    world.apply([Change::Transfer(sent.clone())]).await;
    (order, sent)
}

#[tokio::test]
async fn a_secret_is_given_once_and_is_nowhere_after() {
    let world = world().await;
    let form = Answer::to(world.at_operators("GET /console/sign-in")).await;
    assert!(form.body.contains("type=\"password\""), "{}", form.body);
    let answer = sign_in(&world, OPERATOR).await;
    let cookie = answer.header("set-cookie").to_owned();
    let (value, attributes) = cookie.split_once("; ").unwrap();
    let number = value.strip_prefix("tidemark_console=").unwrap();
    assert_eq!((number.len(), answer.header("location")), (64, "/console"));
    assert_eq!(attributes, "Path=/console; Max-Age=28800; HttpOnly; SameSite=Strict");
    let other = sign_in(&world, OPERATOR).await;
    assert_ne!(other.header("set-cookie"), cookie, "each session has a number of its own");
    let by_tls = world.at_operators("POST /console/sign-in").header("X-Forwarded-Proto", "https");
    let by_tls = Answer::to(with_form(by_tls, &[("secret", OPERATOR)])).await;
    assert!(by_tls.header("set-cookie").ends_with("SameSite=Strict; Secure"), "{by_tls:?}");

    let browser = Browser::of(&world, OPERATOR).await;
    let page = browser.page("/console").await;
    assert!(page.contains("night-shift") && page.contains("Sign out"), "{page}");
    let left = browser.post("/console/sign-out", &[]).await;
    assert_eq!((left.status, left.header("location")), (303, "/console/sign-in"));
    assert!(left.header("set-cookie").contains("tidemark_console=; "), "{left:?}");
    let after = browser.get("/console").await;
    assert_eq!((after.status, after.header("location")), (303, "/console/sign-in"));
    // The sign-out has ended the session itself, not just its cookie. The other session continues.
    for (cookie, status) in [(&*browser.cookie, 303), (value, 200), ("tidemark_console=", 303)] {
        let request = world.at_operators("GET /console").header("Cookie", cookie);
        assert_eq!(Answer::to(request).await.status, status, "{cookie}");
    }
}

/// A browser sends no cookie with a link from another site, such as in a message.
#[tokio::test]
async fn the_form_leads_to_the_page_that_was_asked_for() {
    let world = world().await;
    let path = "/console/orders?status=paid&merchant_order_id=A%26B";
    let asked = Answer::to(world.at_operators(&format!("GET {path}"))).await;
    let form = asked.header("location").to_owned();
    assert!(form.starts_with("/console/sign-in?to=%2Fconsole%2Forders%3Fstatus"), "{form}");
    let page = Answer::to(world.at_operators(&format!("GET {form}"))).await.body;
    let escaped = path.replace('&', "&amp;");
    assert!(page.contains(&format!("value=\"{escaped}\"")), "{page}");
    assert!(page.contains(&format!("href=\"{escaped}\"")), "{page}");
    let leads = async |secret: &str, to: &str| {
        let request = world.at_operators("POST /console/sign-in");
        Answer::to(with_form(request, &[("secret", secret), ("to", to)])).await
    };
    assert_eq!(leads(OPERATOR, path).await.header("location"), path);
    let wrong = leads("wrong", path).await;
    assert!(wrong.status == 401 && wrong.body.contains(&escaped), "{wrong:?}");
    for to in [
        "https://evil.test",
        "//evil.test",
        "/\\evil.test",
        "/console/\\evil",
        "/console/../api/v1/admin/orders",
        "/console/%2E%2e/api/v1/admin/orders",
        "/console/\r\nset-cookie: a=b",
        "/registry/subjects",
        "javascript:alert(1)",
        "",
        &format!("/console/{}", "x".repeat(400)),
    ] {
        assert_eq!(leads(OPERATOR, to).await.header("location"), "/console", "{to:?}");
        let encoded: String = form_urlencoded::byte_serialize(to.as_bytes()).collect();
        let form = world.at_operators(&format!("GET /console/sign-in?to={encoded}"));
        assert!(!Answer::to(form).await.body.contains("name=\"to\""), "{to:?}");
    }
}

#[tokio::test]
async fn a_session_ends_without_pages() {
    let world = world().await;
    let browser = Browser::of(&world, OPERATOR).await;
    world.advance(1799);
    // Fetches of the script do not extend the session.
    let live = browser.request("GET /console/alerts").header("Tidemark-Live", "1");
    assert_eq!(Answer::to(live).await.status, 200);
    world.advance(1);
    assert_eq!(browser.get("/console/alerts").await.status, 303);
}

#[tokio::test]
async fn wrong_secrets_are_limited_at_its_form() {
    let world = world().await;
    let mut statuses = Vec::new();
    for _ in 0..22 {
        let answer = sign_in(&world, "secret-of-the-night-shifts").await;
        assert!(answer.header("set-cookie").is_empty());
        assert!(answer.body.contains("role=\"alert\""), "{}", answer.body);
        statuses.push(answer.status);
    }
    assert_eq!(statuses[..20], [401; 20]);
    assert_eq!(statuses[20..], [429; 2]);
    // The Admin API there has the same limit; and a valid secret is never limited.
    let api = world.at_operators("GET /api/v1/admin/orders");
    let api = api.header("Service-Admin-Authorization", "wrong");
    assert_eq!(Answer::to(api).await.status, 429);
    assert_eq!(sign_in(&world, OPERATOR).await.status, 303);
    assert_eq!(sign_in(&world, "").await.status, 429);
}

/// The forms of all commands, for an order and a transfer.
fn commands(order: &str, transfer: TransferId) -> [String; 10] {
    [
        format!("/console/orders/{order}/cancel"),
        format!("/console/orders/{order}/mark-paid"),
        format!("/console/orders/{order}/resend-webhook"),
        format!("/console/transfers/{transfer}/attach"),
        format!("/console/transfers/{transfer}/resend-webhook"),
        "/console/stops".to_owned(),
        "/console/stops/end".to_owned(),
        "/console/alerts/resolve".to_owned(),
        "/console/dead-letters/0/replay".to_owned(),
        "/console/deliveries/redrive".to_owned(),
    ]
}

#[tokio::test]
async fn a_form_of_another_site_or_session_does_nothing() {
    let world = world().await;
    let (order, sent) = unknown(&world).await;
    let id = sent.transfer_id;
    let (own, other) = (Browser::of(&world, OPERATOR).await, Browser::of(&world, OPERATOR).await);
    let before = world.commands().len();
    for path in commands(&order, id).iter().map(String::as_str).chain(["/console/sign-out"]) {
        let route = format!("POST {path}");
        for (origin, site) in [
            ("https://evil.test", ""),
            ("null", ""),
            ("https://evil.test", "cross-site"),
            ("https://pay.test", "same-site"),
        ] {
            let mut request = own.request(&route).header("Origin", origin);
            if !site.is_empty() {
                request = request.header("Sec-Fetch-Site", site);
            }
            let answer = Answer::to(with_form(request, &[("form", &*own.form)])).await;
            assert_eq!(answer.status, 403, "{path} {origin}");
            assert!(answer.body.contains("origin not allowed"), "{}", answer.body);
        }
        for fields in [&[][..], &[("form", "")], &[("form", &*other.form)]] {
            let answer = Answer::to(with_form(own.request(&route), fields)).await;
            assert_eq!(answer.status, 403, "{path} {fields:?}");
            assert!(answer.body.contains("of another session"), "{}", answer.body);
        }
        let twice = [("form", &*own.form), ("form", &*own.form)];
        assert_eq!(Answer::to(with_form(own.request(&route), &twice)).await.status, 403);
        let nobody = with_form(world.at_operators(&route), &[("form", &*own.form)]);
        assert_eq!(Answer::to(nobody).await.header("location"), "/console/sign-in");
        let long = "x".repeat(2048);
        let answer = own.post(path, &[("long", &long)]).await;
        assert_eq!(answer.status, 413, "{path}");
        assert!(answer.body.contains("2 KiB"), "{path}: {}", answer.body);
    }
    let foreign = world.at_operators("POST /console/sign-in").header("Origin", "https://evil.test");
    let foreign = Answer::to(with_form(foreign, &[("secret", OPERATOR)])).await;
    assert_eq!((foreign.status, foreign.header("set-cookie")), (403, ""));
    assert_eq!((world.commands().len(), world.deliveries().len()), (before, 0));
    assert_eq!(world.records::<AuditEntry>(Topic::Audit), []);
    assert_eq!(own.get("/console/alerts").await.status, 200, "nobody was signed out");
}

#[tokio::test]
async fn a_secret_that_reads_sees_no_action_and_has_none() {
    let world = world().await;
    let (order, sent) = unknown(&world).await;
    let id = sent.transfer_id;
    let [reader, operator] = Browser::both(&world).await;
    let (of_order, of_transfer) =
        (format!("/console/orders/{order}"), format!("/console/transfers/{id}"));
    for (page, action) in [
        (&*of_order, "/cancel\""),
        (&of_order, "/mark-paid\""),
        // The checkout link allows choosing and cancelling.
        (&of_order, "/checkout/"),
        ("/console/chains", "/console/stops"),
        (&of_transfer, &*format!("{of_transfer}/attach")),
        (&of_transfer, "/resend-webhook\""),
    ] {
        let (read, operated) = (reader.page(page).await, operator.page(page).await);
        assert!(!read.contains(action), "{action}: {read}");
        assert!(operated.contains(action), "{action}: {operated}");
    }
    let before = world.commands().len();
    for path in commands(&order, id) {
        let answer = reader.post(&path, &[("order_id", &*order), ("accept_less", "yes")]).await;
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.body.contains("this secret may only read"), "{}", answer.body);
        let asks = reader.get(&format!("{path}?order_id={order}")).await;
        assert_eq!((asks.status, asks.body.contains("method=\"post\">")), (403, false), "{path}");
    }
    assert_eq!((world.commands().len(), world.deliveries().len()), (before, 0));
    assert_eq!(world.records::<AuditEntry>(Topic::Audit), []);
    assert_eq!(reader.post("/console/sign-out", &[]).await.status, 303);
}

/// Each form acts like its route of the Admin API, with an audit entry under the operator's name.
#[tokio::test]
async fn what_is_confirmed_is_done_and_on_record() {
    let world = world().await;
    let (order, sent) = unknown(&world).await;
    let (waiting, marked) = (world.create(&new_order()).await, world.create(&new_order()).await);
    let id = sent.transfer_id;
    let browser = Browser::of(&world, OPERATOR).await;
    let attach = format!("/console/transfers/{id}/attach");
    let asks = browser.page(&format!("{attach}?order_id={order}")).await;
    assert!(asks.contains("It brought less than the order's amount."), "{asks}");
    // Anybody can write the URL of a page, so it reports no action that the record does not confirm.
    for (path, word) in [
        (format!("/console/orders/{waiting}"), "mark-paid"),
        (format!("/console/orders/{waiting}"), "attach"),
        (format!("/console/orders/{waiting}"), "cancel"),
        (format!("/console/transfers/{id}"), "attach"),
    ] {
        let page = browser.page(&format!("{path}?done={word}")).await;
        assert!(!page.contains("class=\"done\""), "{path} {word}: {page}");
    }
    for wrong in ["", "?order_id=", "?order_id=A-1", &format!("?order_id={UNKNOWN_ORDER}")] {
        assert_eq!(browser.get(&format!("{attach}{wrong}")).await.status, 404, "{wrong}");
    }
    let refused = browser.post(&attach, &[("order_id", &*order)]).await.with_status(409);
    assert!(refused.body.contains("transfer brings less"), "{}", refused.body);

    let whole = [("order_id", &*order), ("accept_less", "yes")];
    let of_transfer = format!("/console/transfers/{id}");
    let [paid, waits, marks] =
        [&order, &waiting, &marked].map(|id| format!("/console/orders/{id}"));
    for (from, word, fields, to) in [
        (&of_transfer, "resend-webhook", &[][..], &of_transfer),
        (&of_transfer, "attach", &whole, &paid),
        (&waits, "cancel", &[], &waits),
        (&marks, "mark-paid", &[], &marks),
        (&marks, "resend-webhook", &[], &marks),
    ] {
        let (path, to) = (format!("{from}/{word}"), format!("{to}?done={word}"));
        if word != "attach" {
            assert!(browser.page(&path).await.contains("night-shift"), "{path} asks first");
        }
        let answer = browser.post(&path, fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, &*to), "{}", answer.body);
        assert!(browser.page(&to).await.contains("class=\"done\""), "{to}");
    }
    let status = async |id: &str| world.row(id).await.unwrap().status;
    assert_eq!(status(&order).await, OrderStatus::Paid);
    assert_eq!(status(&waiting).await, OrderStatus::Cancelled);
    assert_eq!(status(&marked).await, OrderStatus::Paid);
    let again =
        browser.post(&format!("/console/orders/{waiting}/cancel"), &[]).await.with_status(409);
    assert!(again.body.contains("order is not pending"), "{}", again.body);

    let entries = world.records::<AuditEntry>(Topic::Audit);
    assert!(entries.iter().all(|entry| entry.operator == "night-shift"), "{entries:?}");
    assert!(entries.iter().all(|entry| entry.client.as_deref() == Some("127.0.0.1")));
    let actions: Vec<_> = entries.iter().map(|entry| entry.action).collect();
    use AuditAction::{AttachTransfer, CancelOrder, MarkPaid, ResendOrder, ResendTransfer};
    assert_eq!(actions, [ResendTransfer, AttachTransfer, CancelOrder, MarkPaid, ResendOrder]);
    let audit = browser.page("/console/audit").await;
    assert!(audit.contains("attach transfer") && audit.contains("127.0.0.1"), "{audit}");
}

/// Its command is on the log when the service stops, and will be carried out.
#[tokio::test]
async fn a_form_without_an_answer_may_be_done() {
    let world = World::apart(with_operators(), false).await;
    let order = world.create(&new_order()).await;
    let browser = Browser::of(&world, OPERATOR).await;
    let nothing = "Nothing was changed by this page.";
    let gone = browser.post(&format!("/console/orders/{UNKNOWN_ORDER}/cancel"), &[]).await;
    assert!(gone.status == 404 && gone.body.contains(nothing), "{gone:?}");
    let before = world.commands().len();
    let stopping = async {
        let commanded = || async { (world.commands().len() > before).then_some(()) };
        eventually("the command", commanded).await;
        world.stop.cancel();
    };
    let path = format!("/console/orders/{order}/cancel");
    let (answer, ()) = tokio::join!(browser.post(&path, &[]), stopping);
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("It may have been done all the same"), "{}", answer.body);
    assert!(!answer.body.contains(nothing), "{}", answer.body);
}

#[tokio::test]
async fn payments_are_stopped_and_resumed() {
    let world = world().await;
    let browser = Browser::of(&world, OPERATOR).await;
    let asks = browser.page("/console/stops?subject=USDT&blockchain=eth").await;
    assert!(asks.contains("Stop these payments?"), "{asks}");
    let usdt = [("subject", "USDT"), ("blockchain", "eth")];
    let wrong = browser.post("/console/stops", &[("subject", "gold"), ("blockchain", "")]).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    let nowhere = wallet(0x77).to_string();
    browser.post("/console/stops", &[("subject", &*nowhere)]).await.with_status(400);
    let stopped = browser.post("/console/stops", &usdt).await;
    assert_eq!((stopped.status, stopped.header("location")), (303, "/console/chains?done=stop"));
    let scope = StopScope {
        blockchain: Some(Blockchain::Eth),
        stablecoin: Some(Stablecoin::Usdt),
        address: None,
    };
    world.stop(Blockchain::Eth, vec![scope]).await;
    let listed = browser.page("/console/chains?done=stop").await;
    assert!(listed.contains("USDT is stopped, on this chain alone"), "{listed}");
    let end = "/console/stops/end?subject=USDT&amp;blockchain=eth";
    assert!(listed.contains(&format!("href=\"{end}\"")), "{listed}");
    assert!(browser.page("/console").await.contains("payments are stopped"));
    let resumed = browser.post("/console/stops/end", &usdt).await;
    assert_eq!((resumed.status, resumed.header("location")), (303, "/console/chains?done=resume"));
    let entries = world.records::<AuditEntry>(Topic::Audit);
    let entries: Vec<_> = entries.iter().map(|of| (of.action, of.subject.as_deref())).collect();
    let subject = Some("USDT on eth");
    assert_eq!(entries, [(AuditAction::Stop, subject), (AuditAction::Resume, subject)]);
}

#[tokio::test]
async fn texts_of_merchants_and_receivers_stay_texts() {
    let world = world().await;
    let order = world.create(&new_order_with(&[("order_id", HOSTILE)])).await;
    let attempt = Attempt {
        order_id: Some(order.parse().unwrap()),
        outcome: AttemptOutcome::Status,
        cause: HOSTILE.to_owned(),
        answer: HOSTILE.to_owned(),
        ..example::attempt()
    };
    world.apply([Change::Attempt(attempt)]).await;
    let browser = Browser::of(&world, OPERATOR).await;
    let query: String = form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    for path in [
        format!("/console/orders/{order}"),
        format!("/console/orders/{order}/cancel"),
        "/console/orders".to_owned(),
        format!("/console/orders?merchant_order_id={query}"),
        format!("/console/search?q={query}x"),
        format!("/console/orders/{query}"),
        format!("/console/orders/{order}?done={query}"),
        format!("/console/orders?status={query}"),
    ] {
        let page = browser.get(&path).await.body;
        assert!(!page.contains("<script>") && !page.contains("<img"), "{path}: {page}");
    }
    let page = browser.page(&format!("/console/orders/{order}")).await;
    assert!(page.matches("&lt;script&gt;alert(1)&lt;/script&gt;").count() >= 3, "{page}");
}

#[tokio::test]
async fn no_page_is_kept_framed_or_fed_by_others() {
    let world = world().await;
    let browser = Browser::of(&world, OPERATOR).await;
    for path in ["/console", "/console/orders", "/console/sign-in", "/console/orders/x"] {
        let page = browser.get(path).await;
        let policy = page.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(page.header(name), value, "{path}: {name}");
        }
        assert!(!page.body.contains("style=\"") && !page.body.contains(" onclick"), "{path}");
    }
}

#[tokio::test]
async fn everything_is_found_and_listed() {
    let world = world().await;
    let (order, sent) = unknown(&world).await;
    let id = sent.transfer_id;
    let browser = Browser::of(&world, READER).await;
    let search = async |text: &str| {
        let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        browser.get(&format!("/console/search?q={query}")).await
    };
    let of_order = format!("/console/orders/{order}");
    for (text, to) in
        [(&*order, &*of_order), (&format!(" {id}"), &format!("/console/transfers/{id}"))]
    {
        assert_eq!(search(text).await.header("location"), to, "{text}");
    }
    // The tables may have the order before its topic has.
    let found = async || (search("A-1").await.header("location") == of_order).then_some(());
    eventually("an order by its reference", found).await;
    let none = search("0x0000000000000000000000000000000000000001").await.with_status(200);
    assert!(none.body.contains("Nothing is known of it"), "{}", none.body);
    for (path, text) in [
        ("/console", "Chains"),
        ("/console/orders?status=pending&merchant_order_id=", "A-1"),
        ("/console/deposits", "No deposit is open."),
        ("/console/transfers?status=no_matched_deposit", "9.00 USDT"),
        ("/console/unknown", "Orders"),
        ("/console/deliveries", "No webhook was given up"),
        ("/console/chains", &wallet(0xab).to_string()),
        ("/console/alerts", "No alert."),
        ("/console/dead-letters", "No record was given up."),
        ("/console/audit", "No operator has done anything."),
    ] {
        let page = browser.page(path).await;
        assert!(page.contains(text), "{path}: {page}");
    }
    for (path, status) in [
        ("/console/orders?status=no", 400),
        ("/console/orders?cursor=no", 400),
        ("/console/alerts?before=no", 400),
        ("/console/orders/x", 404),
        ("/console/transfers/99", 404),
        (&format!("/console/orders/{UNKNOWN_ORDER}"), 404),
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, status, "{path}");
        assert!(page.body.contains("role=\"alert\""), "{path}: a page says why: {}", page.body);
    }
    world.faults.store_reads.set(true);
    assert_eq!(browser.get("/console").await.status, 200, "as it was within three seconds");
    world.advance(3);
    let failed = browser.get("/console").await.with_status(500);
    assert!(failed.body.contains("internal server error"), "{}", failed.body);
    world.faults.store_reads.set(false);
    assert_eq!(browser.get("/console/chains").await.status, 500, "nor is a failure asked anew");
    world.advance(3);
    assert_eq!(browser.get("/console/chains").await.status, 200);
    let file = browser.get("/console/export/orders?format=csv").await;
    let admin = world.at_operators("GET /api/v1/admin/orders?format=csv");
    let admin = Answer::to(admin.header("Service-Admin-Authorization", ADMIN_SECRET)).await;
    assert_eq!((file.status, &file.body), (200, &admin.body), "the file of the Admin API");
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"orders.csv\"");
}

/// Problems that need a person come first, with advice; and the records behind them are listed.
#[tokio::test]
async fn what_is_wrong_comes_first() {
    let (world, order) = world().await.with_order().await;
    let browser = Browser::of(&world, READER).await;
    // Each head that a world writes lists a held transfer.
    let held = browser.page("/console").await;
    for text in ["3 things need you", "endpoints of tron disagree"] {
        assert!(held.contains(text), "{text}: {held}");
    }
    world.advance(60);
    let now = world.clock.now();
    let alert = |kind: AlertKind, message: &str| Alert {
        alert_id: format!("{}/eth", kind.as_str()),
        kind,
        blockchain: Some(Blockchain::Eth),
        message: message.to_owned(),
        raised_at: now,
        ..example::alert()
    };
    let halted = alert(AlertKind::ChainHalted, "no endpoint answers <b>");
    let late = alert(AlertKind::LateFind, "a second check had more <b>");
    for alert in [halted, late] {
        world.write(Topic::Alerts, Partition(0), &alert).await;
    }
    let reason = "no such word <b>".to_owned();
    let letter = DeadLetter { reason, failed_at: now, ..example::dead_letter() };
    world.write(Topic::DeadLetters, Partition(0), &letter).await;
    let dead =
        Delivery { order_id: Some(order.parse().unwrap()), requests: 12, ..example::delivery() };
    world.write(Topic::WebhooksDead, Partition(1), &dead).await;
    let page = browser.page("/console").await;
    let texts = [
        "6 things need you",
        "eth is halted since",
        "tidemark chain status",
        "1 webhooks were given up and not delivered since",
        "late_find since",
    ];
    let places: Vec<_> = texts.iter().map(|text| page.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {page}");
    for (path, text) in [
        ("/console/alerts", "a second check had more &lt;b&gt;"),
        ("/console/dead-letters", "no such word &lt;b&gt;"),
        ("/console/deliveries", "not delivered"),
        ("/console/chains", "no endpoint answers &lt;b&gt;"),
    ] {
        let page = browser.page(path).await;
        assert!(page.contains(text) && !page.contains("<b>a"), "{path}: {page}");
    }
    let attempt = Attempt {
        order_id: dead.order_id,
        outcome: AttemptOutcome::Delivered,
        attempted_at: world.clock.now().seconds().plus(1).micros(),
        ..example::attempt()
    };
    world.apply([Change::Attempt(attempt)]).await;
    let page = browser.page("/console/deliveries").await;
    assert!(page.contains("since it was given up"), "{page}");
    world.advance(3);
    assert!(browser.page("/console").await.contains("5 things need you"));
}

#[tokio::test]
async fn a_paying_transfer_names_its_order() {
    let world = world().await;
    let (candidate, sent) = unknown(&world).await;
    let order = world.create(&new_order()).await;
    let paying = Transfer {
        status: TransferStatus::Matched,
        order_id: Some(order.parse().unwrap()),
        candidate_order_id: Some(candidate.parse().unwrap()),
        reason: None,
        updated_at: UnixMicros(sent.updated_at.0 + 1),
        ..sent
    };
    let page = format!("/console/transfers/{}", paying.transfer_id);
    world.apply([Change::Transfer(paying)]).await;
    let page = Browser::of(&world, READER).await.page(&page).await;
    assert!(page.contains(&format!("It pays order {order}.")), "{page}");
}

#[tokio::test]
async fn lists_have_every_row_by_pages() {
    let world = world().await;
    let orders = (1..=120_u128).map(|number| {
        let merchant_order_id = format!("B-{number:03}");
        Change::Order(Order { merchant_order_id, ..crate::world::order(number) })
    });
    world.apply(orders).await;
    let transfers = (1..=120).map(|number| {
        let status = TransferStatus::Matched;
        Change::Transfer(Transfer { transfer_id: TransferId(number), status, ..underpaid(&world) })
    });
    world.apply(transfers).await;
    for number in 0..=120 {
        let order = Some(crate::world::order(number).order_id);
        let host = if number == 0 { "b.example" } else { "a.example" };
        give_up(&world, dead(order, None, host)).await;
    }
    let browser = Browser::of(&world, READER).await;
    for (first, link) in [
        ("/console/orders", "B-"),
        ("/console/transfers", "/console/transfers/"),
        ("/console/deliveries?host=a.example", "/console/delivery?"),
    ] {
        let (mut next, mut found, mut pages) = (first.to_owned(), 0, 0);
        loop {
            let page = browser.page(&next).await;
            let rows = page.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
            found += rows.matches(link).count();
            pages += 1;
            let Some((before, _)) = page.split_once("\">Older</a>") else { break };
            next = before.rsplit("href=\"").next().unwrap().replace("&amp;", "&");
        }
        assert_eq!((found, pages), (120, 3), "{first}");
    }
}

/// Rows at the edge of a day (`DAY_SECONDS`), and of a month (`GIVEN_UP_SECONDS`), are shown.
#[tokio::test]
async fn what_is_older_than_a_day_or_a_month_is_not_shown() {
    let world = world().await;
    let now = UnixSeconds(NOW);
    let midnight = UnixSeconds(now.0 - now.0 % DAY);
    let rows = [0, -1].into_iter().zip(1..).flat_map(|(before, number)| {
        let created_at = midnight.plus(before);
        let status = OrderStatus::Paid;
        let order = Order { status, created_at, ..crate::world::order(number) };
        let transfer_id = TransferId(i64::try_from(number).unwrap());
        let created_at = now.plus(before - DAY);
        let unknown = Transfer { transfer_id, created_at, ..underpaid(&world) };
        [Change::Order(order), Change::Transfer(unknown)]
    });
    world.apply(rows).await;
    world.write(Topic::WebhooksDead, Partition(1), &example::delivery()).await;
    let page = Browser::of(&world, READER).await.page("/console").await;
    for text in ["<b>1</b> of today&#39;s orders paid", "<b>1</b> unknown payments in a day"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let is_shown = async || {
        let page = Browser::of(&world, READER).await.page("/console/deliveries").await;
        !page.contains("No webhook was given up")
    };
    world.advance(30 * 24 * 3600);
    assert!(is_shown().await);
    world.advance(1);
    assert!(!is_shown().await);
}
