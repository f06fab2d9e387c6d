//! The checkout page asks nobody to pay twice.

use schemas::record::{Order, StopScope, Transfer};
use schemas::{
    Blockchain, DepositState, Hash, Stablecoin, Topic, TransferId, TransferStatus, UnknownReason,
};
use store::Change;
use testkit::eventually;

use crate::page::{Visitor, awaited, has, has_none, waiting};
use crate::world::{World, wallet};

/// Text by which the page's script remembers the payments of a browser's wallet.
fn key(page: &str) -> String {
    let (_, rest) = page.split_once("data-deposit=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// The deposit that is opened again has the amount of the first, and takes the payment that was sent to that.
#[tokio::test]
async fn a_way_chosen_again_is_not_paid_again() {
    let (world, id) = World::start().await.with_order().await;
    let visitor = Visitor::enter(&world, &id).await;
    let first = key(&visitor.submit("payment", "way=eth.DAI").await);
    let other = key(&visitor.submit("payment", "way=tron.USDT").await);
    assert_ne!(first, other);
    let replaced = || async {
        let rows = world.records::<Order>(Topic::Orders);
        let is_replaced = |row: &Order| {
            let mut states = row.deposits.iter().map(|deposit| deposit.state);
            row.order_id.to_string() == id && states.any(|of| of == DepositState::Replaced)
        };
        rows.into_iter().find(is_replaced)
    };
    let row = eventually("the replacement", replaced).await;
    world.apply([Change::Order(row)]).await;
    let again = key(&visitor.submit("payment", "way=eth.DAI").await);
    assert_eq!(first, again);
}

/// A customer who sent too little is referred to "the amount below" only where there is one.
#[tokio::test]
async fn the_whole_amount_is_named_where_it_is_shown() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    let short = Transfer {
        status: TransferStatus::NoMatchedDeposit,
        reason: Some(UnknownReason::AmountMismatch),
        candidate_order_id: visitor.id.parse().ok(),
        ..waiting(7, "9.001234")
    };
    world.apply([Change::Transfer(short)]).await;
    let (less, again) = ("less than asked for", "The amount below is the whole amount once more");
    has(&visitor.page("").await, &[less, again, "<svg"]);
    let (stablecoin, address) = (Some(Stablecoin::Dai), None);
    world.stop(Blockchain::Eth, vec![StopScope { blockchain: None, stablecoin, address }]).await;
    let stopped = visitor.page("").await;
    world.stop(Blockchain::Eth, Vec::new()).await;
    let changing = visitor.page("?change=1").await;
    world.apply([Change::Transfer(waiting(8, "9.501234"))]).await;
    let held = visitor.page("").await;
    has(&visitor.page("?again=1").await, &[less, again, "<svg"]);
    world.change(&visitor.id, |row| row.candidates = vec![TransferId(9)]).await;
    let seen = visitor.page("").await;
    world.change(&visitor.id, |row| row.candidates.clear()).await;
    world.advance(1801);
    let over = visitor.page("").await;
    for (page, title) in [
        (stopped, "Do not pay now"),
        (changing, "Choose how to pay"),
        (held, "Do not send again yet"),
        (seen, "Payment seen"),
        (over, "The time to pay is over"),
    ] {
        has(&page, &[less, title]);
        has_none(&page, &[again, "<svg"]);
    }
}

/// The hold depends on the search where nothing else connects the payment with the order.
#[tokio::test]
async fn a_reload_beyond_the_limit_asks_for_no_payment() {
    let world = World::alone().await;
    let visitor = awaited(&world).await;
    world.apply([Change::Transfer(waiting(7, "9.50"))]).await;
    has(&visitor.page("").await, &["Waiting for your payment", "<svg"]);
    let query = format!("?tx={}", Hash([7; 32]));
    // The burst of a link.
    for _ in 0..8 {
        let page = visitor.page(&query).await;
        has(&page, &["<bdi>9.50 DAI</bdi> has arrived", "Do not send again yet"]);
        has_none(&page, &["<svg"]);
    }
    let page = visitor.page(&query).await;
    has(&page, &["The service is busy. Wait a moment", "Do not send again yet", "I have not paid"]);
    has_none(&page, &["has arrived", "<svg", &wallet(0xab).to_string()]);
    has(&visitor.page("?again=1").await, &["<svg"]);
}
