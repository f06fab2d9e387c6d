//! Orders, told as stories: who is paid, by what, and when an order ends (spec 3.1, `design` 5).

#[path = "orders/book.rs"]
mod book;
#[path = "support/command.rs"]
mod command;
#[path = "support/name.rs"]
mod name;
#[path = "support/story.rs"]
mod story;

use book::Book;
use command::{
    at, cancel, choose, closed, create, gone, mark_paid, opened, refused, seen, settle, tell, tick,
    usdt,
};
use name::{amount, order, wallet};
use schemas::record::{OrderCommand, OrderCommandBody, PaymentRequest};
use schemas::{
    Blockchain, CloseReason, OrderCause, OrderStatus, RefusalReason, Stablecoin, UnixSeconds,
    UnknownReason,
};
use tidemark_processor::machine::orders::{DEPOSITS_MAX, Effect, State};

const OPEN_A: &str = "eth w1: A/0 open 10.00 USDT from 1000 to 2000";

/// Order A with an open deposit #9 of 10.01 at wallet 1 of Ethereum, at version 3.
fn waiting() -> Book {
    let mut book = Book::new();
    book.then(
        create('A', Some(usdt(Blockchain::Eth, &[1]))),
        &format!(
            "A v1 pending created answers 1
         {OPEN_A}
         A v2 pending payment_chosen answers 1 [requested w1]"
        ),
    )
    .then(opened('A', 0, 9, "10.01"), "A v3 pending deposit_opened answers 1 [open w1 #9 10.01]");
    book
}

