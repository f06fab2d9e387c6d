//! Two processors, the load on them, and their faults.

use oracle::load::Shop;
use oracle::verdict::{Seldom, counts, judge};
use testkit::observed::{Report, What};

use crate::installation::{Installation, ProcessId};
use crate::{MATCHING, ORDERS};

/// Two processors and the load.
pub(crate) struct Scenario {
    pub(crate) installation: Installation,
    pub(crate) shop: Shop,
    pub(crate) a: ProcessId,
    pub(crate) b: ProcessId,
}

impl Scenario {
    /// Starts on a broker, with new topics.
    pub(crate) fn new(brokers: &str) -> Self {
        let mut installation = Installation::new(brokers);
        let (a, b) = (installation.start("a"), installation.start("b"));
        let shop = Shop::open(installation.log.clone(), 11);
        let mut scenario = Self { installation, shop, a, b };
        scenario.trade_until("both processors to work", |p| p.works(a) && p.works(b));
        scenario
    }

    /// Trades until a condition holds.
    pub(crate) fn trade_until(&mut self, what: &str, is: impl Fn(&Installation) -> bool) {
        self.installation.trade_until(&mut self.shop, what, is);
    }

    /// Kills a processor when it reaches a point of a step for the `count`-th time.
    pub(crate) fn kill_at(&mut self, victim: ProcessId, group: &str, point: &str, count: u32) {
        self.hold_at(victim, group, point, count);
        self.installation.kill(victim);
    }

    /// Holds a processor at a point of a step.
    pub(crate) fn hold_at(&mut self, victim: ProcessId, group: &str, point: &str, count: u32) {
        self.installation.request_hold(victim, group, point, count);
        let what = format!("{victim:?} to reach {point} of {group}");
        self.trade_until(&what, |p| p.is_at(victim, group));
    }

    /// Starts a process; waits until it works.
    pub(crate) fn start(&mut self, member: &str) -> ProcessId {
        let id = self.installation.start(member);
        self.trade_until("a processor to work", |p| p.works(id));
        id
    }

    /// Waits until a process has committed a step of each machine.
    pub(crate) fn wait_for_work(&mut self, id: ProcessId) {
        let seen = self.installation.report_count(id);
        self.trade_until("a processor to commit a step", |p| {
            has_committed(p.reports_since(id, seen))
        });
    }

    /// Trades until there are enough transfers, lets every window end, and checks all that was written.
    pub(crate) fn close(mut self, transfers_min: usize) {
        while self.shop.transfers() < transfers_min {
            self.installation.trade(&mut self.shop, 1);
        }
        let audit = self.installation.finish(&mut self.shop, &[self.a, self.b]);
        let explanation = judge(&self.shop, &audit.reading, &audit.committed);
        println!(
            "{} transfers, {} inputs, {} outputs: {:?}, {:?}",
            self.shop.transfers(),
            explanation.inputs(),
            explanation.causes.len(),
            counts(&audit.reading),
            Seldom::of(&audit.reading)
        );
    }
}

/// The first report about a group.
pub(crate) fn first_about<'a>(reports: &'a [Report], group: &str) -> Option<&'a Report> {
    reports.iter().find(|report| report.group == group)
}

/// `true` if the report is of a committed step of the group.
pub(crate) fn is_commit(report: &Report, group: &str) -> bool {
    report.what == What::Committed && report.group == group
}

/// `true` if a step of each group is committed.
pub(crate) fn has_committed(reports: &[Report]) -> bool {
    [MATCHING, ORDERS].iter().all(|group| reports.iter().any(|report| is_commit(report, group)))
}
