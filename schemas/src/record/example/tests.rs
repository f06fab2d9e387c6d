//! The wire format of each example.

use std::path::Path;

use super::*;
use crate::decode;

/// The bytes of each example are a file, so that a change of the wire format cannot go unnoticed.
/// `UPDATE_GOLDEN=1` is not read on purpose: delete the file to make a new one, and say why.
fn check<R: Record + PartialEq + std::fmt::Debug>(name: &str, record: &R) {
    let bytes = encode(record).unwrap();
    assert_eq!(&decode::<R>(&bytes).unwrap(), record, "{name} reads back");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.hex"));
    let text = alloy_primitives::hex::encode(&bytes);
    match std::fs::read_to_string(&path) {
        Ok(golden) => assert_eq!(golden.trim(), text, "{name} differs from {}", path.display()),
        Err(_) => {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            panic!("wrote a new golden file {}: commit it", path.display());
        }
    }
}

#[test]
fn golden_files_hold_the_examples() {
    each_example!(check);
}

/// Every kind of command goes through its schema unchanged.
#[test]
fn all_kinds_of_commands_read_back() {
    use crate::{CloseReason, RefusalReason, UnknownReason};
    let settle = Settle {
        transfer_id: TransferId(7),
        slot: 0,
        deposit_id: DepositId(1),
        blockchain: Blockchain::Eth,
        wallet_address: wallet(),
        accepts_late: true,
    };
    for body in [
        OrderCommandBody::ChoosePayment(payment()),
        OrderCommandBody::Cancel,
        OrderCommandBody::MarkPaid(None),
        OrderCommandBody::ResendWebhook(Some(order().into())),
        OrderCommandBody::DepositOpened { slot: 1, deposit_id: DepositId(4), value: amount(7) },
        OrderCommandBody::DepositRefused {
            slot: 1,
            wallet_address: wallet(),
            reason: RefusalReason::AmountsTaken,
        },
        OrderCommandBody::DepositClosed { slot: 1, reason: CloseReason::Expired },
        OrderCommandBody::CandidateSeen { transfer_id: TransferId(3) },
        OrderCommandBody::CandidateGone { transfer_id: TransferId(3) },
        OrderCommandBody::Settle(settle),
        OrderCommandBody::AttachRefused(Some(order().into())),
        OrderCommandBody::Tick,
    ] {
        let command = OrderCommand { body, command_id: None, ..order_command() };
        assert_eq!(decode::<OrderCommand>(&encode(&command).unwrap()).unwrap(), command);
    }
    for body in [
        DepositCommandBody::Close { reason: CloseReason::OrderPaid },
        DepositCommandBody::Settled { transfer_id: TransferId(3) },
        DepositCommandBody::Refused {
            transfer_id: TransferId(3),
            reason: UnknownReason::AlreadyPaid,
        },
        DepositCommandBody::Attached { transfer_id: TransferId(3) },
        DepositCommandBody::AttachRefused { transfer_id: TransferId(3) },
        DepositCommandBody::Resume(StopScope {
            blockchain: None,
            stablecoin: None,
            address: Some(wallet()),
        }),
    ] {
        let command = DepositCommand { body, ..deposit_command() };
        assert_eq!(decode::<DepositCommand>(&encode(&command).unwrap()).unwrap(), command);
    }
}
