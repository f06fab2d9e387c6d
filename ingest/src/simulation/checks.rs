//! Random histories of a chain seen through two endpoints with faults, of which the first also omits and invents
//! transfers: in the end the chain's payments are published and confirmed, each once.

use std::collections::BTreeSet;

use schemas::record::{Block, ChainBody, ChainRecord, Observation};
use schemas::{Epoch, TxHash, UnixMicros};
use testkit::Dice;

use super::{FORGED, MemoryLog, Node, Payment, chain, restarted};
use crate::ChainConfig;
use crate::machine::{Answer, Ask, Cursor, Decision, Next, Policy, Refusal, Role, Tag};
use crate::rehearsal::seeds;
use crate::sabotage::Defect;

/// Number of histories that a run plays, unless another one is requested.
const SEEDS: u64 = 100;
const STEPS: usize = 60;

/// The chain's own content, and two endpoints that show it.
#[derive(Default)]
struct Sight {
    /// The chain itself, without faults.
    chain: Node,
    /// Transactions that the first endpoint leaves out while their blocks are not final.
    omitted: Vec<TxHash>,
    /// The first endpoint shows its newest block without logs.
    trails: bool,
    first: Fault,
    second: Fault,
    before_reorg: Node,
    /// Transfers that only the first endpoint shows, while their blocks are not final.
    forged: Vec<(Block, Payment)>,
    forges_receipts: bool,
}

/// Temporary behaviour of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    Behind(usize),
    OtherFork,
    Refuses(Refusal),
}

impl Sight {
    fn answer(&self, ask: &Ask) -> Result<Answer, Refusal> {
        let (fault, mut node) = match ask.role {
            Role::First | Role::Witness => (self.first, self.first_node()),
            Role::Second => (self.second, self.chain.clone()),
        };
        match fault {
            Fault::None => node.answer(ask),
            Fault::Behind(blocks) => {
                node = node.without(blocks);
                node.answer(ask)
            }
            Fault::OtherFork => self.before_reorg.answer(ask),
            Fault::Refuses(refusal) => Err(refusal),
        }
    }

    fn first_node(&self) -> Node {
        let mut node = self.chain.clone();
        node.logs_lag = i64::from(self.trails);
        // Omissions end once their blocks are final.
        let open: BTreeSet<TxHash> = (self.chain.transfers_after(self.chain.head().number - 7))
            .into_iter()
            .map(|(_, seen)| seen.tx_hash)
            .collect();
        node.omitted = self.omitted.iter().filter(|hash| open.contains(hash)).copied().collect();
        let final_to = self.chain.head().number - 7;
        let open = self.forged.iter().filter(|(block, _)| block.number > final_to);
        node.forged = open.map(|(block, payment)| (block.hash, *payment)).collect();
        node.forges_receipts = self.forges_receipts;
        node
    }
}

/// State of a reader of `transfers.raw`.
#[derive(Default)]
struct Reader {
    epoch: Epoch,
    live: std::collections::BTreeMap<(i64, i32), (Block, Observation)>,
    confirmed: i64,
}

impl Reader {
    /// Applies a step; fails if a forged transfer is confirmed.
    fn read(&mut self, records: &[ChainRecord]) -> Result<(), String> {
        for record in records {
            assert!(record.epoch >= self.epoch);
            let place = |seen: &Observation| (record.block.number, seen.log_index);
            match &record.body {
                ChainBody::Transfer(seen) => {
                    let before = self.live.insert(place(seen), (record.block, *seen));
                    assert_eq!(before, None, "published twice");
                }
                ChainBody::Retract(seen) => {
                    assert_eq!(self.live.remove(&place(seen)), Some((record.block, *seen)));
                }
                ChainBody::Watch(_) => {}
                ChainBody::Head(head) => {
                    self.epoch = record.epoch;
                    self.confirmed = head.confirmed_max();
                    let confirmed = self.live.range(..=(self.confirmed, i32::MAX));
                    let mut confirmed = confirmed.map(|(_, transfer)| transfer);
                    if confirmed.any(|(at, seen)| seen.tx_hash == FORGED && !head.holds(at, seen)) {
                        return Err("a forged transfer is confirmed".to_owned());
                    }
                }
            }
        }
        Ok(())
    }
}

struct World {
    config: ChainConfig,
    sight: Sight,
    cursor: Cursor,
    memory: MemoryLog,
    reader: Reader,
    base: Option<i64>,
    now: i64,
    sabotage: Defect,
    /// Equal seeds give equal histories, on every machine.
    dice: Dice,
}

impl World {
    fn new(seed: u64, sabotage: Defect) -> Self {
        let mut dice = Dice(seed);
        let policy = match dice.below(3) {
            0 => Policy::flat(Some(3), None),
            1 => Policy::flat(Some(2), Some(Tag::Safe)),
            _ => Policy::flat(None, Some(Tag::Finalized)),
        };
        let mut config = chain(policy);
        config.endpoints.extend(config.endpoints.clone());
        let node = Node::new(12);
        let sight = Sight { before_reorg: node.clone(), chain: node, ..Sight::default() };
        let mut cursor = Cursor::new(config.rules(), None, config.watched());
        cursor.sabotage = sabotage;
        let (memory, reader) = (MemoryLog::new(), Reader::default());
        Self { config, sight, cursor, memory, reader, base: None, now: 1, sabotage, dice }
    }

    fn play(mut self) -> Result<(), String> {
        self.poll()?;
        while self.base.is_none() {
            self.poll()?;
        }
        for _ in 0..STEPS {
            self.act()?;
        }
        self.confirm_all()
    }

