//! The broker is repeatedly killed in a transaction and restarted with its data.

use testkit::process::given_path;
use xtask::{Server, kafka};

use crate::installation::{Installation, ProcessId};
use crate::scenario::{Scenario, first_about, has_committed};
use crate::{MATCHING, ORDERS};

impl Scenario {
    /// Kills the broker while a processor is in a step, and restarts it. There is no load meanwhile, because its writes
    /// would wait, too.
    fn lose_broker(&mut self, broker: &mut Server, group: &str, point: &str) {
        let victim = if group == MATCHING { self.a } else { self.b };
        self.hold_at(victim, group, point, 2);
        let seen = self.installation.report_count(victim);
        broker.kill();
        self.installation.release(victim);
        broker.restart().unwrap();
        self.installation.wait_until("the step to end", |p| {
            first_about(p.reports_since(victim, seen), group).is_some() || p.is_gone(victim)
        });
        let first = first_about(self.installation.reports_since(victim, seen), group);
        println!("without its broker from {point} of {group} on: {first:?}");
        self.a = self.recover(self.a, "a");
        self.b = self.recover(self.b, "b");
    }

    /// Waits until a processor works again. A call that does not return after the broker's restart ends its process,
    /// which is restarted.
    fn recover(&mut self, id: ProcessId, member: &str) -> ProcessId {
        let seen = self.installation.report_count(id);
        let is_over = |p: &Installation| p.is_gone(id) || has_committed(p.reports_since(id, seen));
        self.trade_until("a processor to work or end", is_over);
        if !self.installation.is_gone(id) {
            return id;
        }
        println!("{member} ended by itself and is restarted");
        self.start(member)
    }
}

#[test]
fn a_killed_broker_loses_no_step() {
    let lib = given_path("TIDEMARK_TEST_KAFKA_LIB");
    let dir = tempfile::tempdir().unwrap();
    let mut broker = kafka::start(&lib, dir.path(), "").unwrap();
    let mut scenario = Scenario::new(&broker.address());
    for (group, point) in
        [(MATCHING, "AfterSend"), (ORDERS, "AfterOffsets"), (MATCHING, "BeforeCommit")]
    {
        scenario.lose_broker(&mut broker, group, point);
    }
    scenario.close(300);
}
