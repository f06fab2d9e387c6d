//! Stories as golden text, and the meaning of each kind.

use schemas::record::{AuditEntry, Block, Held, example};
use schemas::{
    Amount, AttemptOutcome, AuditAction, CloseReason, DepositState, OrderCause, OrderStatus,
    TransferStatus, UnixSeconds, UnknownReason,
};

use super::meaning::Meaning;
use super::*;

const CREATED: i64 = 1_790_000_000;

fn at(second: i64) -> UnixMicros {
    UnixSeconds(CREATED + second).micros()
}

/// An order after some of its changes: its deadline is half an hour after its creation.
pub(crate) fn order(version: i64, second: i64, cause: OrderCause, status: OrderStatus) -> Order {
    Order {
        version,
        updated_at: at(second),
        cause,
        status,
        status_changed: version == 1 || status != OrderStatus::Pending,
        created_at: UnixSeconds(CREATED),
        expires_at: UnixSeconds(CREATED + 1800),
        candidates: vec![],
        ..example::order()
    }
}

pub(crate) fn transfer(second: i64, status: TransferStatus) -> Transfer {
    let block = Block { timestamp: UnixSeconds(CREATED + second), ..example::transfer().block };
    Transfer {
        updated_at: at(second),
        block,
        status,
        blockchain_confirmed: status != TransferStatus::WaitingForConfirmation,
        created_at: UnixSeconds(CREATED + second),
        order_id: None,
        fulfillment_id: None,
        deposit_id: None,
        ..example::transfer()
    }
}

fn deposit(second: i64, state: DepositState, close_reason: Option<CloseReason>) -> Event {
    let expires_at = UnixSeconds(CREATED + 1800);
    Event::Deposit(Deposit {
        updated_at: at(second),
        state,
        close_reason,
        expires_at,
        ..example::deposit()
    })
}

fn attempt(second: i64, number: i32, outcome: AttemptOutcome) -> Event {
    let (http_status, cause) = if outcome == AttemptOutcome::Delivered {
        (Some(200), "")
    } else {
        (None, "no answer in 10 s")
    };
    Event::Attempt(Attempt {
        attempt: number,
        attempted_at: at(second),
        outcome,
        http_status,
        cause: cause.to_owned(),
        answer: String::new(),
        duration_ms: 84,
        ..example::attempt()
    })
}

/// Events of a successful payment, unsorted.
fn paid() -> Vec<Event> {
    let paid = Order {
        paid_by: Some(example::transfer().transfer_id),
        paid_value: Some(example::transfer().observation.value),
        ..order(5, 40, OrderCause::Paid, OrderStatus::Paid)
    };
    let seen = transfer(20, TransferStatus::WaitingForConfirmation);
    let matched = Transfer {
        order_id: Some(paid.order_id),
        updated_at: at(40),
        ..transfer(20, TransferStatus::Matched)
    };
    let number = seen.block.number + 11;
    let head = Block { number, timestamp: UnixSeconds(CREATED + 38), ..seen.block };
    let confirmation = Confirmation {
        transfer_id: seen.transfer_id,
        blockchain: seen.blockchain,
        number: seen.block.number,
        head,
        finalized: seen.block.number - 40,
        at: at(39),
    };
    vec![
        attempt(45, 2, AttemptOutcome::Delivered),
        attempt(42, 1, AttemptOutcome::Timeout),
        Event::Order(paid),
        deposit(41, DepositState::Closed, Some(CloseReason::Settled)),
        Event::Transfer(matched.clone()),
        Event::Transfer(matched),
        Event::Confirmed(confirmation),
        Event::Transfer(seen),
        Event::Order(order(4, 21, OrderCause::CandidateSeen, OrderStatus::Pending)),
        deposit(5, DepositState::Open, None),
        Event::Order(order(3, 6, OrderCause::DepositOpened, OrderStatus::Pending)),
        Event::Order(order(2, 4, OrderCause::PaymentChosen, OrderStatus::Pending)),
        Event::Order(order(1, 0, OrderCause::Created, OrderStatus::Pending)),
    ]
}