    fn act(&mut self) -> Result<(), String> {
        match self.dice.below(20) {
            0..=6 => self.mine(),
            7 => {
                self.sight.before_reorg = self.sight.chain.clone();
                let depth = 1 + self.dice.below(3);
                self.sight.chain.reorg(depth, &[Some(0), Some(1), None]);
            }
            8 => self.sight.first = self.fault(),
            9 => self.sight.second = self.fault(),
            10 => self.sight.trails = !self.sight.trails,
            11 => {
                let payment = Payment { wallet: 1, value: 7 };
                self.sight.forged = vec![(self.sight.chain.head(), payment)];
                self.sight.forges_receipts = self.dice.below(2) == 0;
            }
            12 => self.restart(),
            _ => {
                for _ in 0..=self.dice.below(7) {
                    self.poll()?;
                }
            }
        }
        Ok(())
    }

    fn mine(&mut self) {
        let mut transactions = Vec::new();
        for _ in 0..self.dice.below(3) {
            let value = self.dice.below(2) as u128 + 1;
            let payment = Payment { wallet: u8::try_from(self.dice.below(3)).unwrap(), value };
            transactions.push(vec![payment; 1 + self.dice.below(2)]);
        }
        self.sight.chain.mine(&transactions);
        let height = self.sight.chain.head().number;
        let mined = self.sight.chain.transfers_after(height - 1);
        if let Some((_, seen)) = mined.last().filter(|_| self.dice.below(4) == 0) {
            self.sight.omitted.push(seen.tx_hash);
        }
    }

    fn fault(&mut self) -> Fault {
        match self.dice.below(6) {
            0 => Fault::Behind(1 + self.dice.below(3)),
            1 => Fault::OtherFork,
            2 => Fault::Refuses(Refusal::Transient),
            3 => Fault::Refuses(Refusal::Size { hint: None }),
            _ => Fault::None,
        }
    }

    fn poll(&mut self) -> Result<Next, String> {
        let answered = self.sight.answer(&self.cursor.ask());
        self.now = self.sight.chain.clock().0.max(self.now + 5);
        let decision: Decision = match answered {
            Ok(answer) => self.cursor.answer(answer, UnixMicros(self.now)),
            Err(refusal) => self.cursor.fail(refusal).into(),
        };
        if let Some(last) = decision.publish.last() {
            self.base = self.base.or(Some(last.block.number));
            self.reader.read(&decision.publish)?;
            self.memory.publish(&self.config, &decision.publish);
        }
        // Ends the first endpoint's fault: the simulation does not choose another endpoint, and one that stays on
        // another fork would halt the chain.
        if matches!(decision.next, Next::Retry(_)) {
            self.sight.first = Fault::None;
        }
        assert!(!matches!(decision.next, Next::Halt(_)), "{:?}", decision.next);
        Ok(decision.next)
    }

    fn restart(&mut self) {
        self.cursor = restarted(3, &self.memory, &self.config);
        self.cursor.sabotage = self.sabotage;
    }

    /// Ends faults, except omitted and invented logs of the first endpoint. Expects that all payments are confirmed.
    fn confirm_all(&mut self) -> Result<(), String> {
        self.sight.first = Fault::None;
        self.sight.second = Fault::None;
        self.sight.trails = false;
        self.sight.forges_receipts = false;
        let base = self.base.unwrap_or_default();
        let paid = self.sight.chain.transfers_after(base);
        for _ in 0..60 {
            self.sight.chain.mine(&[]);
            for _ in 0..12 {
                if self.poll()? == Next::AtTip {
                    break;
                }
            }
        }
        let newest = paid.last().map_or(base, |(block, _)| block.number);
        if self.reader.confirmed < newest {
            return Err(format!("{} is confirmed, not {newest}", self.reader.confirmed));
        }
        let plain = |transfers: &mut dyn Iterator<Item = (Block, Observation)>| {
            let mut transfers: Vec<_> = transfers
                .map(|(block, seen)| (block.hash, Observation { ordinal: 0, ..seen }, seen.ordinal))
                .collect();
            // Equal transfers of a transaction get ordinals in the order in which they are found.
            transfers.sort_by_key(|(hash, seen, _)| (hash.0, seen.log_index));
            let payments: BTreeSet<_> = transfers
                .iter()
                .map(|(_, seen, ordinal)| {
                    (seen.payment().tx_hash, seen.to_address, seen.value, *ordinal)
                })
                .collect();
            let places: Vec<_> =
                transfers.into_iter().map(|(hash, seen, _)| (hash, seen)).collect();
            (places, payments)
        };
        let mut read = self.reader.live.values().copied().filter(|(block, _)| block.number > base);
        let (read, own) = (plain(&mut read), plain(&mut paid.into_iter()));
        if read == own { Ok(()) } else { Err(format!("published {read:?}\nthe chain has {own:?}")) }
    }
}

#[test]
fn one_faulty_endpoint_of_two_loses_no_payment() {
    for seed in seeds(SEEDS) {
        let played = World::new(seed, Defect::None).play();
        assert!(played.is_ok(), "seed {seed}: {}", played.unwrap_err());
    }
}

#[test]
fn without_second_checks_payments_are_lost() {
    let ends: Vec<_> = (0..50).map(|seed| World::new(seed, Defect::OneCheck).play()).collect();
    let errors: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert!(errors.iter().any(|error| error.starts_with("a forged transfer")), "{errors:?}");
    assert!(errors.iter().any(|error| error.starts_with("published")), "{errors:?}");
}
