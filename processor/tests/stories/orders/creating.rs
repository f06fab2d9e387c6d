//! Creation of an order.

use super::*;

#[test]
fn an_order_is_pending() {
    created();
    let effects = decide(&mut State::new(), &create('A', None));
    let [Effect::Order(order)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!((order.created_at.0, order.expires_at.0), (1000, 2000));
    assert_eq!(order.merchant_order_id, "shop-A");
    assert_eq!((order.amount, order.amount_text.as_str()), (amount("10.00"), "10.00"));
    assert_eq!(order.webhook_url, "https://shop.example/hooks");
}

#[test]
fn the_same_create_changes_nothing() {
    let mut other = create('A', None);
    if let OrderCommandBody::Create(create) = &mut other.body {
        create.amount = amount("99");
    }
    created().ignores(create('A', None)).ignores(other);
    waiting().ignores(create('A', Some(usdt(Blockchain::Eth, &[1]))));
    ended(OrderStatus::Paid).ignores(create('A', None));
}

#[test]
fn created_with_a_choice_it_opens() {
    waiting();
}

#[test]
fn the_expected_sender_is_passed_on() {
    let mut command = create('A', Some(usdt(Blockchain::Eth, &[1])));
    if let OrderCommandBody::Create(create) = &mut command.body {
        create.expecting_wallet_address = Some(wallet(7));
    }
    Book::new().then(
        command,
        "A v1 created answers 1
         eth w1: A/0 open 10.00 USDT from 1000 to 2000 only from w7
         A v2 payment_chosen answers 1 [requested w1]",
    );
}

#[test]
fn created_without_a_wallet_it_waits() {
    Book::new().then(
        create('A', Some(usdt(Blockchain::Eth, &[]))),
        "A v1 created answers 1; A v2 payment_refused answers 1",
    );
}

#[test]
fn an_unknown_order_refuses_a_settle() {
    assert_eq!(knows_nothing(Book::new()).machine().rows(), 0);
}

/// After a restore, versions of this order may be lost. Receivers identify webhooks by version, so none is reused.
#[test]
fn versions_begin_where_the_command_says() {
    let mut command = create('A', None);
    if let OrderCommandBody::Create(create) = &mut command.body {
        create.first_version = 1_790_000_000;
    }
    Book::new().then(command, "A v1790000000 created answers 1");
}
