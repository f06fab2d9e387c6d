//! A member of a group: what it is assigned, how far the group and the member have read, and its steps.

mod assignment;
mod cursor;
mod member;
pub(super) mod position;
pub(super) mod worker;
