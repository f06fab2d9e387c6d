//! Processors die, freeze, come and go on one installation, while the shop trades on.

use oracle::fold::{FlawKind, explain};

use crate::child::{MATCHING, ORDERS};
use crate::installation::{Installation, ProcessId};
use crate::load::Shop;
use crate::shared_broker;
use crate::town::{Town, first_of, is_taken};
use crate::watched::{BETWEEN_ANSWERS, Bug};

/// Before and after each part of a step.
const POINTS: [&str; 10] = [
    "BeforeBegin",
    "AfterBegin",
    "BeforeSend",
    "AfterSend",
    "BeforeOffsets",
    "AfterOffsets",
    "BeforeDrain",
    "AfterDrain",
    "BeforeCommit",
    "AfterCommit",
];

impl Town {
    /// The other one gets everything that the dead or frozen one had.
    fn wait_for_heir(&mut self, heir: ProcessId) {
        self.place.wait(&mut self.shop, "the other to own all", |p| p.owns_all(heir));
    }

    /// Every point of a step of both machines, with the victim restarted under its name.
    fn die_everywhere(&mut self) {
        for (number, point) in POINTS.into_iter().enumerate() {
            for group in [MATCHING, ORDERS] {
                let (victim, member) = if (number % 2 == 0) == (group == MATCHING) {
                    (&mut self.a, "a")
                } else {
                    (&mut self.b, "b")
                };
                let victim = *victim;
                self.kill_at(victim, group, point, 1 + number as u32 % 3);
                let heir = self.start(member);
                if member == "a" { self.a = heir } else { self.b = heir }
            }
        }
    }

    /// Nobody comes back: the other one takes over once the session has ended.
    fn die_for_good(&mut self) {
        for (group, point) in [(MATCHING, "AfterOffsets"), (ORDERS, "BeforeCommit")] {
            self.kill_at(self.a, group, point, 2);
            self.wait_for_heir(self.b);
            self.a = self.start("a");
        }
    }

    /// Both die at once, and what is there then is explained by what is committed then.
    fn die_together(&mut self) {
        let (a, b) = (self.a, self.b);
        self.place.arm(a, MATCHING, "AfterDrain", 2);
        self.place.arm(b, ORDERS, "AfterOffsets", 2);
        let held = |p: &Installation| p.is_at(a, MATCHING) && p.is_at(b, ORDERS);
        self.place.wait(&mut self.shop, "both to wait", held);
        self.place.kill(a);
        self.place.kill(b);
        let audit = self.place.audit();
        assert!(!audit.reading.is_taken(&audit.committed), "they died with work to do");
        let explanation = explain(&audit.reading, &audit.committed);
        let explanation = explanation.unwrap_or_else(|flaw| panic!("{flaw}"));
        println!("in between: {} outputs explained", explanation.outputs);
        (self.a, self.b) = (self.place.start("a"), self.place.start("b"));
        let (a, b) = (self.a, self.b);
        self.place.wait(&mut self.shop, "both to work again", |p| p.works(a) && p.works(b));
    }

    /// One freezes in a step, the other takes over; thawed, it is fenced and writes nothing.
    fn freeze(&mut self, group: &str, point: &str) {
        let (frozen, heir) = (self.b, self.a);
        self.hold_at(frozen, group, point, 1);
        self.place.freeze(frozen);
        self.place.let_go(frozen);
        self.wait_for_heir(heir);
        self.wait_for_work(heir);
        let told = self.place.told_by(frozen);
        self.place.thaw(frozen);
        let has_told = |p: &Installation| first_of(p.told_since(frozen, told), group).is_some();
        self.place.wait(&mut self.shop, "the zombie's step to end", has_told);
        let first = first_of(self.place.told_since(frozen, told), group).cloned();
        assert!(!first.as_ref().is_some_and(|news| is_taken(news, group)), "{first:?}");
        println!("the zombie at {point} of {group}: {first:?}");
        self.place.wait(&mut self.shop, "the zombie to work again", |p| p.works(frozen));
    }

    /// One freezes in a step, and another process is started under its name: the old one ends.
    fn freeze_and_replace(&mut self) {
        let old = self.a;
        self.hold_at(old, ORDERS, "AfterDrain", 1);
        self.place.freeze(old);
        self.place.let_go(old);
        self.a = self.start("a");
        let told = self.place.told_by(old);
        self.place.thaw(old);
        self.place.wait(&mut self.shop, "the old process to end", |p| p.is_gone(old));
        // Its other machine was not held: it may have made a step before it froze, and tell so now.
        let since = self.place.told_since(old, told);
        let first = first_of(since, ORDERS);
        assert!(!first.is_some_and(|news| is_taken(news, ORDERS)), "{first:?}");
        println!("the replaced process: {since:?}");
    }

    /// Others join and leave in a row: one at once, one by dying.
    fn rebalance_in_a_row(&mut self) {
        let guest = self.start("c");
        self.place.stop(guest);
        let guest = self.place.start("d");
        self.place.wait(&mut self.shop, "a guest to own something", |p| {
            p.owned(guest, MATCHING) + p.owned(guest, ORDERS) > 0
        });
        self.place.kill(guest);
        let guest = self.place.start("e");
        self.place.stop(guest);
        let (a, b) = (self.a, self.b);
        let lone = |p: &Installation| {
            let all = |group| p.owned(a, group) + p.owned(b, group);
            all(MATCHING) == 32 && all(ORDERS) == 4 && p.works(a) && p.works(b)
        };
        self.place.wait(&mut self.shop, "the two to own all between them", lone);
    }
}

#[test]
fn no_death_of_a_processor_loses_doubles_or_renames_anything() {
    let mut town = Town::new(&shared_broker());
    town.die_everywhere();
    town.die_for_good();
    town.die_together();
    town.freeze(MATCHING, "AfterSend");
    town.freeze(ORDERS, "BeforeCommit");
    town.freeze_and_replace();
    town.rebalance_in_a_row();
    town.close(2_000);
}

/// A processor with a bug dies between the two halves of a step; the rest of the day is good.
fn flaw_of(bug: Bug) -> (FlawKind, String) {
    let mut place = Installation::new(&shared_broker());
    let victim = place.start_as("a", bug, 0);
    let mut shop = Shop::open(place.log.clone(), 5);
    place.wait(&mut shop, "the processor to work", |p| p.works(victim));
    place.arm(victim, ORDERS, BETWEEN_ANSWERS, 2);
    place.wait(&mut shop, "the processor to be in between", |p| p.is_at(victim, ORDERS));
    place.kill(victim);
    let heir = place.start("a");
    place.wait(&mut shop, "the next processor to work", |p| p.works(heir));
    place.trade(&mut shop, 3);
    let audit = place.finish(&mut shop, &[heir]);
    let untaken = audit.reading.untaken(&audit.committed);
    assert!(untaken.is_empty(), "all looks well: {untaken:?}");
    let flaw = explain(&audit.reading, &audit.committed).expect_err("the bug is found");
    println!("{bug:?} is found as {flaw}");
    (flaw.kind, flaw.text)
}

#[test]
fn offsets_committed_outside_the_transaction_are_found_out() {
    let (kind, text) = flaw_of(Bug::OffsetsFirst);
    assert_eq!(kind, FlawKind::Lost, "{text}");
    assert!(text.contains("is not on"), "{text}");
    let (kind, text) = flaw_of(Bug::OffsetsLast);
    assert_eq!(kind, FlawKind::Doubled, "{text}");
    assert!(text.contains("is written twice"), "{text}");
}
