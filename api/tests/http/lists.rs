//! Lists of the admin API beyond the interface: time ranges, cursors, single rows, CSV, unknown names.

use schemas::record::{Deposit, Order, Transfer, example};
use schemas::{Blockchain, DepositId, OrderStatus, UnixSeconds};
use serde_json::{Value, json};
use store::Change;

use crate::admin::transfers;
use crate::page::Visitor;
use crate::world::{ADMIN_SECRET, Answer, NOW, World, new_order_with, order, transfer, wallet};

/// Orders, deposits and transfers with the numbers 1 to `count`, each at second `number / 2`: most times occur twice.
async fn filled(count: u8) -> World {
    let world = World::alone().await;
    let rows = (1..=count).flat_map(|number| {
        let at = UnixSeconds(NOW + i64::from(number / 2));
        let order = Order { created_at: at, ..order(number.into()) };
        let (deposit_id, order_id) = (DepositId(number.into()), order.order_id);
        let deposit = Deposit { deposit_id, order_id, started_at: at, ..example::deposit() };
        let transfer = Transfer { created_at: at, ..transfer(number.into()) };
        [Change::Order(order), Change::Deposit(deposit), Change::Transfer(transfer)]
    });
    world.apply(rows).await;
    world
}

#[tokio::test]
async fn list_continues_behind_its_cursor() {
    let world = filled(25).await;
    for (list, field, time) in [
        ("/orders".to_owned(), "order_id", "created"),
        ("/deposits".to_owned(), "id", "started"),
        (transfers(), "id", "created"),
    ] {
        let all = world.list(&format!("{list}?limit=200"), field).await;
        assert_eq!(all.len(), 25);
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let answer = world.admin(&format!("GET {list}?limit=7{cursor}")).await;
            let page = answer.json();
            let page = page.as_array().unwrap();
            found.extend(page.iter().map(|row| row[field].clone()));
            let next = answer.header("next-cursor");
            assert_eq!(next.is_empty(), page.len() < 7, "{list}");
            if next.is_empty() {
                break;
            }
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, all, "{list}");
        let (from, before) = (NOW + 3, NOW + 9);
        let path = format!("{list}?limit=200&{time}_from={from}&{time}_before={before}");
        let part = world.list(&path, field).await;
        assert_eq!(part, all[8..20], "from a second on, before another: {list}");
    }
    for (query, text) in [
        ("cursor=7", "cursor: must be the cursor of an earlier answer"),
        ("created_from=-1", "created_from: must be a Unix time in seconds, such as 1790000000"),
        ("format=xml", "format: must be json or csv"),
    ] {
        world.admin(&format!("GET /orders?{query}")).await.refused(400, text);
    }
}

/// Commands refuse unknown names too: otherwise `dry_run` would be ignored and the command
/// executed.
#[tokio::test]
async fn unknown_query_names_stop_commands_and_health() {
    let (world, id) = World::start().await.with_order().await;
    for path in ["cancel", "mark-paid", "resend-webhook"] {
        let answer = world.admin(&format!("POST /orders/{id}/{path}?dry_run=1")).await;
        answer.refused(400, "query: \"dry_run\" is not known here, nothing is");
    }
    assert_eq!(world.commands().len(), 1, "the create");
    let answer = world.admin(&format!("GET /orders/{id}/webhooks?state=paid&Limit=1")).await;
    answer.refused(400, "query: \"state\", \"Limit\" is not one of limit, offset");
    let page = "limit, offset, cursor, format";
    let orders = format!(
        "query: \"state\" is not one of {page}, created_from, created_before, status, merchant_order_id"
    );
    world.admin("GET /orders?state=paid").await.refused(400, &orders);
    world
        .admin("GET /wallets?state=paid")
        .await
        .refused(400, "query: \"state\" is not known here, nothing is");
    let answer = world.admin("GET /health?verbose=1&verbos=1").await;
    answer.refused(400, "query: \"verbos\" is not one of verbose");
    // Load balancers add parameters of their own.
    let answer = Answer::to(world.request("GET /health?probe=1")).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("ok")));
}

