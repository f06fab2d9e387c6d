//! A shop and the two processors that serve it.

use crate::child::{MATCHING, ORDERS};
use crate::installation::{Installation, ProcessId};
use crate::load::Shop;
use crate::verdict::{counts, judge};
use crate::watched::News;

/// Two processors and the shop.
pub(crate) struct Town {
    pub(crate) place: Installation,
    pub(crate) shop: Shop,
    pub(crate) a: ProcessId,
    pub(crate) b: ProcessId,
}

impl Town {
    /// On a broker, with topics of its own.
    pub(crate) fn new(brokers: &str) -> Self {
        let mut place = Installation::new(brokers);
        let (a, b) = (place.start("a"), place.start("b"));
        let mut shop = Shop::open(place.log.clone(), 11);
        place.wait(&mut shop, "both processors to work", |p| p.works(a) && p.works(b));
        Self { place, shop, a, b }
    }

    /// A processor is killed where it is told to wait.
    pub(crate) fn kill_at(&mut self, victim: ProcessId, group: &str, point: &str, count: u32) {
        self.hold_at(victim, group, point, count);
        self.place.kill(victim);
    }

    /// A processor waits at a point of a step.
    pub(crate) fn hold_at(&mut self, victim: ProcessId, group: &str, point: &str, count: u32) {
        self.place.arm(victim, group, point, count);
        let what = format!("{victim:?} to reach {point} of {group}");
        self.place.wait(&mut self.shop, &what, |p| p.is_at(victim, group));
    }

    /// A new process under the name, until it works.
    pub(crate) fn start(&mut self, member: &str) -> ProcessId {
        let id = self.place.start(member);
        self.place.wait(&mut self.shop, "a processor to work", |p| p.works(id));
        id
    }

    /// Until a process has made a step of each machine.
    pub(crate) fn wait_for_work(&mut self, id: ProcessId) {
        let told = self.place.told_by(id);
        self.place.wait(&mut self.shop, "a processor to take something", |p| {
            has_taken(p.told_since(id, told))
        });
    }

    /// After so many transfers the day ends, and what is there must be right.
    pub(crate) fn close(mut self, transfers_min: usize) {
        while self.shop.transfers() < transfers_min {
            self.place.trade(&mut self.shop, 1);
        }
        let audit = self.place.finish(&mut self.shop, &[self.a, self.b]);
        let explanation = judge(&self.shop, &audit.reading, &audit.committed);
        println!(
            "{} transfers, {} inputs, {} outputs: {:?}",
            self.shop.transfers(),
            explanation.inputs(),
            explanation.outputs,
            counts(&audit.reading)
        );
    }
}

/// The first news about a group.
pub(crate) fn first_of<'a>(told: &'a [News], group: &str) -> Option<&'a News> {
    told.iter().find(|news| news.group() == group)
}

/// Whether a step of the group is committed.
pub(crate) fn is_taken(news: &News, group: &str) -> bool {
    matches!(news, News::Taken(of, _) if of == group)
}

/// Whether a step of each group is committed.
pub(crate) fn has_taken(told: &[News]) -> bool {
    [MATCHING, ORDERS].iter().all(|group| told.iter().any(|news| is_taken(news, group)))
}
