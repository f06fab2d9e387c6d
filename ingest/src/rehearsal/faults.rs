//! Faults that an endpoint may have, and their durations.

use testkit::Dice;
use testkit::faults::{Behaviour, Class, Fault, Numbering, REFUSALS};

/// Maximum length of a long fault in requests. `Removed` is longer.
pub(super) const LONG: usize = 40;

/// Returns `true` for refusals that are neither about size nor about pruned data.
fn passes(class: Class) -> bool {
    matches!(class, Class::Rate | Class::Behind | Class::Timeout | Class::Transient | Class::Fatal)
}

/// Index of a random refusal, about size or not.
fn words(dice: &mut Dice, is_size: bool) -> usize {
    let fits = |class| if is_size { matches!(class, Class::Size(_)) } else { passes(class) };
    loop {
        let choice = dice.below(REFUSALS.len());
        if fits(REFUSALS[choice].3) {
            return choice;
        }
    }
}

/// A limit on ranges in some provider's words.
pub(super) fn range(dice: &mut Dice) -> (u64, usize) {
    (1 + dice.below(6) as u64, words(dice, true))
}

/// A fault, and the number of requests that have it.
pub(super) fn fault(dice: &mut Dice) -> (Fault, u32) {
    let requests = |most: usize, dice: &mut Dice| 1 + u32::try_from(dice.below(most)).unwrap();
    match dice.below(33) {
        0 | 1 => (Fault::Refuses(words(dice, false)), requests(4, dice)),
        2 => (Fault::RefusesBatch(words(dice, false)), requests(3, dice)),
        3 => (Fault::RefusesLogs(words(dice, false)), requests(4, dice)),
        4 => (Fault::RefusesLogs(words(dice, true)), requests(6, dice)),
        5 => (Fault::Rate(None), requests(4, dice)),
        6 => (Fault::Rate(Some(u8::from(dice.below(8) == 0))), 1),
        7 => (Fault::Unavailable, requests(6, dice)),
        8 => (Fault::Html, requests(3, dice)),
        9 => (Fault::Empty, requests(3, dice)),
        10 => (Fault::EmptyList, requests(3, dice)),
        11 => (Fault::TronRefusal, requests(3, dice)),
        12 => (Fault::TronSentence, requests(3, dice)),
        13 => (Fault::Reset, requests(4, dice)),
        14 => (Fault::Cut, requests(3, dice)),
        15 if dice.below(3) == 0 => (Fault::Drip, 1),
        16 if dice.below(3) == 0 => (Fault::Silence, 1),
        15..=17 => (Fault::PartialBatch, requests(4, dice)),
        18 => (Fault::NullBlocks, requests(4, dice)),
        19 => (Fault::Behind(1 + dice.below(3) as u64), requests(12, dice)),
        20 => (Fault::Stutter, requests(LONG, dice)),
        21 => (Fault::Collides, requests(8, dice)),
        22 | 23 => (Fault::Stale, requests(LONG, dice)),
        24 | 25 => (Fault::Mixed, requests(LONG, dice)),
        // Long enough for the block of the removed log to be confirmed, if ingest believed the log.
        26 | 27 | 30 => (Fault::Removed, 100 + requests(LONG, dice)),
        28 => (Fault::Unauthorized, requests(LONG, dice)),
        29 => (Fault::Loose, requests(8, dice)),
        _ => (Fault::Foreign, requests(LONG, dice)),
    }
}

/// A fault that leaves out logs of any block: only one of two endpoints has it.
pub(super) fn omission(dice: &mut Dice) -> (Fault, u32) {
    let requests = 1 + u32::try_from(dice.below(LONG)).unwrap();
    (if dice.below(2) == 0 { Fault::NoLogs } else { Fault::PartialLogs }, requests)
}

/// Another numbering of logs, in all or in every second answer; or the usual one again.
pub(super) fn renumber(dice: &mut Dice, behaviour: &mut Behaviour) {
    // Zero is rarer: two payments of a block with one index are easily recognised as a fault.
    let numbering = if dice.below(4) > 0 { Numbering::Transaction } else { Numbering::Zero };
    let is_wrong = behaviour.numbering != Numbering::Block || behaviour.backend.is_some();
    behaviour.numbering = Numbering::Block;
    behaviour.backend = None;
    if is_wrong {
        return;
    }
    if dice.below(4) > 0 {
        behaviour.numbering = numbering;
    } else {
        let other = Behaviour { fault: None, numbering, ..behaviour.clone() };
        behaviour.backend = Some(Box::new(other));
    }
}