#[track_caller]
fn means(events: Vec<Event>, second: i64, text: &str, help: Option<&str>) {
    let Meaning { text: found, help: found_help } =
        meaning::of(&Story::new(events), UnixSeconds(CREATED + second));
    assert_eq!(found, text);
    match (found_help, help) {
        (None, None) => {}
        (Some(found), Some(part)) => assert!(found.contains(part), "{found}"),
        (found, _) => panic!("{found:?} instead of {help:?}"),
    }
}

#[test]
fn a_story_is_in_order_of_time_and_cause() {
    let story = Story::new(paid());
    let lines: Vec<_> = story.events.iter().map(words::line).collect();
    let golden = include_str!("paid.txt");
    assert_eq!(lines.join("\n") + "\n", golden);
    assert_eq!(story.order.unwrap().version, 5);
    assert_eq!(story.transfers.len(), 1);
}

#[test]
fn events_are_records_for_programs() {
    for event in paid() {
        let json = event.json().unwrap();
        assert_eq!(
            (&json["kind"], &json["time"]),
            (&event.kind().into(), &event.at().to_rfc3339().into())
        );
        assert!(json["record"].is_object(), "{json}");
    }
}

#[test]
fn a_paid_order_says_if_the_shop_knows_it() {
    let by = "Paid by transfer 7: 10.50 of 10.50. The shop has";
    means(paid(), 60, &format!("{by} acknowledged the webhook."), None);
    let mut waiting = paid();
    waiting.remove(0);
    means(waiting.clone(), 60, &format!("{by} not acknowledged the webhook yet."), None);
    waiting.push(Event::Dead(example::delivery(), at(50)));
    let text = format!("{by} not acknowledged the webhook, which was given up.");
    means(waiting, 60, &text, Some("tidemark webhook dead redrive --order"));
    let marked = order(2, 9, OrderCause::MarkedPaid, OrderStatus::Paid);
    let text = "Paid, as an operator marked it, without a transfer. The shop has not acknowledged the webhook yet.";
    means(vec![Event::Order(marked)], 60, text, None);
}

/// A customer who paid twice gets the second payment back.
#[test]
fn a_second_payment_of_a_paid_order_is_reported() {
    let second = Transfer {
        transfer_id: TransferId(8),
        reason: Some(UnknownReason::AlreadyPaid),
        candidate_order_id: Some(example::order().order_id),
        ..transfer(50, TransferStatus::NoMatchedDeposit)
    };
    let with = |mut events: Vec<Event>, transfer: &Transfer| {
        events.push(Event::Transfer(transfer.clone()));
        events
    };
    let paid_by = "Paid by transfer 7: 10.50 of 10.50. The shop has acknowledged the webhook.";
    let pays_nothing = "Transfer 8 brought 10.50 USDT and pays nothing.";
    let text = format!("{paid_by} {pays_nothing}");
    means(with(paid(), &second), 60, &text, Some("; otherwise send it back"));
    let mut given_up = with(paid(), &second);
    given_up.remove(0);
    given_up.push(Event::Dead(example::delivery(), at(50)));
    let found = meaning::of(&Story::new(given_up), UnixSeconds(CREATED + 60));
    let help = found.help.unwrap();
    assert!(help.starts_with("tidemark webhook dead redrive") && help.ends_with("send it back"));
    let gone = Transfer { orphaned_at: Some(UnixSeconds(CREATED)), ..second.clone() };
    let own = Transfer { reason: Some(UnknownReason::OwnWallet), ..second.clone() };
    for transfer in [gone, own] {
        means(with(paid(), &transfer), 60, paid_by, None);
    }
    // The operator may have marked it paid because of this transfer.
    let marked = Event::Order(order(2, 9, OrderCause::MarkedPaid, OrderStatus::Paid));
    let text = "Paid, as an operator marked it, without a transfer. The shop has not acknowledged the webhook yet. \
                Transfer 8 brought 10.50 USDT and pays nothing.";
    means(with(vec![marked], &second), 60, text, Some("if it is for this order: POST"));
}

