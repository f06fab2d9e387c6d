//! Stories of orders: payers, and ends of orders (spec 3.1).

mod attaching;
mod book;
mod cancelling;
mod choosing;
mod creating;
mod expiring;
mod forgetting;
mod paying;

use crate::command::{
    at, attach, attach_again, attach_refused, cancel, carrying, choose, closed, command, create,
    expired, full, gone, late_settle, mark_paid, opened, refused, resend, seen, settle, tick, usdt,
};
use crate::name::{amount, order, wallet};
use crate::story::decide;
use book::Book;
use schemas::record::{Order, OrderCommand, OrderCommandBody, PaymentRequest};
use schemas::{
    Blockchain, CloseReason, OrderCause, OrderStatus, RefusalReason, Stablecoin, UnixSeconds,
    UnknownReason,
};
use tidemark_processor::machine::orders::{Effect, KEPT_SECONDS, OPEN_MAX, PENDING_MAX, State};
use tidemark_processor::machine::{Machine, RestoreError};

/// Order A with an open deposit #9 of 10.01 at wallet 1 of Ethereum, at version 3.
fn waiting() -> Book {
    Book::new()
        .then(
            create('A', Some(usdt(Blockchain::Eth, &[1]))),
            "A v1 created answers 1
         eth w1: A/0 open 10.00 USDT from 1000 to 2000
         A v2 payment_chosen answers 1 [requested w1]",
        )
        .then(opened('A', 0, 9, "10.01"), "A v3 deposit_opened answers 1 [open w1 #9 10.01]")
}

/// Order A without a choice, at version 1.
fn created() -> Book {
    Book::new().then(create('A', None), "A v1 created answers 1")
}

/// Order A after its customer chose Ethereum, at version 2: wallet 1 has not replied.
fn chosen() -> Book {
    chosen_of(&[1])
}

/// The same with these wallets, of which wallet 1 is asked.
fn chosen_of(wallets: &[u8]) -> Book {
    created().then(
        choose('A', 2, usdt(Blockchain::Eth, wallets)),
        "eth w1: A/0 open 10.00 USDT from 1050 to 2000
         A v2 payment_chosen answers 2 [requested w1]",
    )
}

/// The same order after a second choice, at version 4: wallet 1 has still not replied.
fn chosen_twice() -> Book {
    chosen()
        .then(
            choose('A', 3, usdt(Blockchain::Base, &[2])),
            "base w2: A/1 open 10.00 USDT from 1050 to 2000
         A v3 payment_chosen answers 3 [requested w1] [requested w2]",
        )
        .then(
            opened('A', 1, 12, "10.00"),
            "A v4 deposit_opened answers 3 [requested w1] [open w2 #12 10.00]",
        )
}

/// The waiting order after another choice, at version 4: wallet 2 has not replied.
fn chosen_anew() -> Book {
    waiting().then(
        choose('A', 2, usdt(Blockchain::Base, &[2])),
        "base w2: A/1 open 10.00 USDT from 1050 to 2000
         A v4 payment_chosen answers 2 [open w1 #9 10.01] [requested w2]",
    )
}

/// The same after the reply, at version 5: the deposit at wallet 1 is requested to close.
fn replaced() -> Book {
    chosen_anew().then(
        opened('A', 1, 12, "10.00"),
        "eth w1: A/0 close replaced
         A v5 deposit_opened answers 2 [open w1 #9 10.01] [open w2 #12 10.00]",
    )
}

/// The same after the lane has closed that deposit as replaced, at version 6.
fn given_up() -> Book {
    replaced().then(
        closed('A', 0, CloseReason::Replaced),
        "A v6 deposit_closed [replaced w1 #9 10.01] [open w2 #12 10.00]",
    )
}

/// Order A, ended with this status, at version 4.
fn ended(status: OrderStatus) -> Book {
    let book = waiting();
    match status {
        OrderStatus::Paid => book.then(
            settle('A', 0, 7),
            "eth w1: A/0 settled #7; A v4 paid! paid by #7 [closed w1 #9 10.01]",
        ),
        OrderStatus::Expired => {
            book.then(expired('A', 0), "A v4 expired! expired [closed w1 #9 10.01]")
        }
        OrderStatus::Cancelled => book.then(
            cancel('A', 2),
            "eth w1: A/0 close order_cancelled
             A v4 cancelled! cancelled answers 2 [open w1 #9 10.01]",
        ),
        OrderStatus::Pending => book,
    }
}

/// Order of a book with a single one.
fn row(book: &Book) -> Order {
    book.machine().snapshot().remove(0).1.order
}

/// Commands of each kind but the attach, for order A.
fn every_command() -> Vec<OrderCommand> {
    let mut settled_by_operator = settle('A', 0, 8);
    settled_by_operator.issued_at = UnixSeconds(5000).micros();
    vec![
        create('A', Some(usdt(Blockchain::Eth, &[1]))),
        choose('A', 20, usdt(Blockchain::Eth, &[1])),
        choose('A', 21, usdt(Blockchain::Tron, &[1])),
        cancel('A', 22),
        mark_paid('A', 23),
        resend('A', 24),
        opened('A', 0, 30, "10.00"),
        opened('A', 1, 31, "10.00"),
        full('A', 0, 1),
        refused('A', 0, 1, RefusalReason::Expired),
        expired('A', 0),
        closed('A', 0, CloseReason::OrderPaid),
        expired('A', 5),
        seen('A', 8),
        gone('A', 7),
        settle('A', 0, 8),
        attach_refused('A', 25),
        settled_by_operator,
        tick(9000, 'A'),
        command('A', OrderCommandBody::Tick),
    ]
}

/// Sends each of [`every_command`] except the create to a book without the order: only settles get a reply, a refusal.
#[track_caller]
fn knows_nothing(mut book: Book) -> Book {
    for command in every_command() {
        if matches!(command.body, OrderCommandBody::Settle(_)) {
            book = book.then(command, "eth w1: A/0 refused #8 no_deposit");
        } else if !matches!(command.body, OrderCommandBody::Create(_)) {
            book = book.ignores(command);
        }
    }
    book
}

/// Invariant 4: each terminal state, each command, and each pair of commands in turn.
#[test]
fn terminal_states_stay() {
    for start in [OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled] {
        for first in every_command() {
            for second in every_command() {
                let mut state = ended(start).machine().clone();
                let mut status = start;
                for command in [&first, &second] {
                    let before = version(&state);
                    let effects = decide(&mut state, command);
                    let marked = matches!(command.body, OrderCommandBody::MarkPaid(_));
                    let expected = if marked { OrderStatus::Paid } else { status };
                    check_orders(&effects, before, (status, expected));
                    status = expected;
                }
            }
        }
    }
}

/// Checks that versions increase by one, and that only a change of status is marked as one.
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

/// Each version has a later time than the one before, even if the clock stops or goes back.
#[test]
fn versions_have_later_times() {
    let mut state = State::new();
    let mut times = Vec::new();
    for second in [1000, 1000, 900, 1001] {
        let mut command = mark_paid('A', 2);
        if times.is_empty() {
            command = create('A', None);
        }
        command.issued_at = UnixSeconds(second).micros();
        for effect in decide(&mut state, &command) {
            let Effect::Order(order) = effect else { continue };
            times.push(order.updated_at.0);
        }
    }
    assert_eq!(times, [1_000_000_000, 1_000_000_001, 1_000_000_002, 1_001_000_000]);
}

#[test]
fn an_unknown_key_is_refused() {
    let restored = State::new().restore("lane", None);
    assert!(matches!(restored, Err(RestoreError::Key(key)) if key == "lane"));
}
