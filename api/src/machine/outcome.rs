//! Whether a record of `orders` answers a command.

use schemas::record::{Order, OrderDeposit};
use schemas::{CommandId, DepositState, OrderCause};

use super::catalog::Choice;
use crate::error::Refusal;

/// What was asked of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A deposit for a choice of chain and stablecoin.
    Payment,
    /// The order's end.
    Cancel,
    /// Paid, whatever the chain says.
    MarkPaid,
}

impl Asked {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Payment => "choose_payment",
            Self::Cancel => "cancel",
            Self::MarkPaid => "mark_paid",
        }
    }
}

/// What a record means for a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not the answer.
    Wait,
    /// It was done; the record shows the result.
    Done,
    Refused(Refusal),
}

/// Considers the next record of an order for one of its commands.
pub(crate) fn consider(asked: Asked, command_id: CommandId, record: &Order) -> Verdict {
    use OrderCause as Cause;
    if record.command_id != Some(command_id) {
        return Verdict::Wait;
    }
    let (answered, verdict) = match record.cause {
        Cause::DepositOpened | Cause::PaymentRepeated => (Asked::Payment, Verdict::Done),
        Cause::PaymentRefused => (Asked::Payment, Verdict::Refused(Refusal::NoFreeAmount)),
        Cause::Cancelled => (Asked::Cancel, Verdict::Done),
        Cause::CancelRefused => (Asked::Cancel, Verdict::Refused(Refusal::PaymentSeen)),
        Cause::MarkedPaid | Cause::MarkPaidRepeated => (Asked::MarkPaid, Verdict::Done),
        Cause::NotPending if asked != Asked::MarkPaid => {
            (asked, Verdict::Refused(Refusal::NotPending))
        }
        // A step on the way: a wallet was asked and has not answered.
        Cause::Created
        | Cause::PaymentChosen
        | Cause::NotPending
        | Cause::DepositClosed
        | Cause::CandidateSeen
        | Cause::CandidateGone
        | Cause::Paid
        | Cause::Expired => return Verdict::Wait,
    };
    if answered == asked { verdict } else { Verdict::Wait }
}

/// The deposit of a choice that waits for the customer's transfer.
pub(crate) fn open_deposit(order: &Order, choice: Choice) -> Option<&OrderDeposit> {
    order.deposits.iter().find(|deposit| {
        deposit.blockchain == choice.blockchain
            && deposit.stablecoin == choice.stablecoin
            && deposit.state == DepositState::Open
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::record::example;
    use schemas::{Blockchain, Stablecoin};

    const OURS: CommandId = CommandId(uuid::Uuid::from_u128(1));
    const OTHER: CommandId = CommandId(uuid::Uuid::from_u128(2));

    const ANSWERS: [(Asked, OrderCause, Verdict); 9] = [
        (Asked::Payment, OrderCause::DepositOpened, Verdict::Done),
        (Asked::Payment, OrderCause::PaymentRepeated, Verdict::Done),
        (Asked::Payment, OrderCause::PaymentRefused, Verdict::Refused(Refusal::NoFreeAmount)),
        (Asked::Payment, OrderCause::NotPending, Verdict::Refused(Refusal::NotPending)),
        (Asked::Cancel, OrderCause::Cancelled, Verdict::Done),
        (Asked::Cancel, OrderCause::CancelRefused, Verdict::Refused(Refusal::PaymentSeen)),
        (Asked::Cancel, OrderCause::NotPending, Verdict::Refused(Refusal::NotPending)),
        (Asked::MarkPaid, OrderCause::MarkedPaid, Verdict::Done),
        (Asked::MarkPaid, OrderCause::MarkPaidRepeated, Verdict::Done),
    ];

    #[test]
    fn every_cause_means_one_thing_to_each_command() {
        for asked in [Asked::Payment, Asked::Cancel, Asked::MarkPaid] {
            for cause in OrderCause::ALL {
                let consider = |command_id| {
                    consider(asked, OURS, &Order { command_id, cause: *cause, ..example::order() })
                };
                let answer = ANSWERS.iter().find(|(to, of, _)| (to, of) == (&asked, cause));
                let expected = answer.map_or(&Verdict::Wait, |(_, _, verdict)| verdict);
                assert_eq!(&consider(Some(OURS)), expected, "{asked:?} {cause}");
                for stranger in [Some(OTHER), None] {
                    assert_eq!(consider(stranger), Verdict::Wait, "{asked:?} {cause}");
                }
            }
        }
    }

    #[test]
    fn only_an_open_deposit_of_the_choice_can_be_paid() {
        use DepositState::{Closed, Open, Refused, Requested};
        let (blockchain, stablecoin) = (Blockchain::Eth, Stablecoin::Usdt);
        let example = example::order();
        let deposit = example.deposits[0].clone();
        let order = |states: &[DepositState]| Order {
            deposits: states
                .iter()
                .map(|state| OrderDeposit {
                    state: *state,
                    blockchain,
                    stablecoin,
                    ..deposit.clone()
                })
                .collect(),
            ..example.clone()
        };
        let choice = Choice { blockchain, stablecoin };
        let found = |states: &[DepositState], choice| {
            open_deposit(&order(states), choice).map(|deposit| deposit.state)
        };
        assert_eq!(found(&[Refused, Closed, Open], choice), Some(Open));
        assert_eq!(found(&[Refused, Closed, Requested], choice), None);
        assert_eq!(found(&[Open], Choice { stablecoin: Stablecoin::Dai, ..choice }), None);
        assert_eq!(found(&[Open], Choice { blockchain: Blockchain::Tron, ..choice }), None);
    }
}
