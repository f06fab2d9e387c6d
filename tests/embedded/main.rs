//! The executable on the embedded back ends: no server, no other language.

mod command;
mod compose;
mod examples;
mod rebuild;
mod tail;
