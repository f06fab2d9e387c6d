//! Removal of ended orders from the changelog, and their return.

use runtime::Clock;
use schemas::OrderStatus;

use super::*;
use crate::command::carrying;

const EIGHT_DAYS: Duration = Duration::from_secs(8 * 24 * 3600);

impl TestProcessor {
    /// `true` if the changelog has the order.
    pub(super) fn knows(&self, of: char) -> bool {
        let key = name::order(of).to_string().into_bytes();
        self.state().keys().any(|(_, other)| *other == key)
    }

    fn forgets(&mut self, of: char) {
        self.clock.advance(EIGHT_DAYS);
        self.wait_until("the order is forgotten", |processor| !processor.knows(of));
        self.settle();
    }
}

#[test]
fn a_forgotten_order_is_marked_paid() {
    for treatment in [Treatment::Kind, Treatment::Restarts, Treatment::Aborts] {
        let mut processor = TestProcessor::new(treatment);
        processor.send(order_command(&create('A', None))).send(order_command(&cancel('A', 2)));
        assert!(processor.knows('A'));
        processor.forgets('A');
        let row: Order = processor.decoded(Topic::Orders).pop().unwrap();
        assert_eq!(row.status, OrderStatus::Cancelled);
        processor.send(order_command(&mark_paid('A', 3)));
        assert_eq!(processor.history('A').len(), 2, "nobody knows the order");
        let issued_at = processor.clock.now();
        let carried = OrderCommand { issued_at, ..carrying(mark_paid('A', 4), &row) };
        processor.send(order_command(&carried));
        assert!(processor.knows('A'));
        processor.forgets('A');
        let history = ["pending created", "cancelled cancelled", "paid marked_paid"];
        assert_eq!(processor.history('A'), history);
        let commands: Vec<OrderCommand> = processor.decoded(Topic::OrdersCommands);
        let ticks = commands.iter().filter(|command| command.body == OrderCommandBody::Tick);
        assert_eq!(ticks.count(), 2);
    }
}
