//! Random events outside the pipeline.

use oracle::machine_model::pipeline::Tricks;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::world::{CLOCKS, DAY, LEAP, World};

/// Chain, stablecoin, and the wallets: the first, the second or both.
pub(crate) type Choice = (usize, usize, usize);

/// Event outside the pipeline.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    Create {
        price: usize,
        sender: usize,
        long: bool,
        choice: Option<Choice>,
    },
    Choose {
        order: usize,
        choice: Choice,
    },
    Cancel {
        order: usize,
    },
    /// An operator's command carries the order's row, `behind` versions old.
    Resend {
        order: usize,
        behind: usize,
    },
    MarkPaid {
        order: usize,
        behind: usize,
    },
    /// An operator attaches one of the last transfers that paid nothing.
    Attach {
        order: usize,
        transfer: usize,
        behind: usize,
    },
    /// The merchant repeats a create; sent only while the tables lack the order.
    Repeat {
        order: usize,
        behind: usize,
    },
    Pay(Pay),
    /// An operator stops the chain, a coin, a contract or a wallet, or ends one or all stops.
    Stop {
        chain: usize,
        what: usize,
        begins: bool,
    },
    /// A customer pays the last four deposits of the order, on whichever chains they are.
    PayAll {
        order: usize,
    },
    /// An amount is sent to a wallet.
    Send {
        price: usize,
        cents_off: usize,
        choice: Choice,
        sender: usize,
        other: bool,
    },
    Mine(Mine),
    Fork(Fork),
    /// Time passes, with all queues read after each block, until every window has ended; with `long`, until ended
    /// orders are forgotten.
    Rest {
        long: bool,
    },
    /// A payment is orphaned for hours or days, often while its order's commands are held back.
    Away(Away),
    /// Endpoints disagree about a transfer that is not confirmed yet.
    Dispute {
        chain: usize,
        transfer: usize,
    },
    /// A dispute ends: all held transfers accepted, or the first rejected.
    Decide {
        chain: usize,
        rejects: bool,
    },
    /// Unscanned blocks disappear from every endpoint, or return.
    Gap {
        chain: usize,
        begins: bool,
    },
    /// An operator rewinds a chain by more than a day.
    Rewind(Rewind),
    /// An order that accepts late payments is offered on two chains: a late payment on one is disputed until long after
    /// the deadline on the other.
    Linger {
        chain: usize,
        price: usize,
    },
    /// All endpoints of a running chain stop responding, or one responds again.
    Unsee {
        chain: usize,
        begins: bool,
    },
    /// The installation is restored from a backup.
    Restore(Restore),
    /// Ingest watches the second wallet, too.
    Watch {
        chain: usize,
    },
    /// No block for a while, reported by ingest. All queues are read before a wait of days.
    Wait {
        chain: usize,
        seconds: i64,
    },
    /// Ingest of a chain and the api restart with another configuration.
    Configure {
        chain: usize,
        other: bool,
    },
}

/// A customer pays the newest or an earlier deposit of the order: exactly, a cent more, a cent less or twice as much;
/// from the expected account, the zero address or a wallet of the shop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pay {
    pub(crate) order: usize,
    pub(crate) earlier: usize,
    pub(crate) cents_off: usize,
    pub(crate) sender: usize,
    pub(crate) joined: bool,
    pub(crate) twice: bool,
    /// `true` for another contract of the coin.
    pub(crate) other: bool,
}

impl Pay {
    /// One exact payment from the expected account.
    pub(crate) fn exact(order: usize, earlier: usize) -> Self {
        Self { order, earlier, cents_off: 0, sender: 0, joined: false, twice: false, other: false }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mine {
    pub(crate) chain: usize,
    pub(crate) blocks: usize,
    pub(crate) seconds: i64,
    pub(crate) transactions: usize,
    pub(crate) each: bool,
    /// The last block's logs lag until the next scan.
    pub(crate) late: bool,
}

/// The last blocks are replaced. For each of their transactions two bits of `fates`: kept in its block, moved to the
/// last new block, back to the mempool, lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fork {
    pub(crate) chain: usize,
    pub(crate) depth: usize,
    pub(crate) further: usize,
    pub(crate) fates: u16,
    pub(crate) seconds: i64,
    pub(crate) back: bool,
}

/// Course of a payment that is orphaned, and of its order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Away {
    pub(crate) chain: usize,
    pub(crate) price: usize,
    /// The order ends after days.
    pub(crate) long: bool,
    /// Its customer chooses another coin before the payment, which is made in the first one.
    pub(crate) replaced: bool,
    /// Number of blocks orphaned with the payment.
    pub(crate) depth: usize,
    pub(crate) fates: u16,
    /// Hours per block.
    pub(crate) hours: i64,
    /// The order's commands are read at once, not only at the end: the payment may be orphaned after its verdict.
    pub(crate) answers: bool,
    /// An operator ends the order before it reads that it is paid.
    pub(crate) ended: bool,
    /// Another order of this price exists before the payment returns.
    pub(crate) rival: bool,
    /// Mempool transactions return in the first of these blocks, which may be orphaned too.
    pub(crate) back: usize,
    pub(crate) again: bool,
}

