//! Signatures for customers: links, and the proof of a status.

use schemas::{OrderStatus, Secret, UnixSeconds, sign_return};

use crate::page::{Visitor, open};
use crate::world::{MERCHANT_SECRET, NOW, World, config, link};

/// Links and proofs for customers have another key than webhooks, where `link_secret` is
/// configured.
#[tokio::test]
async fn links_have_a_key_of_their_own() {
    let mut config = config();
    config.merchant.link_secret = Some(Secret::new("link-secret"));
    config.merchant.previous_link_secret = Some(Secret::new("older-link-secret"));
    config.merchant.return_url =
        Some("https://shop.test/{order_id}/{status}?proof={proof}".parse().unwrap());
    let (world, id) = World::with(config, false).await.with_order().await;
    let accepted = ["link-secret", "older-link-secret", MERCHANT_SECRET].map(|key| (key, 303));
    for (secret, status) in accepted.into_iter().chain([("another", 401)]) {
        let link = link(secret, &id, NOW + 60);
        assert_eq!(open(&world, &id, &link).await.status, status, "{secret}");
    }
    let page = Visitor::enter(&world, &id).await.page("").await;
    let (_, rest) = page.split_once(&format!("https://shop.test/{id}/pending?proof=")).unwrap();
    let (time, mac) = rest.split_once('"').unwrap().0.split_once('.').unwrap();
    assert_eq!(time, NOW.to_string());
    let made = |key: &str| {
        let order_id = id.parse().unwrap();
        sign_return(&Secret::new(key), order_id, OrderStatus::Pending, UnixSeconds(NOW))
    };
    assert_eq!(mac, made("link-secret"));
    assert_ne!(mac, made(MERCHANT_SECRET));
}
