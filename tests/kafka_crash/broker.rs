//! The broker dies in a transaction and comes back with its data, again and again.

use std::path::PathBuf;

use xtask::{Server, kafka};

use crate::child::{MATCHING, ORDERS};
use crate::installation::{Installation, ProcessId};
use crate::town::{Town, first_of, has_taken};

impl Town {
    /// The broker is killed while a processor is in a step, and started again. Nobody trades meanwhile:
    /// what the shop writes would wait, too.
    fn lose(&mut self, broker: &mut Server, group: &str, point: &str) {
        let victim = if group == MATCHING { self.a } else { self.b };
        self.hold_at(victim, group, point, 2);
        let told = self.place.told_by(victim);
        broker.kill();
        self.place.let_go(victim);
        broker.restart().unwrap();
        self.place.wait_in_silence("the step to end", |p| {
            first_of(p.told_since(victim, told), group).is_some() || p.is_gone(victim)
        });
        let first = first_of(self.place.told_since(victim, told), group);
        println!("without its broker from {point} of {group} on: {first:?}");
        self.a = self.recover(self.a, "a");
        self.b = self.recover(self.b, "b");
    }

    /// Until a processor works again. A call that does not return although the broker is back ends its
    /// process, and somebody starts it again.
    fn recover(&mut self, id: ProcessId, member: &str) -> ProcessId {
        let told = self.place.told_by(id);
        let is_over = |p: &Installation| p.is_gone(id) || has_taken(p.told_since(id, told));
        self.place.wait(&mut self.shop, "a processor to work or end", is_over);
        if !self.place.is_gone(id) {
            return id;
        }
        println!("{member} ended by itself and is started again");
        self.start(member)
    }
}

#[test]
fn a_broker_that_dies_in_a_transaction_loses_and_doubles_nothing() {
    let lib = std::env::var_os("TIDEMARK_TEST_KAFKA_LIB")
        .map(PathBuf::from)
        .expect("TIDEMARK_TEST_KAFKA_LIB is not set: run the tests by `cargo xtask test`");
    let dir = tempfile::tempdir().unwrap();
    let mut broker = kafka::start(&lib, dir.path(), "").unwrap();
    let mut town = Town::new(&broker.address());
    for (group, point) in
        [(MATCHING, "AfterSend"), (ORDERS, "AfterOffsets"), (MATCHING, "BeforeCommit")]
    {
        town.lose(&mut broker, group, point);
    }
    town.close(300);
}
