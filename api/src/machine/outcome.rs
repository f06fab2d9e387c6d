//! Decision whether a record of `orders` answers a command.

use schemas::record::{Order, OrderDeposit};
use schemas::{CommandId, DepositState, OrderCause, OrderStatus};

use super::catalog::Choice;
use crate::error::Refusal;
use crate::feed::Audience;

/// A command that a request awaits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    Payment,
    Cancel,
    /// Cancellation by an operator.
    AdminCancel,
    MarkPaid,
    Resend,
    Attach,
}

impl Awaited {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Payment => "choose_payment",
            Self::Cancel => "cancel",
            Self::AdminCancel => "admin_cancel",
            Self::MarkPaid => "mark_paid",
            Self::Resend => "resend_webhook",
            Self::Attach => "attach_transfer",
        }
    }

    /// Audience whose requests give the command.
    pub(crate) fn audience(self) -> Audience {
        match self {
            Self::Payment | Self::Cancel => Audience::Customer,
            Self::AdminCancel | Self::MarkPaid | Self::Resend | Self::Attach => Audience::Operator,
        }
    }
}

/// Meaning of a record for a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not the answer.
    Wait,
    /// The command was executed; the record has the result.
    Done,
    Refused(Refusal),
}

/// Decides if the next record of an order answers a command.
pub(crate) fn consider(awaited: Awaited, command_id: CommandId, record: &Order) -> Verdict {
    use OrderCause as Cause;
    // The processor does not distinguish who cancels.
    let awaited = if awaited == Awaited::AdminCancel { Awaited::Cancel } else { awaited };
    if record.command_id != Some(command_id) {
        return Verdict::Wait;
    }
    let (answered, verdict) = match record.cause {
        Cause::DepositOpened | Cause::PaymentRepeated => (Awaited::Payment, Verdict::Done),
        Cause::PaymentRefused => (Awaited::Payment, Verdict::Refused(Refusal::NoFreeAmount)),
        Cause::PaymentUnavailable => (Awaited::Payment, Verdict::Refused(Refusal::NotFollowed)),
        Cause::Cancelled => (Awaited::Cancel, Verdict::Done),
        Cause::CancelRefused => (Awaited::Cancel, Verdict::Refused(Refusal::PaymentSeen)),
        Cause::MarkedPaid | Cause::MarkPaidRepeated => (Awaited::MarkPaid, Verdict::Done),
        Cause::WebhookResent => (Awaited::Resend, Verdict::Done),
        Cause::ResendRefused => (Awaited::Resend, Verdict::Refused(Refusal::OrderPending)),
        Cause::Attached => (Awaited::Attach, Verdict::Done),
        Cause::AttachRefused => (Awaited::Attach, Verdict::Refused(Refusal::SettledMeanwhile)),
        Cause::NotPending if matches!(awaited, Awaited::Payment | Awaited::Cancel) => {
            (awaited, Verdict::Refused(Refusal::NotPending))
        }
        // Not answers. After PaymentChosen a lane has yet to open the deposit or refuse it.
        Cause::Created
        | Cause::PaymentChosen
        | Cause::NotPending
        | Cause::DepositClosed
        | Cause::CandidateSeen
        | Cause::CandidateGone
        | Cause::Paid
        | Cause::PaidLate
        | Cause::Expired => return Verdict::Wait,
    };
    if answered == awaited { verdict } else { Verdict::Wait }
}

/// Verdict on an order with one fixed choice: done if it is paid, its deposit is open, or it ended after that was open.
pub(crate) fn payable(record: &Order, choice: Choice) -> Verdict {
    let was_open = deposits_of(record, choice).any(|deposit| deposit.value.is_some());
    let has_ended = record.status != OrderStatus::Pending;
    let is_paid = record.status == OrderStatus::Paid;
    if is_paid || open_deposit(record, choice).is_some() || (has_ended && was_open) {
        Verdict::Done
    } else if has_ended {
        // Nobody could ever pay the order, so no customer is sent to its page.
        Verdict::Refused(Refusal::NotPending)
    } else if record.cause == OrderCause::PaymentRefused {
        Verdict::Refused(Refusal::NoFreeAmount)
    } else if record.cause == OrderCause::PaymentUnavailable {
        Verdict::Refused(Refusal::NotFollowed)
    } else {
        Verdict::Wait
    }
}

/// The deposit of a choice that awaits the customer's transfer.
pub(crate) fn open_deposit(order: &Order, choice: Choice) -> Option<&OrderDeposit> {
    deposits_of(order, choice).find(|deposit| deposit.state == DepositState::Open)
}