/// An ignored filter would list all orders, and an ignored position would read changes from the
/// oldest.
#[tokio::test]
async fn unknown_fields_are_refused_where_orders_are_read() {
    let world = World::alone().await;
    let list = "merchant_order_id, status, created_from, created_before, cursor, limit";
    for (path, body, text) in [
        ("/orders/list", json!({ "state": "paid" }), format!("\"state\" is not one of {list}")),
        (
            "/orders/changes",
            json!({ "Since": 1, "limit": 1, "a\n": null }),
            "\"Since\", \"a\\n\" is not one of cursor, since, limit".to_owned(),
        ),
        ("/orders/status", json!({ "id": 1 }), "\"id\" is not one of order_id".to_owned()),
    ] {
        world.service(path, &body).await.refused(400, &format!("body: {text}"));
    }
    world.create(&new_order_with(&[("note", "create ignores them")])).await;
}

#[tokio::test]
async fn one_order_and_one_transfer_by_their_ids() {
    let world = filled(3).await;
    let listed = world.admin("GET /orders?limit=1").await.json();
    let id = listed[0]["order_id"].as_str().unwrap();
    assert_eq!(world.admin(&format!("GET /orders/{id}")).await.json(), listed[0]);
    let listed = world.admin(&format!("GET {}?limit=1", transfers())).await.json();
    assert_eq!(world.admin("GET /transfers/3").await.json(), listed[0]);
}

/// Support has a hash from a customer, and neither a wallet nor an id.
#[tokio::test]
async fn the_transfers_of_a_transaction_at_all_wallets() {
    let world = World::alone().await;
    let hash = schemas::Hash([0xab; 32]);
    let places = [(Blockchain::Eth, 0xab), (Blockchain::Eth, 0x02), (Blockchain::Polygon, 0xab)];
    let rows = (1..=240_i64).map(|number| {
        let mut transfer = transfer(number);
        let index = usize::try_from(number - 1).unwrap();
        // Three of the transaction at wallets of the shop, one at another's, and later ones at the first wallet.
        let (blockchain, to) = *places.get(index).unwrap_or(&places[0]);
        transfer.blockchain = blockchain;
        transfer.observation.to_address = wallet(if number == 4 { 0x77 } else { to });
        transfer.observation.tx_hash = if number <= 4 { hash } else { schemas::Hash([0xcd; 32]) };
        Change::Transfer(transfer)
    });
    world.apply(rows).await;
    let text = hash.to_string();
    for path in [text.clone(), text.trim_start_matches("0x").to_uppercase()] {
        let mut found = world.list(&format!("/transactions/{path}"), "id").await;
        found.sort_by_key(Value::as_i64);
        assert_eq!(found, [1, 2, 3], "{path}");
    }
    let one = world.admin(&format!("GET /transactions/{text}")).await.json()[0].clone();
    let id = one["id"].as_i64().unwrap();
    assert_eq!(world.admin(&format!("GET /transfers/{id}")).await.json(), one);
    let unknown = format!("/transactions/{}", "ef".repeat(32));
    assert_eq!(world.list(&unknown, "id").await, [0; 0]);
    for path in ["x", "0x01", &"01".repeat(33)] {
        let answer = world.admin(&format!("GET /transactions/{path}")).await;
        answer.refused(404, "resource not found");
    }
}

/// A wallet may have millions of transfers: only `SEARCHED_PAGES_MAX` pages of 200 are searched.
#[tokio::test]
async fn the_latest_transfers_are_searched() {
    let world = World::alone().await;
    let hash = |number: i64| {
        let mut bytes = [0; 32];
        bytes[24..].copy_from_slice(&number.to_be_bytes());
        schemas::Hash(bytes)
    };
    let rows = (1..=2001_i64).map(|number| {
        let mut transfer = transfer(number);
        transfer.observation.tx_hash = hash(number);
        Change::Transfer(transfer)
    });
    world.apply(rows).await;
    for (number, found) in [(2, vec![json!(2)]), (1, vec![])] {
        let path = format!("/transactions/{}", hash(number));
        assert_eq!(world.list(&path, "id").await, found, "{number}");
    }
}

