//! A clock that jumps.

use schemas::record::{ChainProgress, example};

use super::*;

/// Progress of Ethereum, from ingest or from a lane, with a head of this second.
fn progress(lane: Option<i32>, second: i64) -> NewRecord {
    let mut progress: ChainProgress = ChainProgress { lane, ..example::chain_progress() };
    progress.head.timestamp = UnixSeconds(second);
    wrap(Topic::Chains, Partition(Blockchain::Eth.index()), "eth", &progress)
}

/// An expiry by a timer is final, so timers use a time at most `AHEAD_MAX_SECONDS`, ten minutes, ahead of the chains.
#[test]
fn a_clock_that_jumps_ends_no_order() {
    for treatment in [Treatment::Kind, Treatment::Restarts] {
        let mut processor = TestProcessor::new(treatment);
        processor.send(progress(None, 1390)).send(order_command(&create('A', None)));
        // More records than are read when a runner starts.
        let lanes = (0..20).map(|lane| progress(Some(lane), 1380)).collect();
        processor.tokio.block_on(processor.log().produce(lanes)).unwrap();
        processor.clock.advance(Duration::from_secs(30 * 24 * 3600));
        processor.send(order_command(&create('B', None))).send(order_command(&cancel('B', 3)));
        assert_eq!(processor.history('B'), ["pending created", "cancelled cancelled"]);
        assert_eq!(
            processor.history('A'),
            ["pending created"],
            "though its runner made steps since"
        );
        assert!(processor.knows('B'), "nor is an ended order forgotten");
        processor.send(progress(None, 1401));
        processor
            .wait_until("the order has expired", |processor| processor.history('A').len() == 2);
        let orders: Vec<Order> = processor.decoded(Topic::Orders);
        let of_a = orders.iter().rfind(|order| letter(order.order_id) == 'A').unwrap();
        assert_eq!(of_a.updated_at.seconds(), UnixSeconds(2001), "not the time of that clock");
    }
}
