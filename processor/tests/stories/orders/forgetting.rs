//! Eviction of ended orders, and their return.

use schemas::{DepositState, OrderId};
use uuid::Uuid;

use super::*;

/// Late window of the stories, in seconds.
const LATE_WINDOW: i64 = 500;

fn due(book: &Book, second: i64) -> Vec<OrderId> {
    book.machine().due(UnixSeconds(second), 10)
}

/// The order stays until this second, and is forgotten in the next one.
#[track_caller]
fn leaves_after(book: Book, second: i64) -> Book {
    assert_eq!(due(&book, second), []);
    let book = book.ignores(tick(second, 'A'));
    assert_eq!(due(&book, second + 1), [order('A')]);
    let book = book.then(tick(second + 1, 'A'), "");
    assert_eq!((book.machine().rows(), due(&book, i64::MAX)), (0, vec![]));
    book
}

/// Order A, expired at version 4 with a closed deposit and then forgotten, with its row.
fn forgotten() -> (Book, Order) {
    let book = ended(OrderStatus::Expired);
    let order = row(&book);
    (leaves_after(book, 1100 + LATE_WINDOW + KEPT_SECONDS), order)
}

#[test]
fn an_ended_order_leaves_a_week_after_its_late_window() {
    for status in [OrderStatus::Paid, OrderStatus::Expired] {
        leaves_after(ended(status), 1100 + LATE_WINDOW + KEPT_SECONDS);
    }
    let never_chosen = created().then(cancel('A', 2), "A v2 cancelled! cancelled answers 2");
    leaves_after(never_chosen, 1060 + KEPT_SECONDS);
}

/// A create that is replayed after a week may be that of a forgotten order.
#[test]
fn a_create_older_than_memory_creates_nothing() {
    let ended_at = |second| {
        let created = OrderCommand { issued_at: UnixSeconds(second).micros(), ..create('B', None) };
        Book::new().then(created, "B v1 created answers 1").then(
            at(second, 'B', 2, OrderCommandBody::Cancel),
            "B v2 cancelled! cancelled answers 2",
        )
    };
    ended_at(1000 + KEPT_SECONDS).then(create('A', None), "A v1 created answers 1");
    ended_at(1001 + KEPT_SECONDS).ignores(create('A', None));
}

/// While order A is remembered, no younger one is forgotten, whatever the clock was when order B ended.
#[test]
fn a_clock_that_was_ahead_stops_no_create() {
    let month = 30 * 24 * 3600;
    let later = |second, order_letter| OrderCommand {
        issued_at: UnixSeconds(second).micros(),
        ..create(order_letter, None)
    };
    created()
        .then(cancel('A', 2), "A v2 cancelled! cancelled answers 2")
        .then(later(1060, 'B'), "B v1 created answers 1")
        .then(
            at(1060 + month, 'B', 2, OrderCommandBody::Cancel),
            "B v2 cancelled! cancelled answers 2",
        )
        // It could leave in the same second as A.
        .ignores(later(1060, 'C'))
        .then(later(1061, 'C'), "C v1 created answers 1");
}