fn deposits_of(order: &Order, choice: Choice) -> impl Iterator<Item = &OrderDeposit> {
    order.deposits.iter().filter(move |deposit| {
        deposit.blockchain == choice.blockchain && deposit.stablecoin == choice.stablecoin
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::example;
    use schemas::{Blockchain, Stablecoin};

    const OURS: CommandId = CommandId(uuid::Uuid::from_u128(1));
    const OTHER: CommandId = CommandId(uuid::Uuid::from_u128(2));

    /// A create whose order has ended succeeds if a deposit was ever open or the order is paid, else it is refused.
    #[test]
    fn ended_order_answers_if_it_was_ever_payable() {
        let order = example::order();
        let deposit = order.deposits[0].clone();
        let choice = Choice { blockchain: deposit.blockchain, stablecoin: deposit.stablecoin };
        let with = |status, state, value| {
            let deposits = vec![OrderDeposit { state, value, ..deposit.clone() }];
            payable(
                &Order { status, cause: OrderCause::Created, deposits, ..order.clone() },
                choice,
            )
        };
        let value = Some(order.amount);
        for ended in [OrderStatus::Expired, OrderStatus::Cancelled] {
            assert_eq!(with(ended, DepositState::Closed, value), Verdict::Done, "{ended}");
            let refused = Verdict::Refused(Refusal::NotPending);
            assert_eq!(with(ended, DepositState::Refused, None), refused, "{ended}");
            assert_eq!(with(ended, DepositState::Requested, None), refused, "{ended}");
        }
        // Marked paid by an operator.
        assert_eq!(with(OrderStatus::Paid, DepositState::Refused, None), Verdict::Done);
        assert_eq!(with(OrderStatus::Pending, DepositState::Open, value), Verdict::Done);
        assert_eq!(with(OrderStatus::Pending, DepositState::Closed, value), Verdict::Wait);
        let other = Choice { stablecoin: Stablecoin::Dai, ..choice };
        let closed = OrderDeposit { state: DepositState::Closed, value, ..deposit.clone() };
        let expired =
            Order { status: OrderStatus::Expired, deposits: vec![closed], ..order.clone() };
        assert_eq!(payable(&expired, other), Verdict::Refused(Refusal::NotPending));
    }

    const ANSWERS: [(Awaited, OrderCause, Verdict); 14] = [
        (Awaited::Payment, OrderCause::DepositOpened, Verdict::Done),
        (Awaited::Payment, OrderCause::PaymentRepeated, Verdict::Done),
        (Awaited::Payment, OrderCause::PaymentRefused, Verdict::Refused(Refusal::NoFreeAmount)),
        (Awaited::Payment, OrderCause::PaymentUnavailable, Verdict::Refused(Refusal::NotFollowed)),
        (Awaited::Payment, OrderCause::NotPending, Verdict::Refused(Refusal::NotPending)),
        (Awaited::Cancel, OrderCause::Cancelled, Verdict::Done),
        (Awaited::Cancel, OrderCause::CancelRefused, Verdict::Refused(Refusal::PaymentSeen)),
        (Awaited::Cancel, OrderCause::NotPending, Verdict::Refused(Refusal::NotPending)),
        (Awaited::MarkPaid, OrderCause::MarkedPaid, Verdict::Done),
        (Awaited::MarkPaid, OrderCause::MarkPaidRepeated, Verdict::Done),
        (Awaited::Resend, OrderCause::WebhookResent, Verdict::Done),
        (Awaited::Resend, OrderCause::ResendRefused, Verdict::Refused(Refusal::OrderPending)),
        (Awaited::Attach, OrderCause::Attached, Verdict::Done),
        (Awaited::Attach, OrderCause::AttachRefused, Verdict::Refused(Refusal::SettledMeanwhile)),
    ];

    #[test]
    fn every_cause_means_one_thing_to_each_command() {
        use Awaited::{AdminCancel, Attach, Cancel, MarkPaid, Payment, Resend};
        for awaited in [Payment, Cancel, AdminCancel, MarkPaid, Resend, Attach] {
            let given = awaited;
            let awaited = if given == AdminCancel { Cancel } else { given };
            for cause in OrderCause::ALL {
                let consider = |command_id| {
                    consider(given, OURS, &Order { command_id, cause: *cause, ..example::order() })
                };
                let answer = ANSWERS.iter().find(|(to, of, _)| (to, of) == (&awaited, cause));
                let expected = answer.map_or(&Verdict::Wait, |(_, _, verdict)| verdict);
                assert_eq!(&consider(Some(OURS)), expected, "{awaited:?} {cause}");
                for stranger in [Some(OTHER), None] {
                    assert_eq!(consider(stranger), Verdict::Wait, "{awaited:?} {cause}");
                }
            }
        }
    }

    #[test]
    fn only_an_open_deposit_of_the_choice_can_be_paid() {
        use DepositState::{Closed, Open, Refused, Requested};
        let deposit = example::order().deposits[0].clone();
        let choice = Choice { blockchain: deposit.blockchain, stablecoin: deposit.stablecoin };
        let found = |states: &[DepositState], choice| {
            let deposit = |state: &_| OrderDeposit { state: *state, ..deposit.clone() };
            let deposits = states.iter().map(deposit).collect();
            let order = Order { deposits, ..example::order() };
            open_deposit(&order, choice).map(|deposit| deposit.state)
        };
        assert_eq!(found(&[Refused, Closed, Open], choice), Some(Open));
        assert_eq!(found(&[Refused, Closed, Requested], choice), None);
        assert_eq!(found(&[Open], Choice { stablecoin: Stablecoin::Dai, ..choice }), None);
        assert_eq!(found(&[Open], Choice { blockchain: Blockchain::Tron, ..choice }), None);
    }
}
