//! Inputs delivered to the machines, and their effects.

use processor::machine::{matching, orders};
use schemas::record::OrderCommand;

/// A delivered input with its effects. A list of them is in commit order.
#[derive(Debug, Clone)]
pub enum Delivered {
    Lane(matching::Input, Vec<matching::Effect>),
    Orders(OrderCommand, Vec<orders::Effect>),
}

impl Delivered {
    /// Effects of a lane; none of orders.
    pub fn of_lane(&self) -> &[matching::Effect] {
        match self {
            Self::Lane(_, effects) => effects,
            Self::Orders(..) => &[],
        }
    }

    /// Effects of orders; none of a lane.
    pub fn of_orders(&self) -> &[orders::Effect] {
        match self {
            Self::Orders(_, effects) => effects,
            Self::Lane(..) => &[],
        }
    }
}