#[test]
fn the_longest_late_window_counts() {
    let longer = PaymentRequest { late_window_seconds: 900, ..usdt(Blockchain::Base, &[2]) };
    let book = waiting()
        .then(
            choose('A', 2, longer),
            "base w2: A/1 open 10.00 USDT from 1050 to 2000
         A v4 payment_chosen answers 2 [open w1 #9 10.01] [requested w2]",
        )
        .then(
            refused('A', 1, 2, RefusalReason::Expired),
            "A v5 payment_refused answers 2 [open w1 #9 10.01] [refused w2]",
        )
        .then(expired('A', 0), "A v6 expired! expired [closed w1 #9 10.01] [refused w2]");
    leaves_after(book, 1100 + 900 + KEPT_SECONDS);
}

#[test]
fn a_pending_order_stays() {
    let book = waiting();
    assert_eq!(due(&book, 2000 + 3600), []);
    let book = book.then(tick(i64::MAX / 1_000_000, 'A'), "eth w1: A/0 close expired");
    assert_eq!((book.machine().rows(), row(&book).status), (1, OrderStatus::Pending));
}

/// An order is kept until its lane has reported the outcome of a deposit.
#[test]
fn an_order_stays_until_its_lanes_have_answered() {
    let cancelled = ended(OrderStatus::Cancelled);
    // Its lane is asked again, every hour.
    let ask = "eth w1: A/0 close order_cancelled";
    assert_eq!(due(&cancelled, 1100 + 3600), []);
    let cancelled = cancelled.ignores(tick(4700, 'A')).then(tick(4701, 'A'), ask);
    assert_eq!(due(&cancelled, 8301), []);
    let cancelled = cancelled.then(tick(8302, 'A'), ask).then(
        closed('A', 0, CloseReason::OrderCancelled),
        "A v5 cancelled deposit_closed [closed w1 #9 10.01]",
    );
    leaves_after(cancelled, 1100 + LATE_WINDOW + KEPT_SECONDS);
    let unanswered =
        chosen().then(cancel('A', 3), "A v3 cancelled! cancelled answers 3 [requested w1]");
    // Its lane is asked again.
    assert_eq!(due(&unanswered, i64::MAX), due(&unanswered, 1400));
    assert!(!due(&unanswered, 1400).is_empty());
    let unanswered = unanswered.then(
        refused('A', 0, 1, RefusalReason::Expired),
        "A v4 cancelled payment_refused answers 2 [refused w1]",
    );
    leaves_after(unanswered, 1100 + LATE_WINDOW + KEPT_SECONDS);
}

#[test]
fn a_later_record_keeps_it_longer() {
    let resent = at(90_000, 'A', 2, OrderCommandBody::ResendWebhook(None));
    let book = ended(OrderStatus::Expired)
        .then(resent, "A v5 expired webhook_resent answers 2 [closed w1 #9 10.01]");
    leaves_after(book, 90_000 + LATE_WINDOW + KEPT_SECONDS);
}

/// Late commands have no effect, except that a settle is refused.
#[test]
fn a_forgotten_order_is_like_one_that_never_was() {
    knows_nothing(forgotten().0);
}

#[test]
fn a_forgotten_order_comes_back_with_its_row() {
    let (book, order) = forgotten();
    let book = book
        .then(
            carrying(mark_paid('A', 2), &order),
            "A v5 paid! marked_paid answers 2 [closed w1 #9 10.01]",
        )
        // A returned order behaves as any other ended one.
        .then(settle('A', 0, 8), "eth w1: A/0 refused #8 already_paid")
        .then(resend('A', 3), "A v6 paid webhook_resent answers 3 [closed w1 #9 10.01]");
    // The row has no late window, so it is kept for a week alone.
    let order = row(&book);
    leaves_after(book, 1100 + KEPT_SECONDS).then(
        carrying(resend('A', 4), &order),
        "A v7 paid webhook_resent answers 4 [closed w1 #9 10.01]",
    );
}

/// The row may be older than the order, but not so much older that the order has opened another deposit since.
#[test]
fn the_deposits_of_a_row_are_closed() {
    let (book, mut order) = forgotten();
    order.version = 3;
    order.deposits[0].state = DepositState::Open;
    book.then(
        carrying(mark_paid('A', 2), &order),
        "A v4 paid! marked_paid answers 2 [closed w1 #9 10.01]",
    );
}

#[test]
fn a_row_counts_only_where_it_can_be_true() {
    let (book, order) = forgotten();
    let pending = Order { status: OrderStatus::Pending, ..order.clone() };
    book.ignores(carrying(mark_paid('A', 2), &pending))
        .ignores(carrying(resend('A', 2), &pending))
        .ignores(carrying(mark_paid('B', 2), &order));
    // The order in memory is newer than any row.
    ended(OrderStatus::Paid).then(
        carrying(resend('A', 2), &order),
        "A v5 paid webhook_resent by #7 answers 2 [closed w1 #9 10.01]",
    );
    waiting()
        .then(carrying(resend('A', 2), &order), "A v4 resend_refused answers 2 [open w1 #9 10.01]");
}

/// One tick of any order forgets all that are due, up to a limit.
#[test]
fn a_tick_is_for_all_that_leave() {
    let mut state = State::new();
    let (_, entry) = ended(OrderStatus::Paid).machine().snapshot().remove(0);
    for number in 0..2_500 {
        let mut entry = entry.clone();
        entry.order.order_id = OrderId(Uuid::from_u128(number));
        state.restore(&entry.order.order_id.to_string(), Some(&entry)).unwrap();
    }
    let mut left = Vec::new();
    while let [named] = state.due(UnixSeconds(i64::MAX), 10)[..] {
        let tick = OrderCommand { order_id: named, ..tick(9_000_000, 'A') };
        assert_eq!(decide(&mut state, &tick), []);
        left.push(state.rows());
        assert!(state.changes().iter().all(|(_, entry)| entry.is_none()));
        state.commit();
    }
    assert_eq!(left, [1_500, 500, 0]);
    decide(&mut state, &create('A', None));
    decide(&mut state, &cancel('A', 2));
    // The tick is of an order that was forgotten meanwhile.
    decide(&mut state, &tick(9_000_000, 'B'));
    assert_eq!(state.rows(), 0);
}

/// Candidates of a marked order keep it in memory, and pay it when they settle, however late.
#[test]
fn a_payment_under_way_keeps_its_order() {
    let book = ended(OrderStatus::Expired)
        .then(seen('A', 8), "A v5 expired candidate_seen maybe #8 [closed w1 #9 10.01]")
        .then(mark_paid('A', 9), "A v6 paid! marked_paid answers 9 maybe #8 [closed w1 #9 10.01]");
    let week = 1100 + LATE_WINDOW + KEPT_SECONDS;
    assert_eq!(due(&book, week + 1), [order('A')]);
    let book = book.then(tick(week + 1, 'A'), "eth w1: A/0 candidate #8");
    assert_eq!(book.machine().rows(), 1);
}