#[tokio::test]
async fn a_list_is_a_file_of_all_its_rows() {
    let world = World::alone().await;
    let count = 450_u32;
    let status = |number| if number % 2 == 0 { OrderStatus::Paid } else { OrderStatus::Expired };
    let rows = (1..=count).map(|number| {
        let order = order(number.into());
        let merchant_order_id = format!("=cmd()\r\n\"{number}\"\0");
        let created_at = UnixSeconds(NOW + i64::from(number));
        Change::Order(Order { merchant_order_id, created_at, status: status(number), ..order })
    });
    world.apply(rows).await;
    let answer = world.admin("GET /orders?format=csv&status=paid").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/csv; charset=utf-8"));
    assert_eq!(answer.header("content-disposition"), "attachment; filename=\"orders.csv\"");
    assert_eq!(answer.header("cache-control"), "no-store");
    let head = "order_id,merchant_order_id,amount,status,created_at,webhook_url,\
                webhook_retry_count,webhook_success_at,webhook_last_tried_at,paid_by,paid_value,\
                candidates,waits_for\r\n";
    let body = answer.body.strip_prefix(head).unwrap();
    assert_eq!(body.matches(",\"paid\",").count(), 225, "more than one page, and no other status");
    let last = format!(
        "\"{}\",\"'=cmd()\r\n\"\"2\"\"\u{fffd}\",\"10.50\",\"paid\",{},\"https://shop.example/hooks\",\
         0,,,,,\"[7]\",\"[]\"\r\n",
        order(2).order_id,
        NOW + 2
    );
    assert!(body.ends_with(&last), "{last:?} does not end {body:?}");
    let page = world.admin("GET /orders?format=csv&limit=3").await;
    assert_eq!(page.body.matches("https://").count(), 3);
    assert!(!page.header("next-cursor").is_empty());
    for path in ["/deposits", &transfers()] {
        let answer = world.admin(&format!("GET {path}?format=csv")).await;
        assert_eq!((answer.status, answer.body.matches("\r\n").count()), (200, 1), "{path}");
    }
    world.faults.store_reads.set(true);
    world.admin("GET /orders?format=csv").await.refused(500, "internal server error");
}

/// Rows sent before the tables failed are a part, and no client may take it for the whole.
#[tokio::test]
async fn an_export_that_fails_does_not_end_well() {
    let world = World::alone().await;
    // Far more than the buffers between server and client hold.
    let reference = "x".repeat(255);
    let rows = (1..=20_000_u32).map(|number| {
        let merchant_order_id = reference.clone();
        Change::Order(Order { merchant_order_id, ..order(number.into()) })
    });
    world.apply(rows).await;
    let request = world.request("GET /api/v1/admin/orders?format=csv");
    let response = request.header("Service-Admin-Authorization", ADMIN_SECRET).send().await;
    let mut response = response.unwrap();
    assert_eq!(response.status(), 200);
    world.faults.store_reads.set(true);
    let failed = loop {
        match response.chunk().await {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(failed, "a part of the file passes for all of it");
}

/// Spec 2.2: stored as given, not interpreted.
#[tokio::test]
async fn spec_2_2_any_text_is_a_merchants_reference() {
    let world = World::start().await;
    for text in [
        "a\tb\r\nc",
        "\0",
        " ",
        "\u{85}\u{202e}\u{feff}",
        "<script>alert(1)</script>",
        "'; DROP TABLE orders; --",
        "{{reference}}",
        "\u{10ffff}",
        &"\u{1f600}".repeat(255),
    ] {
        let order = world.service("/orders", &new_order_with(&[("order_id", text)])).await.json();
        assert_eq!(order["merchant_order_id"], text);
        let id = order["order_id"].as_str().unwrap().to_owned();
        let status = world.service("/orders/status", &json!({ "order_id": id })).await;
        assert_eq!(status.json()["merchant_order_id"], text);
        let query: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let path = format!("/orders?merchant_order_id={query}");
        assert_eq!(world.list(&path, "order_id").await, [json!(id)]);
        let page = Visitor::enter(&world, &id).await.page("").await;
        assert!(!page.contains("<script>alert") && !page.contains('\0'), "{text:?}");
    }
}
