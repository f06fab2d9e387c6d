//! Numbers that only the holder of the merchant's secret can predict.

use std::borrow::Cow;

use crate::binary::Binary;

/// Sixteen numbers below 65,536 for an order and a coin on a chain, made by [`draw_digits`](crate::draw_digits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws(pub [u8; 32]);

impl Draws {
    /// Number of draws.
    pub const COUNT: usize = 16;

    /// The number at a position; positions repeat after [`Draws::COUNT`].
    #[must_use]
    pub fn get(&self, position: usize) -> u16 {
        let (pairs, _) = self.0.as_chunks();
        u16::from_le_bytes(pairs[position % Self::COUNT])
    }
}

impl Binary for Draws {
    const WHAT: &'static str = "32 bytes of draws";
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}
