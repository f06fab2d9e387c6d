//! Choosing chain and coin.

use super::*;

#[test]
fn a_choice_is_answered_twice() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(
            opened('A', 0, 9, "10.00"),
            "A v3 pending deposit_opened answers 2 [open w1 #9 10.00]",
        )
        .ignores(opened('A', 0, 10, "10.01"));
}

#[test]
fn the_same_choice_finds_its_deposit() {
    waiting().then(
        choose('A', 5, usdt(Blockchain::Eth, &[1])),
        "A v4 pending payment_repeated answers 5 [open w1 #9 10.01]",
    );
}

#[test]
fn the_same_choice_shares_the_answer() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(choose('A', 3, usdt(Blockchain::Eth, &[1])), "")
        .then(
            opened('A', 0, 9, "10.00"),
            "A v3 pending deposit_opened answers 2 [open w1 #9 10.00]
             A v4 pending deposit_opened answers 3 [open w1 #9 10.00]",
        );
}

#[test]
fn a_refusal_answers_all_choices() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        // The second choice knows another wallet, but only the first is on its way.
        .then(choose('A', 3, usdt(Blockchain::Eth, &[1, 2])), "")
        .then(
            refused('A', 0, 1, RefusalReason::AmountsTaken),
            "A v3 pending payment_refused answers 2 [refused w1]
             A v4 pending payment_refused answers 3 [refused w1]",
        );
}

#[test]
fn another_chain_is_another_deposit() {
    waiting()
        .then(
            choose('A', 2, usdt(Blockchain::Base, &[2])),
            "base w2: A/1 open 10.00 USDT from 1050 to 2000
             A v4 pending payment_chosen answers 2 [open w1 #9 10.01] [requested w2]",
        )
        .then(
            opened('A', 1, 12, "10.00"),
            "A v5 pending deposit_opened answers 2 [open w1 #9 10.01] [open w2 #12 10.00]",
        );
}

#[test]
fn another_coin_is_another_deposit() {
    let usdc = PaymentRequest { stablecoin: Stablecoin::Usdc, ..usdt(Blockchain::Eth, &[1]) };
    waiting().then(
        choose('A', 2, usdc),
        "eth w1: A/1 open 10.00 USDC from 1050 to 2000
         A v4 pending payment_chosen answers 2 [open w1 #9 10.01] [requested w1]",
    );
}

#[test]
fn an_answered_choice_is_forgotten() {
    let pending = |book: &Book| book.machine().snapshot()[0].1.pending.len();
    let mut book = Book::new();
    book.then(create('A', None), "A v1 pending created answers 1").then(
        choose('A', 2, usdt(Blockchain::Eth, &[1])),
        "eth w1: A/0 open 10.00 USDT from 1050 to 2000
         A v2 pending payment_chosen answers 2 [requested w1]",
    );
    assert_eq!(pending(&book), 1);
    book.then(
        opened('A', 0, 9, "10.00"),
        "A v3 pending deposit_opened answers 2 [open w1 #9 10.00]",
    );
    assert_eq!(pending(&book), 0);
}

#[test]
fn wallets_are_tried_in_order() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1, 2, 3])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(
            refused('A', 0, 1, RefusalReason::AmountsTaken),
            "eth w2: A/0 open 10.00 USDT from 1050 to 2000",
        )
        .then(
            refused('A', 0, 2, RefusalReason::AmountsTaken),
            "eth w3: A/0 open 10.00 USDT from 1050 to 2000",
        )
        .then(
            opened('A', 0, 9, "10.00"),
            "A v3 pending deposit_opened answers 2 [open w3 #9 10.00]",
        );
}

#[test]
fn full_wallets_refuse_the_choice() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1, 2])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(
            refused('A', 0, 1, RefusalReason::AmountsTaken),
            "eth w2: A/0 open 10.00 USDT from 1050 to 2000",
        )
        .then(
            refused('A', 0, 2, RefusalReason::AmountsTaken),
            "A v3 pending payment_refused answers 2 [refused w2]",
        )
        .ignores(opened('A', 0, 9, "10.00"))
        .then(
            choose('A', 3, usdt(Blockchain::Eth, &[1])),
            "eth w1: A/1 open 10.00 USDT from 1050 to 2000
             A v4 pending payment_chosen answers 3 [refused w2] [requested w1]",
        );
}

