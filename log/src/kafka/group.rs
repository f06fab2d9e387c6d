//! A member of a group: its assignment, the positions of the group and the member, and its steps.

mod assignment;
mod cursor;
mod member;
pub(super) mod position;
pub(super) mod worker;
