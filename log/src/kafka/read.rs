//! Reading without a group: queries, single partitions to their end, tails.

pub(super) mod query;
pub(super) mod reader;
pub(super) mod tail;
