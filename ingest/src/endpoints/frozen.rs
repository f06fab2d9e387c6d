//! A scanning endpoint whose head does not advance, while another one has later blocks.

use std::time::Instant;

use super::{Endpoints, Fault};
use crate::machine::{Answer, Ask, Point};

impl Endpoints {
    /// Returns `true` if an endpoint's head has not advanced for long, and another one has a later block: it is put
    /// aside then. Everything that such an endpoint answers is correct, so no other check would end the wait.
    pub(super) async fn is_overtaken(
        &mut self,
        index: usize,
        (ask, answer): (&Ask, &Answer),
    ) -> bool {
        let Some(head) = ask.shown(answer, Point::Latest) else { return false };
        let head = head.block.number;
        if !self.health.is_frozen(index, head, Instant::now()) {
            return false;
        }
        let ask = Ask { blocks: vec![Point::Latest], ..Ask::default() };
        for other in (0..self.list.len()).filter(|other| *other != index) {
            // One that is aside would not be asked next.
            if !self.health.serves(other, Instant::now()) || !self.check(other).await {
                continue;
            }
            let Ok(answer) = self.ask(other, &ask).await else { continue };
            let theirs = ask.shown(&answer, Point::Latest).map(|header| header.block.number);
            if let Some(theirs) = theirs.filter(|number| *number > head) {
                let name = self.name(other);
                let cause = format!("its newest block is still {head}, and {name} has {theirs}");
                self.failed(index, Fault::Frozen, &cause);
                return true;
            }
        }
        false
    }
}