/// A rewind below finality, after the payments of an order were settled and forgotten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rewind {
    pub(crate) chain: usize,
    pub(crate) price: usize,
    /// Days without events before it.
    pub(crate) days: usize,
    /// The operator names the retracted transfers.
    pub(crate) named: bool,
    /// `true` if the chain returns to the old branch, as it always does if no transfer is named; otherwise the branch's
    /// transactions are in a new block.
    pub(crate) same: bool,
    /// Another order of this price is created after the rewind.
    pub(crate) rival: bool,
}

/// A restore that loses an order, its payment and a stranger's payment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restore {
    pub(crate) chain: usize,
    pub(crate) price: usize,
    /// Blocks since the backup.
    pub(crate) depth: usize,
    /// Another order of this price is created after the restore.
    pub(crate) rival: bool,
    /// `true` if the other order is read before the chain is read again.
    pub(crate) early: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) happenings: Vec<(Happening, u64)>,
    pub(crate) tricks: Tricks,
    /// Seconds by which each chain's own time is ahead of the shop's.
    pub(crate) ahead: [i64; 2],
}

/// One chain is busier, so that events concern the same objects.
fn chain() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0_usize), 1 => Just(1)]
}

fn choice() -> impl Strategy<Value = Choice> {
    (chain(), 0..2_usize, 0..3_usize)
}

/// Events of an order or its payments.
fn deal() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0..3_usize, 0..6_usize, any::<bool>(), proptest::option::weighted(0.7, choice()))
            .prop_map(|(price, sender, long, choice)| {
                Happening::Create { price, sender, long, choice }
            }),
        5 => (0..4_usize, choice()).prop_map(|(order, choice)| Happening::Choose { order, choice }),
        2 => (0..4_usize).prop_map(|order| Happening::Cancel { order }),
        1 => (0..4_usize, 0..3_usize)
            .prop_map(|(order, behind)| Happening::MarkPaid { order, behind }),
        1 => (0..4_usize, 0..3_usize).prop_map(|(order, behind)| Happening::Resend { order, behind }),
        2 => (0..4_usize, 0..3_usize, 0..6_usize).prop_map(|(order, transfer, behind)| {
            Happening::Attach { order, transfer, behind: behind.saturating_sub(3) }
        }),
        1 => (0..4_usize, 0..3_usize).prop_map(|(order, behind)| Happening::Repeat { order, behind }),
        6 => (0..4_usize, 0..6_usize, 0..8_usize, 0..10_usize, any::<bool>(), 0..6_u8, 0..6_u8).prop_map(
            |(order, earlier, cents_off, sender, joined, twice, other)| {
                let (earlier, twice, other) = (earlier.saturating_sub(3), twice == 0, other == 0);
                Happening::Pay(Pay { order, earlier, cents_off, sender, joined, twice, other })
            }
        ),
        2 => (0..4_usize).prop_map(|order| Happening::PayAll { order }),
        2 => (0..3_usize, 0..8_usize, choice(), 0..10_usize, 0..4_u8).prop_map(
            |(price, cents_off, choice, sender, other)| {
                Happening::Send { price, cents_off, choice, sender, other: other == 0 }
            }
        ),
    ]
}

fn away() -> impl Strategy<Value = Away> {
    // Most payments orphaned for a day return.
    let fates = prop_oneof![2 => Just(0xaaaa), 1 => any::<u16>()];
    let answers = prop_oneof![
        5 => Just((false, false)),
        3 => Just((true, false)),
        2 => Just((true, true)),
    ];
    let of_order = (answers, any::<[bool; 3]>());
    (chain(), 0..3_usize, of_order, 1..6_usize, fates, 1..9_i64, 0..6_usize, any::<bool>())
        .prop_map(|(chain, price, of_order, depth, fates, hours, back, again)| {
            let ((answers, replaced), [long, ended, rival]) = of_order;
            Away {
                chain,
                price,
                long,
                replaced,
                depth,
                fates,
                hours,
                answers,
                ended,
                rival,
                back,
                again,
            }
        })
}

/// Events of endpoints that disagree or lack blocks.
fn doubt() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (chain(), 0..4_usize)
            .prop_map(|(chain, transfer)| Happening::Dispute { chain, transfer }),
        2 => (chain(), any::<bool>())
            .prop_map(|(chain, rejects)| Happening::Decide { chain, rejects }),
        1 => (chain(), any::<bool>()).prop_map(|(chain, begins)| Happening::Gap { chain, begins }),
    ]
}