#[test]
fn an_expired_refusal_ends_the_choice() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1, 2])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(
            refused('A', 0, 1, RefusalReason::Expired),
            "A v3 pending payment_refused answers 2 [refused w1]",
        )
        // No deposit can be paid any more: its own timer ends it.
        .then(tick(2001, 'A'), "A v4 expired! expired [refused w1]");
}

#[test]
fn a_choice_at_the_deadline_counts() {
    let choice = |second, id| {
        let body = OrderCommandBody::ChoosePayment(usdt(Blockchain::Eth, &[1]));
        at(second, 'A', id, body)
    };
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(choice(2001, 2), "A v2 pending not_pending answers 2")
        .then(
            choice(2000, 3),
            "eth w1: A/0 open 10.00 USDT from 2000 to 2000
             A v3 pending payment_chosen answers 3 [requested w1]",
        );
}

#[test]
fn opened_after_the_end_it_is_closed() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1, 2])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(cancel('A', 3), "A v3 cancelled! cancelled answers 3 [requested w1]")
        .then(
            opened('A', 0, 9, "10.00"),
            "eth w1: A/0 close order_cancelled
             A v4 cancelled not_pending answers 2 [open w1 #9 10.00]",
        )
        .then(
            closed('A', 0, CloseReason::OrderCancelled),
            "A v5 cancelled deposit_closed [closed w1 #9 10.00]",
        )
        .ignores(closed('A', 0, CloseReason::OrderCancelled));
}

#[test]
fn refused_after_the_end_it_stops() {
    Book::new()
        .then(create('A', None), "A v1 pending created answers 1")
        .then(
            choose('A', 2, usdt(Blockchain::Eth, &[1, 2])),
            "eth w1: A/0 open 10.00 USDT from 1050 to 2000
             A v2 pending payment_chosen answers 2 [requested w1]",
        )
        .then(mark_paid('A', 3), "A v3 paid! marked_paid answers 3 [requested w1]")
        .then(
            refused('A', 0, 1, RefusalReason::AmountsTaken),
            "A v4 paid payment_refused answers 2 [refused w1]",
        );
}

/// A lane that is away answers nothing: what waits for it is bounded, and costs no record.
#[test]
fn choices_that_wait_have_a_bound() {
    let mut state = State::new();
    decide(&mut state, &create('A', None));
    let choice = |id| choose('A', id, usdt(Blockchain::Eth, &[1]));
    assert_eq!(decide(&mut state, &choice(100)).len(), 2);
    for id in 101..200 {
        assert_eq!(decide(&mut state, &choice(id)), []);
    }
    let (_, entry) = state.snapshot().remove(0);
    assert_eq!(entry.pending.len(), PENDING_MAX);
    let answers = decide(&mut state, &opened('A', 0, 9, "10.00"));
    assert_eq!(answers.len(), PENDING_MAX, "each that waits is answered");
}

#[test]
fn deposits_have_a_bound() {
    let mut state = State::new();
    decide(&mut state, &create('A', None));
    let choice = || usdt(Blockchain::Eth, &[1]);
    for number in 0..DEPOSITS_MAX {
        let slot = i32::try_from(number).unwrap();
        let asked = decide(&mut state, &choose('A', 2, choice()));
        assert!(matches!(asked.as_slice(), [Effect::Command(open), _] if open.slot == slot));
        decide(&mut state, &refused('A', slot, 1, RefusalReason::AmountsTaken));
    }
    let effects = decide(&mut state, &choose('A', 3, choice()));
    let [Effect::Order(order)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(order.cause, OrderCause::PaymentRefused);
    assert_eq!(order.command_id, choose('A', 3, choice()).command_id);
    assert_eq!(order.deposits.len(), DEPOSITS_MAX);
}
