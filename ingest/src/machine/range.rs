//! Adaptive number of blocks per request: grows on success, shrinks on refusal.

/// The adaptive size of a range, in blocks: at least 1, at most `blocks_max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeSize {
    blocks: i64,
    blocks_max: i64,
}

impl RangeSize {
    /// Starts at the maximum: one refusal with a hint finds the endpoint's limit at once.
    pub(crate) fn new(blocks_max: i64) -> Self {
        let blocks_max = blocks_max.max(1);
        Self { blocks: blocks_max, blocks_max }
    }

    pub(crate) fn blocks(self) -> i64 {
        self.blocks
    }

    /// A range of `used` blocks was served. Only a full range shows that a larger one may be
    /// served.
    pub(crate) fn grow(&mut self, used: i64) {
        if used >= self.blocks {
            self.blocks = (self.blocks + self.blocks / 4 + 1).min(self.blocks_max);
        }
    }

    /// A range of `used` blocks was refused; `hint` is a size that the endpoint named. Returns
    /// `false` if the refused range was a single block.
    pub(crate) fn shrink(&mut self, used: i64, hint: Option<i64>) -> bool {
        let refused = self.blocks.min(used);
        let hint = hint.filter(|blocks| (1..refused).contains(blocks));
        self.blocks = hint.unwrap_or(refused / 2).max(1);
        refused > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_or_takes_the_hint_and_never_goes_below_one() {
        let mut range = RangeSize::new(2000);
        assert!(range.shrink(2000, None));
        assert_eq!(range.blocks(), 1000);
        assert!(range.shrink(1000, Some(10)));
        assert_eq!(range.blocks(), 10);
        // A hint that would not shrink the range is ignored.
        assert!(range.shrink(10, Some(5000)));
        assert_eq!(range.blocks(), 5);
        // A range shorter than the size was refused: the range is halved, not the size.
        assert!(range.shrink(3, None));
        assert_eq!(range.blocks(), 1);
        assert!(!range.shrink(1, None));
        assert_eq!(range.blocks(), 1);
    }

    #[test]
    fn full_ranges_grow_by_a_quarter_up_to_the_maximum() {
        let mut range = RangeSize::new(12);
        range.shrink(12, Some(4));
        range.grow(3);
        assert_eq!(range.blocks(), 4);
        let sizes = [4, 6, 8, 11, 12].map(|used| {
            range.grow(used);
            range.blocks()
        });
        assert_eq!(sizes, [6, 8, 11, 12, 12]);
    }
}
