//! The handlers, by audience. Which path leads to which is in `router`.

pub(crate) mod admin;
pub(crate) mod registry;
pub(crate) mod service;
pub(crate) mod user;
