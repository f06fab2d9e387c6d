//! The checkout page asks nobody to pay twice.

use schemas::record::Order;
use schemas::{DepositState, Topic};
use store::Change;
use testkit::eventually;

use crate::page::Visitor;
use crate::world::World;

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