fn rewind() -> impl Strategy<Value = Rewind> {
    (chain(), 0..3_usize, 1..4_usize, any::<[bool; 3]>()).prop_map(
        |(chain, price, days, [named, same, rival])| Rewind {
            chain,
            price,
            days,
            named,
            same,
            rival,
        },
    )
}

fn restore() -> impl Strategy<Value = Restore> {
    (chain(), 0..3_usize, 1..6_usize, any::<[bool; 2]>()).prop_map(
        |(chain, price, depth, [rival, early])| Restore { chain, price, depth, rival, early },
    )
}

/// Events on a chain, or in the configuration.
fn event(world: World) -> impl Strategy<Value = Happening> {
    let seconds = match world {
        World::Wild => {
            prop_oneof![4 => Just(1_i64), 4 => Just(12), 2 => Just(120), 1 => Just(1000)]
        }
        World::Settled => {
            prop_oneof![8 => Just(1_i64), 0 => Just(1), 0 => Just(1), 2 => Just(LEAP)]
        }
    };
    let fork_seconds = if world == World::Wild { 1..30_i64 } else { 1..2 };
    // A wait of days exceeds the retention of ended orders, while other chains continue.
    let days = u32::from(world == World::Wild);
    let seconds_short = if world == World::Wild { 200 } else { 1 };
    let wait_seconds = prop_oneof![2 => Just(seconds_short), days => Just(8 * DAY)];
    prop_oneof![
        11 => (chain(), 1..4_usize, seconds, 0..4_usize, any::<bool>(), 0..4_u8).prop_map(
            |(chain, blocks, seconds, transactions, each, late)| {
                let late = late == 0;
                Happening::Mine(Mine { chain, blocks, seconds, transactions, each, late })
            }
        ),
        4 => (chain(), 1..6_usize, 0..3_usize, any::<u16>(), fork_seconds, 0..4_u8).prop_map(
            |(chain, depth, further, fates, seconds, back)| {
                let back = back == 0;
                Happening::Fork(Fork { chain, depth, further, fates, seconds, back })
            }
        ),
        3 * days => prop_oneof![
            4 => away().prop_map(Happening::Away),
            2 => rewind().prop_map(Happening::Rewind),
            2 => restore().prop_map(Happening::Restore),
            1 => (chain(), 0..3_usize).prop_map(|(chain, price)| Happening::Linger { chain, price }),
        ],
        5 => doubt(),
        3 * days => (chain(), any::<bool>())
            .prop_map(|(chain, begins)| Happening::Unsee { chain, begins }),
        1 => any::<bool>().prop_map(|long| Happening::Rest { long }),
        6 => chain().prop_map(|chain| Happening::Watch { chain }),
        2 => (chain(), 0..5_usize, 0..3_u8).prop_map(|(chain, what, begins)| {
            Happening::Stop { chain, what, begins: begins == 0 }
        }),
        1 => (chain(), wait_seconds)
            .prop_map(|(chain, seconds)| Happening::Wait { chain, seconds }),
        1 => (chain(), any::<bool>()).prop_map(|(chain, other)| Happening::Configure { chain, other }),
    ]
}

pub(crate) fn case(world: World) -> impl Strategy<Value = Case> {
    // Boxed: the tree of all events is large, and moved with each.
    let happening = prop_oneof![23 => deal().boxed(), 22 => event(world).boxed()];
    let happenings = proptest::collection::vec((happening, any::<u64>()), 6..48);
    let ahead = || prop_oneof![2 => Just(0), 1 => Just(CLOCKS), 1 => Just(-CLOCKS)];
    let ahead = (ahead(), ahead()).prop_map(<[i64; 2]>::from);
    (happenings, any::<[bool; 4]>(), ahead).prop_map(move |(happenings, tricks, ahead)| {
        let [batches, losses, repeats, silence] = tricks;
        // An unanswered question is asked again after a time, with an undetermined outcome; with repeats, its
        // repetition could be read first.
        let silence = silence && !repeats && world == World::Wild;
        let ahead = if world == World::Wild { ahead } else { [0; 2] };
        Case { happenings, tricks: Tricks { batches, losses, repeats, silence }, ahead }
    })
}

/// Cases from a fixed seed, for tests that need one case of a kind.
pub(crate) fn fixed_cases(world: World, count: usize) -> impl Iterator<Item = Case> {
    let mut runner = TestRunner::deterministic();
    std::iter::repeat_with(move || case(world).new_tree(&mut runner).unwrap().current()).take(count)
}
