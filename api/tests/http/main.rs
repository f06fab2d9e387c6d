//! The api as a caller sees it: real sockets, real log and store and, where a test needs it, the processor that
//! answers commands. At least one test for each rule of the interface that concerns the api.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod acts;
mod admin;
mod break_in;
mod changes;
mod console;
mod create;
mod events;
mod forgotten;
mod fuzz;
mod links;
mod listener;
mod lists;
mod openapi;
mod operators;
mod page;
mod raw;
mod registry;
mod service;
mod twice;
mod user;
mod world;