#[test]
fn money_that_is_gone_comes_first() {
    let mut events = paid();
    let orphaned_at = Some(UnixSeconds(CREATED + 50));
    let gone = Transfer { orphaned_at, ..transfer(20, TransferStatus::Matched) };
    events.push(Event::Transfer(Transfer { updated_at: at(50), ..gone }));
    let text =
        "Paid by transfer 7, and the chain no longer has that transfer: the money may be gone.";
    means(events, 60, text, Some("A halted chain"));
}

#[test]
fn a_pending_order_says_what_it_waits_for() {
    let created = Event::Order(order(1, 0, OrderCause::Created, OrderStatus::Pending));
    let until = "2026-09-21T14:43:20Z";
    let text = format!("The customer has not chosen how to pay; the order ends at {until}.");
    means(vec![created.clone()], 60, &text, None);
    let open = vec![created.clone(), deposit(5, DepositState::Open, None)];
    let wallet = example::deposit().wallet_address;
    let text = format!("Not paid yet: 10.50 USDT on eth to {wallet} pays it until {until}.");
    means(open.clone(), 60, &text, None);
    let text = format!(
        "The time to pay ended at {until}, and no chain has passed it yet: a payment in time still counts."
    );
    means(open.clone(), 1801, &text, Some("tidemark status"));
    let seen = Event::Transfer(transfer(20, TransferStatus::WaitingForConfirmation));
    let text =
        "A payment of 10.50 USDT was seen in block 21000000 of eth and is not confirmed yet.";
    means([open, vec![seen]].concat(), 60, text, Some("wait"));
}

#[test]
fn an_order_that_ended_unpaid_says_why() {
    let expired = Event::Order(order(2, 1801, OrderCause::Expired, OrderStatus::Expired));
    let text = "Expired at 2026-09-21T14:43:20Z: no payment for it was seen.";
    means(vec![expired.clone()], 1900, text, Some("tidemark find HASH"));
    let cancelled = Event::Order(order(2, 9, OrderCause::Cancelled, OrderStatus::Cancelled));
    means(vec![cancelled.clone()], 60, "Cancelled before a payment was seen.", None);
    let left = Event::Transfer(transfer(20, TransferStatus::FailedToConfirm));
    let seen = "a payment of 10.50 USDT was seen in block 21000000 of eth and left the chain";
    let text = format!("Expired at 2026-09-21T14:43:20Z: {seen}.");
    means(vec![expired, left.clone()], 1900, &text, Some("tidemark find HASH"));
    means(vec![cancelled, left], 60, &format!("Cancelled: {seen}."), None);
}

#[test]
fn an_unknown_transfer_says_what_it_lacks() {
    let expired = order(2, 1801, OrderCause::Expired, OrderStatus::Expired);
    let of = |second, reason, value: &str| {
        let candidate_order_id = Some(expired.order_id);
        let mut unknown = Transfer {
            reason: Some(reason),
            candidate_order_id,
            value_text: value.to_owned(),
            ..transfer(second, TransferStatus::NoMatchedDeposit)
        };
        unknown.observation.value = Amount::parse(value).unwrap();
        vec![Event::Order(expired.clone()), Event::Transfer(unknown)]
    };
    let (order, accept) = ("attach {\"order_id\":\"", "\"accept_less\":true}");
    let amount = "which is not the amount that was asked for";
    for (reason, value, why, help) in [
        (UnknownReason::Late, "10.50", "20 s after the order's deadline", order),
        (UnknownReason::AmountMismatch, "9.00", amount, accept),
        (UnknownReason::SenderMismatch, "10.50", "from another sender than the order's", "attach"),
        (UnknownReason::OtherContract, "10.50", "of another contract than the order's", "attach"),
        (UnknownReason::BeforeDeposit, "10.50", "before the deposit was open", "attach"),
        (UnknownReason::OrderCancelled, "10.50", "after the order was cancelled", "attach"),
        (UnknownReason::Stopped, "10.50", "while an operator had stopped such payments", "attach"),
    ] {
        let text = format!("Not paid: transfer 7 brought {value} USDT of 10.50, {why}.");
        means(of(1820, reason, value), 1900, &text, Some(help));
    }
    let own = "Not paid. Transfer 7 comes from a wallet of the configuration and is no payment.";
    means(of(20, UnknownReason::OwnWallet, "10.50"), 60, own, None);
}

