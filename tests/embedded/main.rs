//! The executable on the embedded back ends: no server, no other language.

mod backup;
mod command;
mod compose;
mod conformance;
mod doctor;
mod examples;
mod fold;
mod halts;
mod prune;
mod rebuild;
mod rescan;
mod start;
mod stopping;
mod tail;
mod unanswered;
