//! Expiry of an order.

use super::*;

#[test]
fn the_timer_ends_it_past_the_deadline() {
    created()
        .ignores(tick(1500, 'A'))
        .ignores(tick(2000, 'A'))
        .then(tick(2001, 'A'), "A v2 expired! expired")
        .ignores(tick(2002, 'A'));
}

#[test]
fn a_deposit_stops_the_timer() {
    chosen()
        .ignores(tick(1350, 'A'))
        .then(opened('A', 0, 9, "10.00"), "A v3 deposit_opened answers 2 [open w1 #9 10.00]")
        .ignores(tick(3000, 'A'))
        .then(expired('A', 0), "A v4 expired! expired [closed w1 #9 10.00]");
}

/// An open request without a reply is repeated every five minutes: request or reply was lost.
#[test]
fn an_unanswered_lane_is_asked_again() {
    let open = "eth w1: A/0 open 10.00 USDT from 1050 to 2000";
    let answered = |second| {
        let refused = refused('A', 0, 1, RefusalReason::Expired);
        OrderCommand { issued_at: UnixSeconds(second).micros(), ..refused }
    };
    chosen()
        .ignores(tick(1350, 'A'))
        .then(tick(1351, 'A'), open)
        .ignores(tick(1651, 'A'))
        // The order does not expire meanwhile: a deposit may be open, and its payment sent.
        .then(tick(2001, 'A'), open)
        // The replies arrive late. Only the reply to the last request counts, as the lane may open the deposit at that
        // request.
        .ignores(answered(1050))
        .ignores(answered(1351))
        .then(answered(2001), "A v3 payment_refused answers 2 [refused w1]")
        .then(tick(2002, 'A'), "A v4 expired! expired [refused w1]");
}

/// An hour past its deadline an order asks for the outcome of a deposit that has not closed: its chain may be behind,
/// or the reply was lost.
#[test]
fn a_lane_is_asked_what_became_of_a_deposit() {
    let ask = "eth w1: A/0 close expired";
    waiting()
        .ignores(tick(5600, 'A'))
        .then(tick(5601, 'A'), ask)
        .ignores(tick(9201, 'A'))
        .then(tick(9202, 'A'), ask)
        .then(expired('A', 0), "A v4 expired! expired [closed w1 #9 10.01]");
}

/// The close of the replaced deposit was lost: it is requested again after the other deposit ended.
#[test]
fn a_lost_close_of_another_choice_ends_with_the_order() {
    replaced()
        .then(expired('A', 1), "A v6 deposit_closed [open w1 #9 10.01] [closed w2 #12 10.00]")
        .then(tick(5601, 'A'), "eth w1: A/0 close expired")
        .then(
            closed('A', 0, CloseReason::Replaced),
            "A v7 deposit_closed [replaced w1 #9 10.01] [closed w2 #12 10.00]",
        )
        .then(expired('A', 0), "A v8 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]");
}

/// Two requests within one second would share a refusal, though the lane may open the deposit at the later one.
#[test]
fn a_lane_is_not_asked_again_before_its_time() {
    let eth = "eth w1: A/0 open 10.00 USDT from 1050 to 2000";
    let base = "base w2: A/1 open 10.00 USDT from 1351 to 2000";
    let choose_base = choose('A', 3, usdt(Blockchain::Base, &[2]));
    chosen()
        .then(
            OrderCommand { issued_at: UnixSeconds(1351).micros(), ..choose_base },
            &format!("{base}; A v3 payment_chosen answers 3 [requested w1] [requested w2]"),
        )
        .then(tick(1351, 'A'), eth)
        .ignores(tick(1651, 'A'))
        .then(tick(1652, 'A'), &format!("{eth}; {base}"));
}

/// The clocks of two processes differ: the second choice for the same deposit has the earlier time.
#[test]
fn the_choice_that_is_on_its_way_has_the_timer() {
    let book = chosen();
    let again = choose('A', 3, usdt(Blockchain::Eth, &[1]));
    let book = book.then(OrderCommand { issued_at: UnixSeconds(1040).micros(), ..again }, "");
    assert_eq!(book.machine().due(UnixSeconds(1350), 10), []);
    let book = book.then(tick(1351, 'A'), "eth w1: A/0 open 10.00 USDT from 1050 to 2000");
    assert_eq!(book.machine().due(UnixSeconds(1651), 10), []);
}

/// The lane's `DepositOpened` was lost, but not the close of that deposit: the request is not repeated.
#[test]
fn a_closed_deposit_is_not_asked_for() {
    chosen_twice()
        .then(expired('A', 0), "A v5 deposit_closed [closed w1] [open w2 #12 10.00]")
        .ignores(tick(1351, 'A'))
        .then(expired('A', 1), "A v6 expired! expired [closed w1] [closed w2 #12 10.00]");
}

#[test]
fn only_expiry_of_a_deposit_ends_it() {
    waiting()
        .then(closed('A', 0, CloseReason::OrderExpired), "A v4 deposit_closed [closed w1 #9 10.01]")
        .then(tick(2001, 'A'), "A v5 expired! expired [closed w1 #9 10.01]");
}

#[test]
fn two_deposits_must_both_close() {
    chosen_anew()
        .then(expired('A', 0), "A v5 deposit_closed [closed w1 #9 10.01] [requested w2]")
        .then(
            opened('A', 1, 12, "10.00"),
            "A v6 deposit_opened answers 2 [closed w1 #9 10.01] [open w2 #12 10.00]",
        )
        .ignores(expired('A', 0))
        .then(expired('A', 1), "A v7 expired! expired [closed w1 #9 10.01] [closed w2 #12 10.00]");
}

#[test]
fn the_last_refused_starts_the_timer() {
    chosen_anew()
        .then(expired('A', 0), "A v5 deposit_closed [closed w1 #9 10.01] [requested w2]")
        .then(
            refused('A', 1, 2, RefusalReason::Expired),
            "A v6 payment_refused answers 2 [closed w1 #9 10.01] [refused w2]",
        )
        .then(tick(2001, 'A'), "A v7 expired! expired [closed w1 #9 10.01] [refused w2]");
}

#[test]
fn due_orders_come_in_order() {
    let mut book = Book::new();
    for (letter, expires_at) in [('C', 2002), ('A', 2000), ('B', 2001), ('D', 2001)] {
        let mut command = create(letter, None);
        if let OrderCommandBody::Create(create) = &mut command.body {
            create.expires_at = UnixSeconds(expires_at);
        }
        book = book.then(command, &format!("{letter} v1 created answers 1"));
    }
    let book = book.then(
        choose('D', 2, usdt(Blockchain::Eth, &[1])),
        "eth w1: D/0 open 10.00 USDT from 1050 to 2001
         D v2 payment_chosen answers 2 [requested w1]",
    );
    let due = |book: &Book, now, max| book.machine().due(UnixSeconds(now), max);
    assert_eq!(due(&book, 1350, 10), []);
    // Its lane has not replied.
    assert_eq!(due(&book, 2000, 10), [order('D')]);
    assert_eq!(due(&book, 2001, 10), [order('D'), order('A')]);
    assert_eq!(due(&book, 2003, 10), [order('D'), order('A'), order('B'), order('C')]);
    assert_eq!(due(&book, 2003, 2), [order('D'), order('A')]);
    let book = book
        .then(tick(2003, 'A'), "A v2 expired! expired")
        .then(cancel('B', 3), "B v2 cancelled! cancelled answers 3")
        .then(full('D', 0, 1), "D v3 payment_refused answers 2 [refused w1]");
    assert_eq!(due(&book, 2003, 10), [order('D'), order('C')]);
}
