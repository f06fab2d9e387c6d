//! Choice of chain and coin.

use super::*;

#[test]
fn a_choice_is_answered_twice() {
    chosen()
        .then(opened('A', 0, 9, "10.00"), "A v3 deposit_opened answers 2 [open w1 #9 10.00]")
        .ignores(opened('A', 0, 10, "10.01"));
}

#[test]
fn the_same_choice_finds_its_deposit() {
    waiting().then(
        choose('A', 5, usdt(Blockchain::Eth, &[1])),
        "A v4 payment_repeated answers 5 [open w1 #9 10.01]",
    );
}

#[test]
fn the_same_choice_shares_the_answer() {
    chosen().then(choose('A', 3, usdt(Blockchain::Eth, &[1])), "").then(
        opened('A', 0, 9, "10.00"),
        "A v3 deposit_opened answers 2 [open w1 #9 10.00]
             A v4 deposit_opened answers 3 [open w1 #9 10.00]",
    );
}

#[test]
fn a_refusal_answers_all_choices() {
    chosen()
        // The second choice has another wallet, but only the first is in flight.
        .then(choose('A', 3, usdt(Blockchain::Eth, &[1, 2])), "")
        .then(
            full('A', 0, 1),
            "A v3 payment_refused answers 2 [refused w1]
             A v4 payment_refused answers 3 [refused w1]",
        );
}

#[test]
fn another_chain_is_another_deposit() {
    given_up()
        // The first chain again, in a new slot. The old deposit is dropped when the new one gets its amount.
        .then(
            choose('A', 3, usdt(Blockchain::Eth, &[1])),
            "eth w1: A/2 open 10.00 USDT from 1050 to 2000
             A v7 payment_chosen answers 3 [replaced w1 #9 10.01] [open w2 #12 10.00] [requested w1]",
        )
        .then(
            opened('A', 2, 13, "10.01"),
            "base w2: A/1 close replaced
             A v8 deposit_opened answers 3 [open w2 #12 10.00] [open w1 #13 10.01]",
        )
        .ignores(expired('A', 0));
}

/// At another wallet the amount is another reservation: both deposits may be paid.
#[test]
fn what_keeps_its_amount_is_awaited() {
    given_up()
        .then(
            choose('A', 3, usdt(Blockchain::Eth, &[3])),
            "eth w3: A/2 open 10.00 USDT from 1050 to 2000
             A v7 payment_chosen answers 3 [replaced w1 #9 10.01] [open w2 #12 10.00] [requested w3]",
        )
        .then(
            opened('A', 2, 13, "10.01"),
            "base w2: A/1 close replaced
             A v8 deposit_opened answers 3 [replaced w1 #9 10.01] [open w2 #12 10.00] [open w3 #13 10.01]",
        );
}

#[test]
fn another_coin_is_another_deposit() {
    let usdc = PaymentRequest { stablecoin: Stablecoin::Usdc, ..usdt(Blockchain::Eth, &[1]) };
    waiting().then(
        choose('A', 2, usdc),
        "eth w1: A/1 open 10.00 USDC from 1050 to 2000
         A v4 payment_chosen answers 2 [open w1 #9 10.01] [requested w1]",
    );
}

#[test]
fn an_answered_choice_is_forgotten() {
    let pending = |book: &Book| book.machine().snapshot()[0].1.pending.len();
    let book = chosen();
    assert_eq!(pending(&book), 1);
    let book =
        book.then(opened('A', 0, 9, "10.00"), "A v3 deposit_opened answers 2 [open w1 #9 10.00]");
    assert_eq!(pending(&book), 0);
}

#[test]
fn wallets_are_tried_in_order() {
    chosen_of(&[1, 2, 3])
        .then(full('A', 0, 1), "eth w2: A/0 open 10.00 USDT from 1050 to 2000")
        .then(full('A', 0, 2), "eth w3: A/0 open 10.00 USDT from 1050 to 2000")
        .then(opened('A', 0, 9, "10.00"), "A v3 deposit_opened answers 2 [open w3 #9 10.00]");
}

#[test]
fn full_wallets_refuse_the_choice() {
    chosen_of(&[1, 2])
        .then(full('A', 0, 1), "eth w2: A/0 open 10.00 USDT from 1050 to 2000")
        .then(full('A', 0, 2), "A v3 payment_refused answers 2 [refused w2]")
        .ignores(opened('A', 0, 9, "10.00"))
        .then(
            choose('A', 3, usdt(Blockchain::Eth, &[1])),
            "eth w1: A/1 open 10.00 USDT from 1050 to 2000
             A v4 payment_chosen answers 3 [requested w1]",
        );
}

#[test]
fn an_expired_refusal_ends_the_choice() {
    chosen_of(&[1, 2])
        .then(
            refused('A', 0, 1, RefusalReason::Expired),
            "A v3 payment_refused answers 2 [refused w1]",
        )
        // No deposit can be paid any more: the order's own timer ends it.
        .then(tick(2001, 'A'), "A v4 expired! expired [refused w1]");
}

#[test]
fn a_choice_at_the_deadline_counts() {
    let choice = |second, id| {
        let body = OrderCommandBody::ChoosePayment(usdt(Blockchain::Eth, &[1]));
        at(second, 'A', id, body)
    };
    created().then(choice(2001, 2), "A v2 not_pending answers 2").then(
        choice(2000, 3),
        "eth w1: A/0 open 10.00 USDT from 2000 to 2000
             A v3 payment_chosen answers 3 [requested w1]",
    );
}

#[test]
fn opened_after_the_end_it_is_closed() {
    chosen_of(&[1, 2])
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
    chosen_of(&[1, 2])
        .then(mark_paid('A', 3), "A v3 paid! marked_paid answers 3 [requested w1]")
        .then(full('A', 0, 1), "A v4 paid payment_refused answers 2 [refused w1]");
}

/// A stopped lane does not reply: the number of its waiting choices is bounded, and they write no records.
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

/// The deposit of the first choice opens last: it is still the one to be replaced.
#[test]
fn the_last_choice_stays() {
    chosen_twice().then(
        opened('A', 0, 9, "10.00"),
        "eth w1: A/0 close replaced
             A v5 deposit_opened answers 2 [open w1 #9 10.00] [open w2 #12 10.00]",
    );
}

/// The order after another choice, at version 7: the first chain has stopped, the second one has passed the deadline.
fn halted() -> Book {
    given_up()
        .then(expired('A', 1), "A v7 deposit_closed [replaced w1 #9 10.01] [closed w2 #12 10.00]")
        .ignores(tick(2001, 'A'))
}

/// The order waits for each deposit that it ever had, by the time of its chain.
#[test]
fn a_replaced_deposit_may_still_pay() {
    halted().then(
        settle('A', 0, 7),
        "eth w1: A/0 settled #7; A v8 paid! paid by #7 [closed w1 #9 10.01] [closed w2 #12 10.00]",
    );
    halted()
        .then(expired('A', 0), "A v8 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]");
}

/// The report of the expiry was lost: the order requests it from the lane every hour.
#[test]
fn a_lane_is_asked_of_what_was_replaced() {
    halted()
        .ignores(tick(5600, 'A'))
        .then(tick(5601, 'A'), "eth w1: A/0 close expired")
        .ignores(closed('A', 0, CloseReason::Replaced))
        .then(tick(9202, 'A'), "eth w1: A/0 close expired")
        .then(expired('A', 0), "A v8 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]");
}

/// An ended order also closes its replaced deposits, and is kept until their lanes have confirmed that.
#[test]
fn an_ended_order_lets_go_of_what_was_replaced() {
    let end = "A v8 cancelled! cancelled answers 3 [replaced w1 #9 10.01] [closed w2 #12 10.00]";
    let book = halted().then(cancel('A', 3), &format!("eth w1: A/0 close order_cancelled; {end}"));
    let week = 2000 + 2 * KEPT_SECONDS;
    assert_eq!(book.machine().due(UnixSeconds(week), 10), [order('A')]);
    book.then(tick(week, 'A'), "eth w1: A/0 close order_cancelled").then(
        closed('A', 0, CloseReason::OrderCancelled),
        "A v9 cancelled deposit_closed [closed w1 #9 10.01] [closed w2 #12 10.00]",
    );
}

/// A payment waits when its deposit has closed: the order does not expire before the outcome of the payment.
#[test]
fn a_candidate_holds_its_order() {
    let seen_late = || {
        halted()
            .then(
                seen('A', 7),
                "A v8 candidate_seen maybe #7 [replaced w1 #9 10.01] [closed w2 #12 10.00]",
            )
            .then(
                expired('A', 0),
                "A v9 deposit_closed maybe #7 [closed w1 #9 10.01] [closed w2 #12 10.00]",
            )
            .ignores(tick(2001, 'A'))
    };
    seen_late()
        .then(gone('A', 7), "A v10 candidate_gone [closed w1 #9 10.01] [closed w2 #12 10.00]")
        .then(tick(2001, 'A'), "A v11 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]");
    // A `CandidateGone` was lost: the lanes of all its deposits are asked every hour, and the transfer's lane replies.
    let questions = "eth w1: A/0 candidate #7; base w2: A/1 candidate #7";
    let lost = seen_late();
    assert_eq!(lost.machine().due(UnixSeconds(5600), 10), []);
    assert_eq!(lost.machine().due(UnixSeconds(5601), 10), [order('A')]);
    lost.ignores(tick(5600, 'A'))
        .then(tick(5601, 'A'), questions)
        .ignores(tick(9201, 'A'))
        .ignores(seen('A', 7))
        .then(tick(9202, 'A'), questions)
        .then(gone('A', 7), "A v10 candidate_gone [closed w1 #9 10.01] [closed w2 #12 10.00]")
        .then(tick(9203, 'A'), "A v11 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]");
}

#[test]
fn open_deposits_are_bounded() {
    let mut state = State::new();
    decide(&mut state, &create('A', None));
    let chains = [Blockchain::Eth, Blockchain::Base, Blockchain::Arb];
    assert_eq!(chains.len(), OPEN_MAX);
    for (number, blockchain) in (0..).zip([Blockchain::Op; 100].into_iter().chain(chains)) {
        let asked = decide(&mut state, &choose('A', 2, usdt(blockchain, &[1])));
        assert!(matches!(asked.as_slice(), [Effect::Command(open), _] if open.slot == number));
        if blockchain == Blockchain::Op {
            decide(&mut state, &full('A', number, 1));
        }
    }
    let effects = decide(&mut state, &choose('A', 3, usdt(Blockchain::Linea, &[1])));
    let [Effect::Order(order)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(order.cause, OrderCause::PaymentRefused);
    assert_eq!(order.command_id, choose('A', 3, usdt(Blockchain::Linea, &[1])).command_id);
    assert_eq!(order.deposits.len(), OPEN_MAX + 1);
}