#[test]
fn a_transfer_of_no_order_is_explained() {
    let of = |status, reason| vec![Event::Transfer(Transfer { reason, ..transfer(20, status) })];
    let unknown = TransferStatus::NoMatchedDeposit;
    let text = "10.50 USDT came that no order is known for: it pays nothing.";
    means(of(unknown, Some(UnknownReason::NoDeposit)), 60, text, Some("tidemark find 10.50"));
    let own = "It comes from a wallet of the configuration and is no payment of a customer.";
    means(of(unknown, Some(UnknownReason::OwnWallet)), 60, own, None);
    let waiting = "A payment of 10.50 USDT that is not confirmed or not matched yet.";
    means(of(TransferStatus::WaitingForMatch, None), 60, waiting, Some("wait"));
    let gone = "The chain no longer has this transfer: no money came.";
    means(of(TransferStatus::FailedToConfirm, None), 60, gone, None);
    let order_id = Some(example::order().order_id);
    let paying = Transfer { order_id, ..transfer(20, TransferStatus::Matched) };
    let text = format!("It pays order {}.", example::order().order_id);
    means(vec![Event::Transfer(paying.clone())], 60, &text, None);
    let orphaned = |of| Event::Transfer(Transfer { orphaned_at: Some(UnixSeconds(CREATED)), ..of });
    let text = format!(
        "It paid order {}, and the chain no longer has that transfer: the money may be gone.",
        example::order().order_id
    );
    means(vec![orphaned(paying)], 60, &text, Some("A halted chain"));
    // Nobody may send money back that never came.
    means(vec![orphaned(transfer(20, unknown))], 60, gone, None);
    means(vec![], 60, "Nothing is known of it.", None);
}

/// The payment's order may be one of those that the restore lost.
#[test]
fn after_a_restore_nothing_is_just_sent_back() {
    let expired = order(2, 1801, OrderCause::Expired, OrderStatus::Expired);
    let unknown = Event::Transfer(transfer(20, TransferStatus::NoMatchedDeposit));
    for events in [vec![unknown.clone()], vec![Event::Order(expired), unknown]] {
        let story = Story::new(events);
        let help = |story: &Story| meaning::of(story, UnixSeconds(CREATED + 1900)).help.unwrap();
        assert!(help(&story).ends_with("; otherwise send it back"), "{}", help(&story));
        let restored = Story { is_restored: true, ..story };
        let found = help(&restored);
        assert!(found.ends_with("(docs/operate/backup.md)"), "{found}");
        assert!(!found.contains("otherwise send it back"), "{found}");
    }
}

#[test]
fn a_confirmation_without_finality_says_so() {
    let confirmation = paid().into_iter().find_map(|event| {
        let Event::Confirmed(by) = event else { return None };
        Some(by)
    });
    let young = Confirmation { finalized: -1, ..confirmation.unwrap() };
    let line = words::line(&Event::Confirmed(young));
    assert!(line.ends_with("depth 12, nothing is final yet"), "{line}");
}

#[test]
fn commands_and_alerts_are_events() {
    let entry = AuditEntry { action: AuditAction::MarkPaid, ..example::audit_entry() };
    let line = words::line(&Event::Operator(entry.clone()));
    assert!(line.contains(&format!("mark paid by {}", entry.operator)), "{line}");
    let alert = example::alert();
    let line = words::line(&Event::Alert(alert.clone()));
    assert!(line.contains(&format!("{}: {}", alert.kind, alert.message)), "{line}");
}

/// A head confirms none of the transfers that it lists as held, however deep their blocks are.
#[test]
fn a_held_transfer_is_not_confirmed() {
    let mut record = example::chain_head();
    let ChainBody::Head(head) = &mut record.body else { panic!("{record:?}") };
    let Held { block, transfer: observation } = head.held[0];
    head.confirmed.iter_mut().for_each(|tier| tier.number = block.number);
    let transfer = Transfer { block, observation, ..example::transfer() };
    assert_eq!(Confirmation::by(&record, &transfer), None);
    let ChainBody::Head(head) = &mut record.body else { panic!("{record:?}") };
    head.held.clear();
    assert!(Confirmation::by(&record, &transfer).is_some());
}