/// Order A, ended this way, at version 4.
fn ended(status: OrderStatus) -> Book {
    let mut book = waiting();
    match status {
        OrderStatus::Paid => book.then(
            settle('A', 0, 7),
            "eth w1: A/0 settled #7; A v4 paid! paid by #7 [closed w1 #9 10.01]",
        ),
        OrderStatus::Expired => book.then(
            closed('A', 0, CloseReason::Expired),
            "A v4 expired! expired [closed w1 #9 10.01]",
        ),
        OrderStatus::Cancelled => book.then(
            cancel('A', 2),
            "eth w1: A/0 close order_cancelled
             A v4 cancelled! cancelled answers 2 [open w1 #9 10.01]",
        ),
        OrderStatus::Pending => &mut book,
    };
    book
}

mod creating {
    use super::*;

    #[test]
    fn an_order_is_pending() {
        let mut book = Book::new();
        book.then(create('A', None), "A v1 pending created answers 1");
        let effects = story::decide(&mut State::new(), &create('A', None));
        let [Effect::Order(order)] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!((order.created_at.0, order.expires_at.0), (1000, 2000));
        assert_eq!(order.merchant_order_id, "shop-A");
        assert_eq!((order.amount, order.amount_text.as_str()), (amount("10.00"), "10.00"));
        assert_eq!(order.webhook_url, "https://shop.example/hooks");
    }

    #[test]
    fn the_same_create_again_changes_nothing() {
        let mut other = create('A', None);
        if let OrderCommandBody::Create(create) = &mut other.body {
            create.amount = amount("99");
        }
        Book::new()
            .then(create('A', None), "A v1 pending created answers 1")
            .ignores(create('A', None))
            .ignores(other);
        waiting().ignores(create('A', Some(usdt(Blockchain::Eth, &[1]))));
        ended(OrderStatus::Paid).ignores(create('A', None));
    }

    #[test]
    fn created_with_chain_and_coin_it_opens_its_deposit_at_once() {
        waiting();
    }

    #[test]
    fn the_expected_sender_goes_to_the_deposit() {
        let mut command = create('A', Some(usdt(Blockchain::Eth, &[1])));
        if let OrderCommandBody::Create(create) = &mut command.body {
            create.expecting_wallet_address = Some(wallet(7));
        }
        Book::new().then(
            command,
            "A v1 pending created answers 1
             eth w1: A/0 open 10.00 USDT from 1000 to 2000 only from w7
             A v2 pending payment_chosen answers 1 [requested w1]",
        );
    }

    #[test]
    fn created_with_chain_and_coin_that_no_wallet_takes_it_waits_all_the_same() {
        Book::new().then(
            create('A', Some(usdt(Blockchain::Eth, &[]))),
            "A v1 pending created answers 1; A v2 pending payment_refused answers 1",
        );
    }

    #[test]
    fn commands_for_an_unknown_order_are_ignored_but_a_settle_is_answered() {
        let mut book = Book::new();
        for command in every_command() {
            if matches!(command.body, OrderCommandBody::Settle(_)) {
                book.then(command, "eth w1: A/0 refused #8 no_deposit");
            } else if !matches!(command.body, OrderCommandBody::Create(_)) {
                book.ignores(command);
            }
        }
        assert!(book.machine().is_empty());
    }
}

mod choosing {
    use super::*;

    #[test]
    fn a_choice_is_answered_when_it_is_asked_and_when_the_deposit_opens() {
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
    fn the_same_choice_of_an_open_deposit_finds_it() {
        waiting().then(
            choose('A', 5, usdt(Blockchain::Eth, &[1])),
            "A v4 pending payment_repeated answers 5 [open w1 #9 10.01]",
        );
    }

    #[test]
    fn the_same_choice_of_a_requested_deposit_gets_the_same_answer() {
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
    fn a_refusal_is_told_to_all_who_chose_the_same() {
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
    fn wallets_are_tried_in_order_while_amounts_are_taken() {
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
    fn when_all_wallets_are_full_the_choice_is_refused_and_may_be_made_again() {
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
    fn an_expired_refusal_tries_no_other_wallet() {
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
    fn a_choice_at_the_deadline_counts_and_one_after_it_does_not() {
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
    fn a_deposit_that_opens_after_the_end_is_closed_again() {
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
    fn a_refusal_after_the_end_tries_no_other_wallet() {
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

    #[test]
    fn an_order_takes_a_bounded_number_of_deposits() {
        let mut state = State::new();
        story::decide(&mut state, &create('A', None));
        let choice = || usdt(Blockchain::Eth, &[1]);
        for number in 0..DEPOSITS_MAX {
            let slot = i32::try_from(number).unwrap();
            let asked = story::decide(&mut state, &choose('A', 2, choice()));
            assert!(matches!(asked.as_slice(), [Effect::Command(open), _] if open.slot == slot));
            story::decide(&mut state, &refused('A', slot, 1, RefusalReason::AmountsTaken));
        }
        let effects = story::decide(&mut state, &choose('A', 3, choice()));
        let [Effect::Order(order)] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!(order.cause, OrderCause::PaymentRefused);
        assert_eq!(order.command_id, choose('A', 3, choice()).command_id);
        assert_eq!(order.deposits.len(), DEPOSITS_MAX);
    }
}

mod paying {
    use super::*;

    #[test]
    fn the_first_settle_wins() {
        waiting()
            .then(seen('A', 7), "A v4 pending candidate_seen maybe #7 [open w1 #9 10.01]")
            .then(seen('A', 8), "A v5 pending candidate_seen maybe #7 maybe #8 [open w1 #9 10.01]")
            .then(
                settle('A', 0, 8),
                "eth w1: A/0 settled #8; A v6 paid! paid by #8 [closed w1 #9 10.01]",
            )
            .then(settle('A', 0, 7), "eth w1: A/0 refused #7 already_paid")
            // Asked again, it gives the same answer.
            .then(settle('A', 0, 8), "eth w1: A/0 settled #8");
    }

    #[test]
    fn a_settle_after_the_end_is_refused_with_the_reason() {
        for (status, reason) in [
            (OrderStatus::Paid, UnknownReason::AlreadyPaid),
            (OrderStatus::Expired, UnknownReason::Late),
            (OrderStatus::Cancelled, UnknownReason::OrderCancelled),
        ] {
            ended(status).then(settle('A', 0, 8), &format!("eth w1: A/0 refused #8 {reason}"));
        }
        waiting()
            .then(
                mark_paid('A', 2),
                "eth w1: A/0 close order_paid; A v4 paid! marked_paid answers 2 [open w1 #9 10.01]",
            )
            .then(settle('A', 0, 8), "eth w1: A/0 refused #8 already_paid");
    }

    #[test]
    fn payment_closes_the_other_deposits() {
        waiting()
            .then(
                choose('A', 2, usdt(Blockchain::Base, &[2])),
                "base w2: A/1 open 10.00 USDT from 1050 to 2000
                 A v4 pending payment_chosen answers 2 [open w1 #9 10.01] [requested w2]",
            )
            .then(
                opened('A', 1, 12, "10.00"),
                "A v5 pending deposit_opened answers 2 [open w1 #9 10.01] [open w2 #12 10.00]",
            )
            .then(
                choose('A', 3, usdt(Blockchain::Op, &[3])),
                "op w3: A/2 open 10.00 USDT from 1050 to 2000
                 A v6 pending payment_chosen answers 3 \
                 [open w1 #9 10.01] [open w2 #12 10.00] [requested w3]",
            )
            .then(
                settle('A', 0, 7),
                "eth w1: A/0 settled #7; base w2: A/1 close order_paid
                 A v7 paid! paid by #7 [closed w1 #9 10.01] [open w2 #12 10.00] [requested w3]",
            )
            .then(
                closed('A', 1, CloseReason::OrderPaid),
                "A v8 paid deposit_closed by #7 \
                 [closed w1 #9 10.01] [closed w2 #12 10.00] [requested w3]",
            )
            .then(
                opened('A', 2, 15, "10.00"),
                "op w3: A/2 close order_paid
                 A v9 paid not_pending by #7 answers 3 \
                 [closed w1 #9 10.01] [closed w2 #12 10.00] [open w3 #15 10.00]",
            );
    }

    #[test]
    fn an_operator_marks_paid_from_every_state() {
        Book::new()
            .then(create('A', None), "A v1 pending created answers 1")
            .then(mark_paid('A', 2), "A v2 paid! marked_paid answers 2")
            .then(mark_paid('A', 3), "A v3 paid mark_paid_repeated answers 3");
        ended(OrderStatus::Paid).then(
            mark_paid('A', 2),
            "A v5 paid mark_paid_repeated by #7 answers 2 [closed w1 #9 10.01]",
        );
        ended(OrderStatus::Expired)
            .then(mark_paid('A', 2), "A v5 paid! marked_paid answers 2 [closed w1 #9 10.01]");
        ended(OrderStatus::Cancelled)
            .then(
                closed('A', 0, CloseReason::OrderCancelled),
                "A v5 cancelled deposit_closed [closed w1 #9 10.01]",
            )
            .then(mark_paid('A', 4), "A v6 paid! marked_paid answers 4 [closed w1 #9 10.01]");
    }

    #[test]
    fn marked_paid_its_candidates_do_not_count_any_more() {
        waiting()
            .then(seen('A', 7), "A v4 pending candidate_seen maybe #7 [open w1 #9 10.01]")
            .then(
                mark_paid('A', 2),
                "eth w1: A/0 close order_paid; A v5 paid! marked_paid answers 2 [open w1 #9 10.01]",
            )
            .ignores(gone('A', 7))
            .then(settle('A', 0, 7), "eth w1: A/0 refused #7 already_paid");
    }
}

mod cancelling {
    use super::*;

    #[test]
    fn a_candidate_is_noted_once_and_may_go() {
        waiting()
            .then(seen('A', 7), "A v4 pending candidate_seen maybe #7 [open w1 #9 10.01]")
            .ignores(seen('A', 7))
            .ignores(gone('A', 8))
            .then(gone('A', 7), "A v5 pending candidate_gone [open w1 #9 10.01]")
            .ignores(gone('A', 7));
    }

    #[test]
    fn after_the_end_candidates_do_not_count() {
        for status in [OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled] {
            ended(status).ignores(seen('A', 8)).ignores(gone('A', 8)).ignores(gone('A', 7));
        }
    }

    #[test]
    fn cancel_ends_an_order_and_its_deposits() {
        Book::new()
            .then(create('A', None), "A v1 pending created answers 1")
            .then(cancel('A', 2), "A v2 cancelled! cancelled answers 2")
            .then(cancel('A', 3), "A v3 cancelled not_pending answers 3");
        ended(OrderStatus::Cancelled);
    }

    #[test]
    fn cancel_is_refused_while_there_is_a_candidate() {
        waiting()
            .then(seen('A', 7), "A v4 pending candidate_seen maybe #7 [open w1 #9 10.01]")
            .then(
                cancel('A', 2),
                "A v5 pending cancel_refused answers 2 maybe #7 [open w1 #9 10.01]",
            )
            .then(gone('A', 7), "A v6 pending candidate_gone [open w1 #9 10.01]")
            .then(
                cancel('A', 3),
                "eth w1: A/0 close order_cancelled
                 A v7 cancelled! cancelled answers 3 [open w1 #9 10.01]",
            );
    }
}

mod expiring {
    use super::*;

    #[test]
    fn without_a_deposit_the_timer_ends_it_only_past_the_deadline() {
        Book::new()
            .then(create('A', None), "A v1 pending created answers 1")
            .ignores(tick(1500, 'A'))
            .ignores(tick(2000, 'A'))
            .then(tick(2001, 'A'), "A v2 expired! expired")
            .ignores(tick(2002, 'A'));
    }

    #[test]
    fn with_a_deposit_asked_for_or_open_the_timer_does_nothing() {
        Book::new()
            .then(create('A', None), "A v1 pending created answers 1")
            .then(
                choose('A', 2, usdt(Blockchain::Eth, &[1])),
                "eth w1: A/0 open 10.00 USDT from 1050 to 2000
                 A v2 pending payment_chosen answers 2 [requested w1]",
            )
            .ignores(tick(3000, 'A'))
            .then(
                opened('A', 0, 9, "10.00"),
                "A v3 pending deposit_opened answers 2 [open w1 #9 10.00]",
            )
            .ignores(tick(3000, 'A'))
            .then(
                closed('A', 0, CloseReason::Expired),
                "A v4 expired! expired [closed w1 #9 10.00]",
            );
    }

    #[test]
    fn a_deposit_that_closed_for_another_reason_does_not_end_the_order() {
        waiting()
            .then(
                closed('A', 0, CloseReason::OrderExpired),
                "A v4 pending deposit_closed [closed w1 #9 10.01]",
            )
            .then(tick(2001, 'A'), "A v5 expired! expired [closed w1 #9 10.01]");
    }

    #[test]
    fn with_two_deposits_it_expires_when_both_have_closed() {
        waiting()
            .then(
                choose('A', 2, usdt(Blockchain::Base, &[2])),
                "base w2: A/1 open 10.00 USDT from 1050 to 2000
                 A v4 pending payment_chosen answers 2 [open w1 #9 10.01] [requested w2]",
            )
            .then(
                closed('A', 0, CloseReason::Expired),
                "A v5 pending deposit_closed [closed w1 #9 10.01] [requested w2]",
            )
            .then(
                opened('A', 1, 12, "10.00"),
                "A v6 pending deposit_opened answers 2 [closed w1 #9 10.01] [open w2 #12 10.00]",
            )
            .ignores(closed('A', 0, CloseReason::Expired))
            .then(
                closed('A', 1, CloseReason::Expired),
                "A v7 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]",
            );
    }

    #[test]
    fn when_the_last_deposit_is_refused_the_timer_ends_it() {
        waiting()
            .then(
                choose('A', 2, usdt(Blockchain::Base, &[2])),
                "base w2: A/1 open 10.00 USDT from 1050 to 2000
                 A v4 pending payment_chosen answers 2 [open w1 #9 10.01] [requested w2]",
            )
            .then(
                closed('A', 0, CloseReason::Expired),
                "A v5 pending deposit_closed [closed w1 #9 10.01] [requested w2]",
            )
            .then(
                refused('A', 1, 2, RefusalReason::Expired),
                "A v6 pending payment_refused answers 2 [closed w1 #9 10.01] [refused w2]",
            )
            .then(tick(2001, 'A'), "A v7 expired! expired [closed w1 #9 10.01] [refused w2]");
    }

    #[test]
    fn due_names_orders_past_their_own_timer_first_due_first() {
        let mut book = Book::new();
        for (letter, expires_at) in [('C', 2002), ('A', 2000), ('B', 2001), ('D', 2001)] {
            let mut command = create(letter, None);
            if let OrderCommandBody::Create(create) = &mut command.body {
                create.expires_at = UnixSeconds(expires_at);
            }
            book.then(command, &format!("{letter} v1 pending created answers 1"));
        }
        book.then(
            choose('D', 2, usdt(Blockchain::Eth, &[1])),
            "eth w1: D/0 open 10.00 USDT from 1050 to 2001
             D v2 pending payment_chosen answers 2 [requested w1]",
        );
        let due = |book: &Book, now, max| book.machine().due(UnixSeconds(now), max);
        assert_eq!(due(&book, 2000, 10), []);
        assert_eq!(due(&book, 2001, 10), [order('A')]);
        assert_eq!(due(&book, 2003, 10), [order('A'), order('B'), order('C')]);
        assert_eq!(due(&book, 2003, 2), [order('A'), order('B')]);
        book.then(tick(2003, 'A'), "A v2 expired! expired")
            .then(cancel('B', 3), "B v2 cancelled! cancelled answers 3")
            .then(
                refused('D', 0, 1, RefusalReason::AmountsTaken),
                "D v3 pending payment_refused answers 2 [refused w1]",
            );
        assert_eq!(due(&book, 2003, 10), [order('D'), order('C')]);
    }
}

/// One of each kind of command for order A.
fn every_command() -> Vec<OrderCommand> {
    let mut settled_by_operator = settle('A', 0, 8);
    settled_by_operator.issued_at = UnixSeconds(5000).micros();
    vec![
        create('A', Some(usdt(Blockchain::Eth, &[1]))),
        choose('A', 20, usdt(Blockchain::Eth, &[1])),
        choose('A', 21, usdt(Blockchain::Tron, &[1])),
        cancel('A', 22),
        mark_paid('A', 23),
        opened('A', 0, 30, "10.00"),
        opened('A', 1, 31, "10.00"),
        refused('A', 0, 1, RefusalReason::AmountsTaken),
        refused('A', 0, 1, RefusalReason::Expired),
        closed('A', 0, CloseReason::Expired),
        closed('A', 0, CloseReason::OrderPaid),
        closed('A', 5, CloseReason::Expired),
        seen('A', 8),
        gone('A', 7),
        settle('A', 0, 8),
        settled_by_operator,
        tick(9000, 'A'),
        tell('A', OrderCommandBody::Tick),
    ]
}

/// `design` 11.4: each terminal state, each command, and each pair of commands after each other.
#[test]
fn terminal_states_stay_for_every_command_but_mark_paid() {
    for start in [OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled] {
        for first in every_command() {
            for second in every_command() {
                let mut state = ended(start).machine().clone();
                let mut status = start;
                for command in [&first, &second] {
                    let before = version(&state);
                    let effects = story::decide(&mut state, command);
                    let marked = command.body == OrderCommandBody::MarkPaid;
                    let expected = if marked { OrderStatus::Paid } else { status };
                    check_orders(&effects, before, (status, expected));
                    status = expected;
                }
            }
        }
    }
}

/// The published versions count on by one, and only a change of status is told as one.
#[track_caller]
fn check_orders(effects: &[Effect], mut version: i64, (before, after): (OrderStatus, OrderStatus)) {
    let mut status = before;
    for effect in effects {
        let Effect::Order(order) = effect else { continue };
        assert_eq!(order.version, version + 1);
        assert_eq!(order.status, after);
        assert_eq!(order.status_changed, order.status != status);
        (version, status) = (order.version, order.status);
    }
    assert_eq!(status, after);
}

fn version(state: &State) -> i64 {
    state.snapshot().first().map_or(0, |(_, entry)| entry.order.version)
}

/// A clock that stands still or goes back does not stop the version clock.
#[test]
fn every_version_has_a_later_time_even_when_clocks_disagree() {
    let mut state = State::new();
    let mut times = Vec::new();
    for second in [1000, 1000, 900, 1001] {
        let mut command = mark_paid('A', 2);
        if times.is_empty() {
            command = create('A', None);
        }
        command.issued_at = UnixSeconds(second).micros();
        for effect in story::decide(&mut state, &command) {
            let Effect::Order(order) = effect else { continue };
            times.push(order.updated_at.0);
        }
    }
    assert_eq!(times, [1_000_000_000, 1_000_000_001, 1_000_000_002, 1_001_000_000]);
}

#[test]
fn a_changelog_key_that_is_no_order_is_told() {
    assert_eq!(State::new().restore("lane", None), Err("lane".to_owned()));
}
