//! Secrets with names and scopes, and what operators may do beside the interface.

use schemas::record::{Order, OrderCommandBody};
use schemas::{OrderCause, OrderStatus, Secret, Topic, TransferId};
use serde_json::json;
use tidemark_api::{AdminSecret, Config, Scope};

use crate::world::{ADMIN_SECRET, Answer, NOW, UNKNOWN_ORDER, World, config, new_order};

const READER: &str = "secret-of-the-books";
const OPERATOR: &str = "secret-of-the-night-shift";

fn with_operators() -> Config {
    let of = |name: &str, scope, secret| AdminSecret {
        name: name.to_owned(),
        scope,
        secret: Secret::new(secret),
    };
    let operators =
        vec![of("books", Scope::Read, READER), of("night-shift", Scope::Operate, OPERATOR)];
    Config { operators, ..config() }
}

async fn by(world: &World, secret: &str, route: &str) -> Answer {
    let request = world.request(&route.replacen(' ', " /api/v1/admin", 1));
    Answer::to(request.header("Service-Admin-Authorization", secret)).await
}

#[tokio::test]
async fn a_secret_may_do_what_its_scope_says() {
    let world = World::with(with_operators(), true).await;
    let id = world.create(&new_order()).await;
    for secret in [ADMIN_SECRET, READER, OPERATOR] {
        for route in [
            "GET /orders".to_owned(),
            format!("GET /orders/{id}"),
            format!("GET /orders/{id}/webhooks"),
            "GET /deposits".to_owned(),
            "GET /wallets".to_owned(),
            "GET /health?verbose=1".to_owned(),
        ] {
            assert_eq!(by(&world, secret, &route).await.status, 200, "{route}");
        }
    }
    let before = world.commands().len();
    for route in [
        format!("POST /orders/{id}/cancel"),
        format!("POST /orders/{id}/mark-paid"),
        format!("POST /orders/{id}/resend-webhook"),
        format!("POST /orders/{UNKNOWN_ORDER}/mark-paid"),
        "POST /transfers/7/resend-webhook".to_owned(),
    ] {
        by(&world, READER, &route).await.refused(403, "this secret may only read");
    }
    assert_eq!(world.commands().len(), before, "a refused command is no command");
    let paid = by(&world, OPERATOR, &format!("POST /orders/{id}/mark-paid")).await;
    assert_eq!((paid.status, &paid.json()["status"]), (200, &json!("paid")));
    for secret in ["secret-of-the-book", "secret-of-the-books2", "books", ""] {
        by(&world, secret, "GET /orders").await.refused(401, "invalid admin secret");
    }
}

#[tokio::test]
async fn an_operator_cancels_what_waits_and_nothing_else() {
    let world = World::start().await;
    let (waiting, seen, paid) = (
        world.create(&new_order()).await,
        world.create(&new_order()).await,
        world.create(&new_order()).await,
    );
    let cancel = |id: &str| format!("POST /orders/{id}/cancel");
    let answer = world.admin(&cancel(&waiting)).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("cancelled")));
    let listed = world.admin(&format!("GET /orders/{waiting}")).await;
    assert_eq!(listed.json(), answer.json(), "the operator reads their own write");
    world.admin(&cancel(&waiting)).await.refused(409, "order is not pending");

    world.command(&seen, OrderCommandBody::CandidateSeen { transfer_id: TransferId(7) }).await;
    let refusal = "a payment for this order was already seen";
    world.admin(&cancel(&seen)).await.refused(409, refusal);
    assert_eq!(world.admin(&format!("POST /orders/{paid}/mark-paid")).await.status, 200);
    world.admin(&cancel(&paid)).await.refused(409, "order is not pending");

    let orders = world.records::<Order>(Topic::Orders);
    let cancelled: Vec<_> =
        orders.iter().filter(|order| order.status == OrderStatus::Cancelled).collect();
    assert_eq!(cancelled.len(), 1);
    let [order] = cancelled[..] else { panic!("{cancelled:?}") };
    assert!(order.status_changed && order.cause == OrderCause::Cancelled, "a webhook follows");
    assert_eq!(order.order_id.to_string(), waiting);
}

/// The same key signs both: a relay that sees a webhook may not send it back as a request of the merchant.
#[tokio::test]
async fn a_webhook_is_no_request() {
    let world = World::start().await;
    let id = world.create(&new_order()).await;
    let refusal = "signature verification failed";
    for path in ["/orders", "/orders/status", "/orders/list", "/orders/changes"] {
        for body in [
            json!({ "event_type": "order_status_changed", "order_id": id, "status": "paid" }),
            json!({ "event_type": "unknown_transfer", "transfer_id": 7, "timestamp": NOW }),
            json!({ "event_type": 7, "order_id": id }),
        ] {
            world.service(path, &body).await.refused(401, refusal);
        }
    }
    let named =
        json!({ "order_id": id, "note": "\"event_type\":1", "nested": { "event_type": 1 } });
    assert_eq!(world.service("/orders/status", &named).await.status, 200);
}
